from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsvm import record
from attnsvm.cli.columns import columns_page, columns_text, dictionary
from attnsvm.record import STATES, Column
from attnsvm.record.column import STAGES
from attnsvm.record.columns import (
    HISTORY_COLUMNS,
    QUANTITIES,
    RUN_COLUMNS,
    TRIAL_COLUMNS,
    multi_columns,
    norm_columns,
    svmeq_quantities,
)
from attnsvm.record.files import CorruptRecordError, sha256
from attnsvm.record.run import read_run
from attnsvm.svm import SvmStatus
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.cells import SCHEMA
from attnsvm.training import TrainingStatus
from tests.record.test_record import ORIGIN, a_record
from tests.verify.kinds import made

ROOT = Path(__file__).parents[2]
COLUMNS = {one.name: one for one in TRIAL_COLUMNS}


def outside(values: pd.Series, column: Column) -> list[object]:
    """Return the values, besides missing and infinite ones, that a column must not have."""
    found = [value for value in values.dropna() if value not in ("", np.inf, -np.inf)]
    found = [value.item() if isinstance(value, np.generic) else value for value in found]
    return [v for v in found if column.allowed is not None and not column.allowed.holds(v)]


def test_every_column_says_all_and_is_there_once():
    for columns in dictionary().values():
        names = [one.name for one in columns]
        assert len(set(names)) == len(names)
        for one in columns:
            assert one.meaning, one
            assert one.unit, one
            assert one.range, one
            assert one.stage in STAGES, one


def test_the_page_is_the_dictionary():
    assert (ROOT / "docs/columns.md").read_text() == columns_page()
    for columns in dictionary().values():
        for one in columns:
            assert f"\n| `{one.name}` | " in columns_page()
            assert f"\n  {one.name}  {one.meaning} (" in columns_text()


def test_further_norms_are_listed_as_patterns():
    headings = [heading for heading in dictionary() if "further norm" in heading]
    trials, quantities = (dictionary()[heading] for heading in headings)
    names = [one.name.replace("<norm>", "max") for one in trials]
    assert names == [one.name for one in norm_columns(["max"])]
    assert [one.name for one in quantities] == ["one_minus_corr_<norm>", "margin_gap_<norm>"]
    assert "perhaps not the only" in quantities[0].meaning


FURTHER = ("published", "kq_low_rank", "path", "unsaturated", "diverged", "stalled",
           "no_constraint", "wide_gap", "until_accepted")  # fmt: skip
KINDS = ["top", "multi", *(pytest.param(kind, marks=pytest.mark.full) for kind in FURTHER)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_values_of_a_run_are_those_that_the_dictionary_allows(kind):
    config, found = made(kind, Path())
    tokens, norms = config.selection.tokens, config.svm.norms
    columns = COLUMNS | {one.name: one for one in multi_columns(tokens, norms)}
    assert list(found.trials) == list(columns)
    assert {one.name for one in HISTORY_COLUMNS} == set(found.history)
    for name, one in columns.items():
        assert outside(found.trials[name], one) == [], name
    further = [one for norm in norms for one in svmeq_quantities(norm)]
    quantities = {one.name: one for one in (*QUANTITIES, *further)}
    assert set(found.history["quantity"]) <= set(quantities)
    for name, part in found.history.groupby("quantity"):
        assert outside(part["value"], quantities[name]) == [], name
    assert set(found.timings) <= {one.name.removesuffix("_s") for one in RUN_COLUMNS}


def test_every_quantity_is_recorded_by_some_run():
    kinds = ("top", "multi")
    found = {name for kind in kinds for name in made(kind, Path())[1].history["quantity"]}
    assert found == {one.name for one in (*QUANTITIES, *svmeq_quantities("nuclear"))}


def test_words_are_those_of_the_code():
    def words(name):
        return set(COLUMNS[name].allowed.words)

    assert words("training") == {str(one) for one in TrainingStatus}
    assert words("nuclear_status") == {str(one) for one in SvmStatus}
    (state,) = (one for one in RUN_COLUMNS if one.name == "state")
    assert state.allowed.words == tuple(STATES)


def test_the_runs_of_a_folder_have_the_columns_of_the_dictionary_and_the_config():
    runs = load(ROOT / "docs/records/rank_vs_d").runs
    measured = [one.name for one in RUN_COLUMNS]
    unused = {"train_s", "compare_s", "probe_s"}  # nothing is trained there
    assert set(measured) - set(runs) == unused
    fields = {name.rpartition(".")[2] for name in SCHEMA} | {"seed"}
    assert set(runs) - set(measured) <= fields


# --- in the files ---------------------------------------------------------------------------------


def test_a_file_says_meaning_and_unit_of_each_of_its_columns(tmp_path):
    record.write(tmp_path, [a_record()], ORIGIN)
    for name, columns in (("trials", TRIAL_COLUMNS), ("history", HISTORY_COLUMNS)):
        schema = pq.read_schema(tmp_path / f"{name}.parquet")
        assert schema.names == [one.name for one in columns]
        for one in columns:
            stored = schema.field(one.name).metadata
            assert stored[b"meaning"].decode() == one.meaning
            assert stored[b"unit"].decode() == one.unit


def rewritten(folder: Path, change) -> dict[str, Any]:
    """Write the table of instances again, and return what `run.json` then has to say."""
    path = folder / "trials.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    run = read_run(folder)
    return run | {"files": run["files"] | {path.name: sha256(path.read_bytes())}}


def with_metadata(table: pa.Table) -> pa.Table:
    lie = {"unit": "a lie", "\x1b[2J": "x" * 10**6}
    fields = [field.with_metadata(lie) for field in table.schema]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields, {"pandas": "not json"}))


def test_what_a_file_says_of_itself_is_not_read(tmp_path):
    record.write(tmp_path, [a_record()], ORIGIN)
    run = rewritten(tmp_path, with_metadata)
    trials, _ = record.read_tables(tmp_path, run)
    assert all(field.metadata is None for field in trials.schema)
    pd.testing.assert_frame_equal(trials.to_pandas(), a_record().trials)


def test_a_compact_record_says_the_same_without_texts_and_survives_an_error(tmp_path, monkeypatch):
    record.write(tmp_path, [a_record()], ORIGIN)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def interrupted(table, *_, **__):
        if "quantity" in table.schema.names:
            raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(pq, "write_table", interrupted)
        with pytest.raises(OSError, match="no space"):
            record.compact(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    record.compact(tmp_path)
    found, _ = record.read(tmp_path)
    pd.testing.assert_frame_equal(found.trials, a_record().trials)
    pd.testing.assert_frame_equal(found.history, a_record().history)
    assert (tmp_path / "trials.parquet").stat().st_size < len(before["trials.parquet"]) / 4


def test_a_column_that_nobody_declared_is_refused(tmp_path):
    record.write(tmp_path, [a_record()], ORIGIN)
    run = rewritten(tmp_path, lambda table: table.append_column("mine", [[1.0, 2.0, 3.0]]))
    with pytest.raises(CorruptRecordError, match="column mine unknown"):
        record.read_tables(tmp_path, run)
