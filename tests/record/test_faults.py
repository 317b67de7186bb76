"""Kills, full disks and damaged files: nothing torn is read, nothing finished is lost."""

import logging
import os
import random
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest

from attnsvm.config.identity import run_name
from attnsvm.record.files import CorruptRecordError
from attnsvm.record.folder import write
from attnsvm.record.provenance import provenance
from attnsvm.record.run import RUN_FILE, TABLES
from attnsvm.record.state import NEW, run_state
from attnsvm.record.stored import StoredRun
from attnsvm.sweeps.aggregate import load
from tests.command import until
from tests.faults import (
    configs,
    contents,
    die_at,
    finished,
    in_child,
    litter,
    prepared,
    states,
    sweep,
)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The cells of a sweep and its tables when nothing happens to it."""
    folder, cells = tmp_path_factory.mktemp("reference"), configs()
    assert finished(in_child(lambda: sweep(folder, cells))) == 0
    assert states(folder, cells) == ["done"] * len(cells)
    assert not litter(folder)
    return cells, contents(folder)


def check_after_a_kill(folder, cells, done_before, is_stale=False):
    """Return the runs that are done; none was torn, none that was done is lost."""
    # a child of the killed process may hold its lock for a moment, between fork and exec
    until(lambda: "running" not in states(folder, cells), 10)
    content = dict(zip(map(run_name, cells), states(folder, cells), strict=True))
    assert set(content.values()) <= {
        "done",
        *(["stale", "corrupt"] if is_stale else ["lost", "missing"]),
    }
    for name, state in content.items():
        assert state != "corrupt" or (folder / name / NEW / RUN_FILE).exists()  # it is moved now
    done = {name for name, state in content.items() if state == "done"}
    assert done_before <= done
    for name in done:
        StoredRun(folder / name).record()
    return done


def check_resumed(folder, cells, expected):
    """Run what is missing: the sweep must be as if nothing had happened."""
    assert finished(in_child(lambda: sweep(folder, cells))) == 0
    assert states(folder, cells) == ["done"] * len(cells)
    assert contents(folder) == expected
    assert litter(folder) == []


@pytest.mark.parametrize("before", ["nothing", "stale"])
@pytest.mark.parametrize(
    "runs", [pytest.param(1, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.faults)]
)
def test_a_kill_at_every_step(runs, before, tmp_path, uninterrupted):
    """A record that is to be replaced is there until the new one is complete."""
    cells, expected = uninterrupted[0][:runs], {}
    begin = tmp_path / "begin"
    begin.mkdir()
    for config in cells if before == "stale" else ():
        folder = begin / run_name(config)
        folder.mkdir()
        write(folder, [prepared(config)], {**provenance(config, []), "numbers": 0})
    for name, content in uninterrupted[1].items():
        if name.split("/")[0] in map(run_name, cells):
            expected[name] = content
    step, killed = 0, True
    while killed:
        step += 1
        folder = Path(shutil.copytree(begin, tmp_path / "sweep"))

        def dying(folder=folder, step=step):
            die_at(step)
            sweep(folder, cells)

        killed = finished(in_child(dying)) == -signal.SIGKILL
        check_after_a_kill(folder, cells, set(), before == "stale")
        check_resumed(folder, cells, expected)
        shutil.rmtree(folder)
    assert step > 20 * runs  # four files of a run: each made, synced, renamed


@pytest.mark.parametrize("kills", [5, pytest.param(500, marks=pytest.mark.faults)])
def test_kills_at_random(kills, tmp_path, uninterrupted):
    cells, expected = uninterrupted
    rng = random.Random(kills)
    begin = time.perf_counter()
    assert finished(in_child(lambda: sweep(tmp_path / "timed", cells))) == 0
    whole_s = time.perf_counter() - begin
    folder, done, killed = tmp_path / "sweep", set(), 0
    while killed < kills:
        child = in_child(lambda: sweep(folder, cells))
        time.sleep(rng.uniform(0, whole_s))
        os.kill(child, signal.SIGKILL)
        killed += finished(child) == -signal.SIGKILL
        done = check_after_a_kill(folder, cells, done)
        if len(done) == len(cells):
            check_resumed(folder, cells, expected)
            shutil.rmtree(folder)
            done = set()
    check_resumed(folder, cells, expected)
    frames = load(folder)
    assert frames.incomplete.empty
    assert len(frames.trials) == 9


@pytest.mark.parametrize(
    ("flips", "cuts"), [(100, 20), pytest.param(10_000, 2_000, marks=pytest.mark.faults)]
)
def test_no_flipped_bit_and_no_truncation_is_read(flips, cuts, tmp_path, uninterrupted):
    cells, _ = uninterrupted
    assert finished(in_child(lambda: sweep(tmp_path, cells[:1]))) == 0
    folder = tmp_path / run_name(cells[0])
    rng = random.Random(0)
    for name in (*TABLES, RUN_FILE):
        path = folder / name
        sound = path.read_bytes()
        for k in range((flips + cuts) // 4):
            damaged = bytearray(sound)
            if k < flips // 4:
                damaged[rng.randrange(len(sound))] ^= 1 << rng.randrange(8)
            else:
                del damaged[rng.randrange(len(sound)) :]
            path.write_bytes(damaged)
            assert run_state(folder).state == "corrupt"
            with pytest.raises(CorruptRecordError):
                StoredRun(folder).record()
        path.write_bytes(sound)
    assert run_state(folder).state == "done"


def fill(folder, cells) -> str:
    """Run the sweep where files cannot grow beyond 3 kB, less than a table; return its log."""
    reading, writing = os.pipe()

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, resource.RLIM_INFINITY))
        logging.basicConfig(stream=os.fdopen(writing, "w"), force=True)
        sweep(folder, cells)

    child = in_child(limited)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    assert finished(child) == 0
    return text


def test_a_full_disk_is_told_and_leaves_what_was_finished(tmp_path, uninterrupted):
    cells, expected = uninterrupted
    assert finished(in_child(lambda: sweep(tmp_path, cells[:1]))) == 0
    before = contents(tmp_path)
    assert "File too large" in fill(tmp_path, cells)
    assert {name: contents(tmp_path)[name] for name in before} == before
    first, *others = states(tmp_path, cells)
    assert first == "done"
    assert set(others) <= {"failed", "missing"}
    assert litter(tmp_path) == []
    check_resumed(tmp_path, cells, expected)
