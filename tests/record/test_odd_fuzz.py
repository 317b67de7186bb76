"""Random odd folders from a seed: no command hangs or ends with a traceback, none hides a run."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest

from attnsvm import record
from attnsvm.record import LOCK_FILE, PLAN_FILE, RUN_FILE, TABLES, read_plan
from attnsvm.sweeps import status
from attnsvm.sweeps.aggregate import load
from tests.record.odd import (
    ODD_ARRAYS,
    ODD_HISTORY,
    ODD_TRIALS,
    PLACED,
    RAW,
    copied,
    deadline,
    lines_of,
    parquet,
    place,
    replace_file,
    sound_sweep,
    with_checksum,
)

SAMPLE = [
    pytest.param(range(40), id="sample"),
    pytest.param(range(40, 2000), id="all", marks=pytest.mark.faults),
]

VALUES = [
    None, True, 0, -1, 3, 1.5, -0.0, 1e308, 2**53, 2**53 + 1, 10**30, 10**400, "", "x", "ok",
    "done", "failed", "\x1b[2J", "\u202e", "\ud800", "0" * 64, "a\nb", "é", [], ["x"], [1], [[]],
    {}, {"": 0}, {"ok": 3}, {"x": {}}, {"_target_": "attnsvm.head.Linear"},
]  # fmt: skip


def somewhere(rng, content):
    """Return a random place of nested content: its container and its key."""
    place = content, rng.choice(sorted(content))
    while True:
        below = place[0][place[1]]
        if not (isinstance(below, dict | list) and below) or rng.random() < 0.3:
            return place
        keys = sorted(below) if isinstance(below, dict) else range(len(below))
        place = below, rng.choice(list(keys))


def edited(rng, content):
    """Return a copy of the content of a JSON file with one to three random edits."""
    copy = json.loads(json.dumps(content))
    for _ in range(rng.randint(1, 3)):
        container, key = somewhere(rng, copy)
        what = rng.random()
        if what < 0.2:
            del container[key]
        elif what < 0.3 and isinstance(container, dict):
            container[rng.choice(["new", "", "\x1b", "files"])] = rng.choice(VALUES)
        else:
            container[key] = rng.choice(VALUES)
    return copy


def flipped(rng, content):
    """Return bytes with some of them changed, or cut."""
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 20)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])])


def make_odd(rng, folder):
    """Make one file of a run odd; most edits have a valid checksum."""
    kind = rng.choice(["fields", "fields", "fields", "raw", "placed", "lock", "tables", "flipped"])
    name = rng.choice([RUN_FILE, *TABLES])
    if kind == "fields":
        run = record.read_json(folder / RUN_FILE)
        (folder / RUN_FILE).write_bytes(with_checksum(edited(rng, run)))
    elif kind == "raw":
        (folder / name).write_bytes(rng.choice(list(RAW.values())))
    elif kind == "placed":
        place(folder / name, rng.choice(list(PLACED)))
    elif kind == "lock":
        (folder / RUN_FILE).unlink()
        owner = {"host": "a", "pid": 1, "slurm_job": "", "started_s": 0}
        (folder / LOCK_FILE).write_bytes(json.dumps(edited(rng, owner)).encode())
    elif kind == "tables":
        trials, history = record.read_tables(folder, record.read_run(folder))
        content = rng.choice(
            [
                ("trials.parquet", parquet(rng.choice(list(ODD_TRIALS.values()))(trials))),
                ("history.parquet", parquet(rng.choice(list(ODD_HISTORY.values()))(history))),
                ("solutions.npz", rng.choice(list(ODD_ARRAYS.values()))),
            ]
        )
        replace_file(folder, *content)
    else:
        name = rng.choice(TABLES)
        replace_file(folder, name, flipped(rng, (folder / name).read_bytes()))


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "sweep"
    sound_sweep(folder)
    return folder


@pytest.mark.parametrize("numbers", SAMPLE)
def test_random_odd_folders(numbers, original, tmp_path, capsys):
    for number in numbers:
        rng = random.Random(number)
        sweep = copied(original, tmp_path / str(number))
        plan = read_plan(sweep)
        odd = rng.sample(sorted(plan.runs), rng.randint(1, 2))
        for name in odd:
            make_odd(rng, sweep / name)
        if rng.random() < 0.3:
            content = record.read_json(sweep / PLAN_FILE)
            (sweep / PLAN_FILE).write_bytes(with_checksum(edited(rng, content)))
        check_told(sweep, set(plan.runs) - set(odd), capsys)


def check_told(sweep, sound, capsys):
    """The runs that nobody touched are done, wherever they are told; the arrays are checked."""
    code, lines = lines_of(status.main, sweep, capsys)
    assert lines[-1].partition(" runs: ")[0] == str(len(status.states(sweep)))
    found = status.states(sweep)
    assert code == int(any(state.state != "done" for state in found.values()))
    with deadline():
        frames = load(sweep)
    states = dict(zip(frames.runs["run"], frames.runs["state"], strict=True))
    assert set(states) == set(found)
    for name, state in states.items():
        if name in sound:
            assert state == found[name].state == "done"
            assert (frames.trials["run"] == name).sum() == 3
        elif found[name].state != "done":
            assert state == found[name].state
        if state == "done":
            with deadline(), suppress(record.CorruptRecordError):
                record.read(sweep / name)
    assert (frames.statuses.get("ok", 0) > 0) == ("done" in states.values())
