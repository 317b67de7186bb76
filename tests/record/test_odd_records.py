"""One odd record is named in one line, hides no other, hangs no command and ends none."""

from __future__ import annotations

import io
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsvm import record
from attnsvm.record import LOCK_FILE, RUN_FILE, TABLES, CorruptRecordError
from attnsvm.sweeps import aggregate, status
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.report import command as report
from tests.record.odd import (
    ODD_ARRAYS,
    ODD_FIELDS,
    ODD_HISTORY,
    ODD_TRIALS,
    ODD_WORDS,
    OTHER_VERSIONS,
    PLACED,
    RAW,
    REMOVED,
    copied,
    deadline,
    lines_of,
    many,
    npz,
    of_words,
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


@pytest.mark.parametrize("kind", [*PLACED, "file"])
def test_something_else_in_the_place_of_the_folder(kind, sweep, odd, capsys):
    os.rename(odd, sweep.parent / "away")
    if kind == "file":
        odd.write_text("mine")
    elif "folder" not in kind:
        place(odd, kind)
    else:
        odd.symlink_to(sweep.parent / "away")
    assert "must be a folder" in check_told(sweep, odd, capsys)


@pytest.mark.parametrize("kind", PLACED)
def test_something_else_in_the_place_of_a_file_of_hydra(kind, sweep, odd, capsys):
    (odd / RUN_FILE).unlink()
    place(odd / "attnsvm.log", kind)
    assert "attnsvm.log: is a" in check_told(sweep, odd, capsys)


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


WORDS = [("trials", "training"), ("trials", "frobenius_status"), ("history", "quantity")]


@pytest.mark.parametrize(("table", "column"), WORDS)
@pytest.mark.parametrize("word", ODD_WORDS.values(), ids=ODD_WORDS)
def test_words_that_cannot_be_printed(word, table, column, sweep, odd, capsys):
    found = record.read_tables(odd, record.read_run(odd))[table == "history"]
    replace_file(odd, f"{table}.parquet", parquet(of_words(column, word)(found)))
    assert f"{table}.parquet" in check_told(sweep, odd, capsys, by_status=False)
    assert lines_of(report.main, sweep, capsys)[0] == 1


def test_a_reason_is_any_text_of_utf8(sweep, odd, capsys):
    trials, _ = record.read_tables(odd, record.read_run(odd))
    replace_file(odd, "trials.parquet", parquet(of_words("reason", "\x1b[2J\nall " * 99)(trials)))
    assert load(sweep).incomplete.empty
    assert lines_of(report.main, sweep, capsys)[0] == 0
    replace_file(odd, "trials.parquet", parquet(of_words("reason", b"\xff")(trials)))
    assert "trials.parquet" in check_told(sweep, odd, capsys, by_status=False)


@pytest.mark.parametrize("table", ["trials", "history"])
def test_tables_that_need_more_memory_than_there_is(table, sweep, odd, capsys, monkeypatch):
    """Refused by their footer, which also gives the length of words: nothing is read before."""
    found = record.read_tables(odd, record.read_run(odd))[table == "history"]
    replace_file(odd, f"{table}.parquet", many(found, 100_000, 3))
    (odd / RUN_FILE).write_bytes(
        with_checksum(
            record.read_json(odd / RUN_FILE)
            | {"drawn": 300_000, "accepted": 300_000, "statuses": {"ok": 300_000}}
        )
        if table == "trials"
        else (odd / RUN_FILE).read_bytes()
    )
    monkeypatch.setattr(aggregate, "usable_memory", lambda: 2**20)
    assert "of memory; must be at most 512 KiB" in check_told(sweep, odd, capsys, by_status=False)


def test_more_rows_than_are_counted(sweep, odd, capsys):
    trials, _ = record.read_tables(odd, record.read_run(odd))
    replace_file(odd, "trials.parquet", many(trials, 100_000, 3))
    reason = check_told(sweep, odd, capsys, by_status=False)
    assert reason.endswith("has 300000 rows; must have drawn=3")


def test_a_long_word_in_many_rows(sweep, odd, capsys):
    """1 MB, stored once and named by 10^6 rows: 10^12 bytes."""
    _, history = record.read_tables(odd, record.read_run(odd))
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 10**6, pa.int32()), ["x" * 10**6])
    rows = history[:1].take(pa.array([0] * 10**6)).set_column(2, "quantity", words)
    sink = io.BytesIO()
    pq.write_table(rows, sink, store_schema=False)
    replace_file(odd, "history.parquet", sink.getvalue())
    assert (odd / "history.parquet").stat().st_size < 10**6
    reason = check_told(sweep, odd, capsys, by_status=False)
    assert "history.parquet: needs" in reason


def test_a_codec_that_no_record_has(sweep, odd, capsys):
    """The size of words is bounded by the ratio of the codec: zstd has none."""
    _, history = record.read_tables(odd, record.read_run(odd))
    replace_file(odd, "history.parquet", many(history, 10, 1, "zstd"))
    assert "ZSTD; must be SNAPPY" in check_told(sweep, odd, capsys, by_status=False)


def test_reports_of_tables_that_together_need_more_memory(sweep, odd, monkeypatch):
    """The runs that still fit are told."""
    tables = record.read_tables(odd, record.read_run(odd))
    held = sum(table.nbytes for table in tables)
    largest = max(path.stat().st_size for path in sweep.glob("*/*.parquet"))
    for fit in (1, 2):
        room = largest + held * (fit - 1) + held // 2
        monkeypatch.setattr(aggregate, "usable_memory", lambda room=room: 2 * room)
        frames = load(sweep)
        assert frames.runs["state"].tolist() == ["done"] * fit + ["corrupt"] * (3 - fit)
        assert len(frames.trials) == 3 * fit


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
