"""One odd record is named in one line, hides no other, hangs no command and ends none."""

import hashlib
import io
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsvm import record
from attnsvm.record import LOCK_FILE, RUN_FILE, TABLES, CorruptRecordError, run_state, state
from attnsvm.record.folder import read_record, read_tables, write_failure
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.report import command as report
from tests.record import odd as kit


@pytest.fixture
def odd(sweep):
    """The folder of the run that is to be made odd."""
    return sweep / next(iter(record.read_plan(sweep).runs))


def reason_of(folder: Path) -> str:
    """Return why a record is refused: its state, or the error of what reads its tables."""
    with kit.deadline():
        found = run_state(folder)
        reason = found.reason
        if found.finished:
            with pytest.raises(CorruptRecordError) as refused:
                read_tables(folder, found.run, 2**30)
            reason = record.shortened(refused.value)
        else:
            assert found.state in ("corrupt", "other_version")
    assert 0 < len(reason) <= 503
    assert reason.isprintable()
    return reason


def check_refused(folder: Path, damages: dict[str, tuple[Callable[[], object], str]]) -> None:
    """Every damage alone is refused with a reason that has these words."""
    sound = {path: path.read_bytes() for path in folder.iterdir()}
    for what, (damage, words) in damages.items():
        damage()
        assert words in reason_of(folder), what
        for path, content in sound.items():
            path.write_bytes(content)


OF_FORMATS = ("checksum", "columns", "format", "numbers")
"""Fields of a `run.json` that older ones lack."""


def test_fields_of_another_type_version_or_missing(odd):
    run = record.read_json(odd / RUN_FILE)

    def rewritten(name, value):
        content = kit.with_checksum(kit.with_field(run, name, value))
        return lambda: (odd / RUN_FILE).write_bytes(content)

    damages = {
        f"{name}={value!r}"[:60]: (rewritten(name, value), "") for name, value in kit.ODD_FIELDS
    }
    damages |= {f"{name} missing": (rewritten(name, kit.REMOVED), f"{name}: missing")
                for name in run if name not in OF_FORMATS}  # fmt: skip
    for name, value in kit.OTHER_VERSIONS:
        what = "missing" if value is kit.REMOVED else "unknown field"
        told = f"{name.replace('/', '.')}: {what}, made by another version of attnsvm"
        damages[name] = rewritten(name, value), told
    damages |= {what: (lambda raw=raw: (odd / RUN_FILE).write_bytes(raw), "")
                for what, raw in kit.RAW.items()}  # fmt: skip
    assert len(damages) > 80
    check_refused(odd, damages)


def test_a_failure_without_a_reason(odd):
    write_failure(odd, record.read_json(odd / RUN_FILE), ValueError("why"))
    assert run_state(odd).state == "failed"
    run = record.read_json(odd / RUN_FILE)
    for name, value in itertools.product(("reason", "place", "traceback"), (3, kit.REMOVED)):
        (odd / RUN_FILE).write_bytes(kit.with_checksum(kit.with_field(run, name, value)))
        assert name in reason_of(odd)


@pytest.mark.parametrize("name", [RUN_FILE, *TABLES])
def test_an_absurd_size_or_something_else_in_the_place_of_a_file(name, odd, monkeypatch):
    """A gigabyte of zeros is refused before it is read."""
    content = (odd / name).read_bytes()
    os.truncate(odd / name, 2**40)  # sparse
    assert "bytes; must have at most" in reason_of(odd)
    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", None)
        patched.setattr(state, "TABLES", (name,))
        (odd / name).write_bytes(b"")
        os.truncate(odd / name, 2**30)
        assert f"{name}: has 1073741824 bytes" in reason_of(odd)
    for kind in kit.PLACED:
        (odd / name).write_bytes(content)
        kit.place(odd / name, kind)
        assert "must be a file" in reason_of(odd)
        kit.remove(odd / name)


@pytest.mark.parametrize("kind", [*kit.PLACED, "file"])
def test_something_else_in_the_place_of_folder_log_or_lock(kind, odd, tmp_path):
    (odd / RUN_FILE).unlink()
    for name, words in (("attnsvm.log", "attnsvm.log: is a"), (LOCK_FILE, ".lock: is a")):
        if kind != "file":
            kit.place(odd / name, kind)
            assert words in reason_of(odd)
            kit.remove(odd / name)
    os.rename(odd, tmp_path / "away")
    if kind == "file":
        odd.write_text("mine")
    elif "folder" not in kind:
        kit.place(odd, kind)
    else:
        odd.symlink_to(tmp_path / "away")
    assert "must be a folder" in reason_of(odd)


LOCKS = ["process \x1b[2J", "process 1\non a", "process \u202e", "{}", "[" * 600, "\x00\xff", ""]


@pytest.mark.parametrize("content", LOCKS, ids=lambda text: ascii(text[:20]))
def test_the_owner_of_a_lock_as_nobody_writes_it(content, odd):
    (odd / RUN_FILE).unlink()
    (odd / LOCK_FILE).write_text(content)
    with kit.deadline():
        found = run_state(odd)
    assert (found.state, found.reason) == ("lost", "an unknown process: gone without a record")


BY_VERSION = ("column missing", "status missing", "column unknown", "no columns")


@pytest.mark.parametrize(
    ("table", "edits"), [("trials", kit.ODD_TRIALS), ("history", kit.ODD_HISTORY)]
)
def test_tables_of_another_form(table, edits, odd):
    found = read_tables(odd, record.read_run(odd))[table == "history"]
    name = f"{table}.parquet"
    words = {"trials": ("training", "frobenius_status"), "history": ("quantity",)}[table]
    edits = edits | {
        f"{column} {what}": kit.of_words(column, word)
        for column in words
        for what, word in kit.ODD_WORDS.items()
    }

    def edited(edit: kit.Edit) -> Callable[[], object]:
        content = kit.parquet(edit(found))
        return lambda: kit.replace_file(odd, name, content)

    version = {what: "another version" if what in BY_VERSION else name for what in edits}
    check_refused(odd, {what: (edited(edit), version[what]) for what, edit in edits.items()})


def test_a_reason_is_any_text_of_utf8(sweep, odd, capsys):
    trials, _ = read_tables(odd, record.read_run(odd))
    long = kit.of_words("reason", "\x1b[2J\nall " * 99)(trials)
    kit.replace_file(odd, "trials.parquet", kit.parquet(long))
    assert load(sweep).incomplete.empty
    assert kit.lines_of(report.main, sweep, capsys)[0] == 0
    kit.replace_file(odd, "trials.parquet", kit.parquet(kit.of_words("reason", b"\xff")(trials)))
    assert "trials.parquet" in reason_of(odd)


def test_small_files_of_large_tables(odd):
    """Refused by their footer, and by the length of words: 1 MB, named by 10^6 rows, is 10^12 B."""
    trials, _ = read_tables(odd, record.read_run(odd))
    kit.replace_file(odd, "trials.parquet", kit.many(trials, 100_000, 3))
    assert reason_of(odd).endswith("has 300000 rows; must have drawn=3")
    run = record.read_json(odd / RUN_FILE)
    counts = {"drawn": 300_000, "accepted": 300_000, "statuses": {"ok": 300_000}}
    with pytest.raises(record.TooLargeError, match="of memory; must be at most 1 MiB"):
        read_tables(odd, run | counts, 2**20)


def test_a_table_too_large_for_this_machine_is_not_corrupt(sweep, monkeypatch):
    monkeypatch.setattr(record, "usable_memory", lambda: 200)
    runs = load(sweep).incomplete
    assert set(runs["state"]) == {"too_large"}
    assert all(re.search(r"has \d+ bytes; must have at most 100$", why) for why in runs["reason"])


def test_a_long_word_in_many_rows_and_a_codec_that_no_record_has(odd):
    _, history = read_tables(odd, record.read_run(odd))
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 10**6, pa.int32()), ["x" * 10**6])
    rows = history[:1].take(pa.array([0] * 10**6)).set_column(2, "quantity", words)
    sink = io.BytesIO()
    pq.write_table(rows, sink, store_schema=False)
    kit.replace_file(odd, "history.parquet", sink.getvalue())
    assert (odd / "history.parquet").stat().st_size < 10**6
    assert "history.parquet: needs" in reason_of(odd)
    kit.replace_file(odd, "history.parquet", kit.many(history, 10, 1, "zstd"))
    assert "ZSTD; must be SNAPPY" in reason_of(odd)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_arrays_that_the_file_does_not_hold(odd):
    one = ("W.npy", next(iter(kit.ODD_ARRAYS.values())))
    for what, content in {**kit.ODD_ARRAYS, "twice": kit.npz(one, one)}.items():
        kit.replace_file(odd, "solutions.npz", content)
        with kit.deadline(), pytest.raises(CorruptRecordError) as refused:
            read_record(odd)
        assert "solutions.npz: " in str(refused.value), what
        assert len(str(refused.value)) < 1000, what
