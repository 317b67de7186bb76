"""One odd record is named in one line, hides no other, hangs no command and ends none."""

from __future__ import annotations

import os

import pytest

from attnsvm import record
from attnsvm.record import LOCK_FILE, RUN_FILE, TABLES, CorruptRecordError
from sweeps import status
from sweeps.aggregate import load
from sweeps.report import command as report
from tests.record.odd import (
    ODD_ARRAYS,
    ODD_FIELDS,
    ODD_HISTORY,
    ODD_TRIALS,
    OTHER_VERSIONS,
    PLACED,
    RAW,
    REMOVED,
    copied,
    deadline,
    lines_of,
    npz,
    parquet,
    place,
    replace_file,
    sound_sweep,
    with_checksum,
    with_field,
)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd") / "sweep"
    sound_sweep(folder)
    return folder


@pytest.fixture
def sweep(original, tmp_path):
    return copied(original, tmp_path / "sweep")


@pytest.fixture
def odd(sweep):
    """The folder of the run that is to be made odd."""
    return sweep / next(iter(record.planned(sweep)))


def shown(value):
    return "removed" if value is REMOVED else repr(value)[:40]


def check_told(sweep, odd, capsys, by_status=True):
    """The commands name the odd run in one line and tell of the others; return that line."""
    with deadline():
        frames = load(sweep)
    states = dict(zip(frames.runs["run"], frames.runs["state"], strict=True))
    assert states.pop(odd.name) == "corrupt"
    assert set(states.values()) == {"done"}
    assert frames.trials["run"].nunique() == len(states)
    code, lines = lines_of(status.main, sweep, capsys)
    if by_status:
        assert code == 1
        assert len([line for line in lines if odd.name in line]) == 1
        assert lines[-1].startswith("3 runs: 2 done, 1 corrupt")
    (reason,) = frames.incomplete["reason"]
    assert 0 < len(reason) <= 503
    assert reason.isprintable()
    return reason


@pytest.mark.parametrize(("name", "value"), ODD_FIELDS, ids=shown)
def test_a_field_of_another_type(name, value, sweep, odd, capsys):
    run = record.read_json(odd / RUN_FILE)
    (odd / RUN_FILE).write_bytes(with_checksum(with_field(run, name, value)))
    reason = check_told(sweep, odd, capsys)
    assert "another version" not in reason or name.startswith("config")


FIELDS = (
    "state signature config options sweep question device overrides version git_revision code "
    "packages python hardware slurm started_s wanted drawn accepted statuses timings_s files"
)


@pytest.mark.parametrize("name", FIELDS.split())
def test_a_field_that_is_missing(name, sweep, odd, capsys):
    run = record.read_json(odd / RUN_FILE)
    del run[name]
    record.write_json(odd / RUN_FILE, run)
    assert f"{name}: missing" in check_told(sweep, odd, capsys)


@pytest.mark.parametrize("name", ["reason", "place", "traceback"])
def test_a_failure_without_a_reason(name, sweep, odd, capsys):
    origin = record.read_json(odd / RUN_FILE)
    record.write_failure(odd, origin, ValueError("why"))
    assert status.states(sweep)[odd.name].state == "failed"
    run = record.read_json(odd / RUN_FILE)
    for changed in ({**run, name: 3}, {k: v for k, v in run.items() if k != name}):
        record.write_json(odd / RUN_FILE, changed)
        assert f"{name}" in check_told(sweep, odd, capsys)


@pytest.mark.parametrize(("name", "value"), OTHER_VERSIONS, ids=shown)
def test_a_config_of_another_version(name, value, sweep, odd, capsys):
    run = record.read_json(odd / RUN_FILE)
    record.write_json(odd / RUN_FILE, with_field(run, name, value))
    reason = check_told(sweep, odd, capsys)
    assert reason.endswith("made by another version of attnsvm")
    assert name.replace("/", ".") in reason


@pytest.mark.parametrize("content", RAW.values(), ids=RAW)
def test_a_run_json_that_is_none(content, sweep, odd, capsys):
    (odd / RUN_FILE).write_bytes(content)
    check_told(sweep, odd, capsys)


@pytest.mark.parametrize("name", [RUN_FILE, *TABLES])
def test_a_file_of_absurd_size_is_not_read(name, sweep, odd, capsys):
    os.truncate(odd / name, 2**40)  # sparse
    assert "bytes; must have at most" in check_told(sweep, odd, capsys)


@pytest.mark.parametrize("kind", PLACED)
@pytest.mark.parametrize("name", [RUN_FILE, *TABLES])
def test_something_else_in_the_place_of_a_file(name, kind, sweep, odd, capsys):
    place(odd / name, kind)
    assert "must be a file" in check_told(sweep, odd, capsys)


@pytest.mark.parametrize("kind", PLACED)
def test_something_else_in_the_place_of_the_lock(kind, sweep, odd, capsys):
    place(odd / LOCK_FILE, kind)
    assert lines_of(status.main, sweep, capsys) == (0, ["3 runs: 3 done"])
    (odd / RUN_FILE).unlink()
    assert ".lock: is a" in check_told(sweep, odd, capsys)


LOCKS = [
    '{"host": "a", "pid": 1, "slurm_job": "", "started_s": 1e400}',
    f'{{"host": "a", "pid": 1, "slurm_job": "", "started_s": {10**400}}}',
    '{"host": "a", "pid": 1, "slurm_job": "", "started_s": NaN}',
    '{"host": "a", "pid": 1, "slurm_job": "", "started_s": -1e300}',
    '{"host": "a", "pid": 1, "slurm_job": "", "started_s": "yesterday"}',
    '{"host": "a", "pid": 1, "slurm_job": "", "started_s": 1e18}',
    '{"host": "a", "pid": "one", "slurm_job": "", "started_s": 0}',
    f'{{"host": "a", "pid": {10**400}, "slurm_job": "", "started_s": 0}}',
    '{"host": "\\u001b[2J", "pid": 1, "slurm_job": "", "started_s": 0}',
    '{"host": "a\\nb", "pid": 1, "slurm_job": "\\u202e", "started_s": 0}',
    '{"host": ["a"], "pid": 1, "slurm_job": {}, "started_s": 0}',
    '{"other": 1}', "null", "[]", "3", "[" * 100_000, "\x00\xff", "", "9" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("content", LOCKS, ids=lambda text: text[:60])
def test_the_owner_of_a_lock_as_nobody_writes_it(content, sweep, odd, capsys):
    (odd / RUN_FILE).unlink()
    (odd / LOCK_FILE).write_text(content)
    code, lines = lines_of(status.main, sweep, capsys)
    assert code == 1
    assert "gone without a record" in lines[0]
    assert "3 runs: 2 done, 1 lost" in lines[-1]
    assert load(sweep).runs["state"].tolist().count("lost") == 1


@pytest.mark.parametrize("table", ["trials", "history"])
def test_tables_of_another_form(table, original, tmp_path, capsys):
    edits = {"trials": ODD_TRIALS, "history": ODD_HISTORY}[table]
    for number, (what, edit) in enumerate(edits.items()):
        sweep = copied(original, tmp_path / str(number))
        odd = sweep / next(iter(record.planned(sweep)))
        found = record.read_tables(odd, record.read_run(odd))[table == "history"]
        replace_file(odd, f"{table}.parquet", parquet(edit(found)))
        reason = check_told(sweep, odd, capsys, by_status=False)
        assert f"{table}.parquet" in reason, what
        missing = what in ("column missing", "status missing", "column unknown", "no columns")
        assert ("another version" in reason) is missing, what
        with pytest.raises(CorruptRecordError):
            record.read(odd)


@pytest.mark.parametrize("content", ODD_ARRAYS.values(), ids=ODD_ARRAYS)
def test_arrays_that_the_file_does_not_hold(content, sweep, odd):
    replace_file(odd, "solutions.npz", content)
    with deadline(), pytest.raises(CorruptRecordError, match=r"solutions\.npz: ") as refused:
        record.read(odd)
    assert len(str(refused.value)) < 1000


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_twice(odd):
    one = ("W.npy", next(iter(ODD_ARRAYS.values())))
    replace_file(odd, "solutions.npz", npz(one, one))
    with pytest.raises(CorruptRecordError, match="twice"):
        record.read(odd)


def test_the_report_names_each_odd_run_and_shows_the_others(sweep, odd, capsys):
    run = record.read_json(odd / RUN_FILE)
    record.write_json(odd / RUN_FILE, with_field(run, "state", "\x1b[2J\nall is \u202ewell"))
    code, lines = lines_of(report.main, sweep, capsys)
    assert code == 1
    assert len([line for line in lines if line.startswith(f"corrupt: {odd.name}: ")]) == 1
    assert lines[-1].startswith("report   ")
    page = (sweep / "report.html").read_text()
    assert "2 of 3" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
