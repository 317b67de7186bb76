"""One odd record is named in one line, hides no other, hangs no command and ends none."""

import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsvm import record
from attnsvm.record import LOCK_FILE, RUN_FILE, TABLES, CorruptRecordError, run_state
from attnsvm.record.folder import read_record, read_tables
from attnsvm.record.state import NEW, complete
from attnsvm.sweeps.aggregate import load
from tests.record import odd as kit


@pytest.fixture
def odd(sweep):
    """The folder of the run that is to be made odd."""
    return sweep / next(iter(record.read_plan(sweep).runs))


def reason_of(folder: Path) -> str:
    """Return why a record is refused: its state, or the error of what reads its tables."""
    with kit.deadline():
        content = run_state(folder)
        reason = content.reason
        if content.finished:
            with pytest.raises(CorruptRecordError) as refused:
                read_record(folder)
            reason = record.shortened(refused.value)
        else:
            assert content.state in ("corrupt", "other_version")
    assert 0 < len(reason) <= 503
    assert reason.isprintable()
    return reason


OLDER = {"checksum", "columns", "format", "numbers"}
"""Fields of a `run.json` that older ones lack."""


def test_a_run_json_that_is_none_lacks_a_field_or_has_one_of_another_version(odd):
    run = record.read_json(odd / RUN_FILE)
    lacking = {name: {k: v for k, v in run.items() if k != name} for name in run.keys() - OLDER}
    fields = {"config/head/lam": 0.1, "config/speed": 1, "options/kernel": "w"}
    raw = {what: (content, "") for what, content in kit.RAW.items()}
    raw |= {name: (kit.with_checksum(run), f"{name}: missing") for name, run in lacking.items()}
    for name, value in fields.items():
        words = f"{name.replace('/', '.')}: unknown field, made by another version of attnsvm"
        raw[name] = kit.with_checksum(kit.with_field(run, name, value)), words
    run["config"].pop("loss")
    raw["config/loss"] = kit.with_checksum(run), "made by another version"
    for what, (content, words) in raw.items():
        (odd / RUN_FILE).write_bytes(content)
        assert words in reason_of(odd), what


@pytest.mark.parametrize("name", [RUN_FILE, *TABLES])
def test_an_absurd_size_or_something_else_in_the_place_of_a_file(name, odd):
    content = (odd / name).read_bytes()
    os.truncate(odd / name, 2**40)  # sparse
    assert "bytes; must have at most" in reason_of(odd)
    for kind in kit.PLACED:
        (odd / name).write_bytes(content)
        kit.place(odd / name, kind)
        assert "must be a file" in reason_of(odd)
        kit.remove(odd / name)


@pytest.mark.parametrize("kind", kit.PLACED)
def test_something_else_in_the_place_of_folder_log_or_lock(kind, odd, tmp_path):
    (odd / RUN_FILE).unlink()
    for name in ("attnsvm.log", LOCK_FILE):
        kit.place(odd / name, kind)
        assert f"{name}: is a" in reason_of(odd)
        kit.remove(odd / name)
    os.rename(odd, tmp_path / "away")
    if kind == "folder":
        odd.write_text("mine")
    else:
        kit.place(odd, kind)
    assert "must be a folder" in reason_of(odd)


def test_more_rows_than_there_is_memory(odd):
    rows = pq.read_table(odd / TABLES[0]).take(pa.array([0] * 10**5))
    kit.replace_file(odd, TABLES[0], kit.parquet(rows))
    with pytest.raises(record.TooLargeError, match="of memory; must be at most"):
        read_tables(odd, record.read_run(odd), 2**21)


TABLES_OF_ANOTHER_FORM = {
    "column missing": (lambda t: t.drop_columns([t.column_names[-1]]), "another version"),
    "column unknown": (lambda t: t.append_column("mine", t["seed"]), "another version"),
    "words": (lambda t: t.set_column(0, "seed", pa.array(["a"] * len(t))), "column seed is"),
}


@pytest.mark.parametrize("name", TABLES[:2])
@pytest.mark.parametrize("form", TABLES_OF_ANOTHER_FORM)
def test_tables_of_another_form(name, form, odd):
    edit, words = TABLES_OF_ANOTHER_FORM[form]
    kit.replace_file(odd, name, kit.parquet(edit(pq.read_table(odd / name))))
    assert words in reason_of(odd)


def test_other_rows_than_counted_and_more_than_there_is_memory(odd):
    trials = pq.read_table(odd / TABLES[0])
    kit.replace_file(odd, TABLES[0], kit.parquet(pa.concat_tables([trials, trials])))
    assert reason_of(odd).endswith("has 6 rows; must have drawn=3")
    rows = kit.parquet(trials.take(pa.array([0] * 10**5)))
    kit.replace_file(odd, TABLES[0], rows)
    with pytest.raises(record.TooLargeError, match="of memory; must be at most"):
        read_tables(odd, record.read_run(odd), 2**21)


def test_a_table_too_large_for_this_machine_is_not_corrupt(sweep, monkeypatch):
    monkeypatch.setattr(record, "usable_memory", lambda: 200)
    runs = load(sweep).incomplete
    assert set(runs["state"]) == {"too_large"}
    assert all(re.search(r"has \d+ bytes; must have at most 100$", why) for why in runs["reason"])


@pytest.mark.parametrize("content", kit.ODD_ARRAYS)
def test_arrays_that_the_file_does_not_hold(content, odd):
    kit.replace_file(odd, TABLES[2], kit.ODD_ARRAYS[content])
    with kit.deadline(), pytest.raises(CorruptRecordError, match=r"solutions\.npz: "):
        read_record(odd)


NEW_RECORDS = {
    "empty": lambda new: (new / RUN_FILE).write_text("{}"),
    "of a failed run": lambda new: (new / RUN_FILE).write_bytes(
        kit.with_checksum({**record.read_json(new.parent / RUN_FILE), **FAILED})
    ),
    "torn": lambda new: (
        (new / TABLES[0]).write_bytes(b"PAR1"),
        (new / RUN_FILE).write_bytes((new.parent / RUN_FILE).read_bytes()),
    ),
}
FAILED = {"state": "failed", "reason": "", "place": "", "traceback": ""}


@pytest.mark.parametrize("kind", NEW_RECORDS)
def test_a_new_record_that_is_not_whole_replaces_none(kind, odd):
    before = {path.name: path.read_bytes() for path in odd.iterdir()}
    (odd / NEW).mkdir()
    NEW_RECORDS[kind](odd / NEW)
    complete(odd)
    assert {path.name: path.read_bytes() for path in odd.iterdir()} == before
