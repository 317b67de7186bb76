from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from attnsvm.cli.columns import columns_page, columns_text, dictionary
from attnsvm.config import PROBES
from attnsvm.record import STATES
from attnsvm.record.columns import HISTORY_COLUMNS, RUN_COLUMNS, STAGES, TRIAL_COLUMNS
from attnsvm.record.folder import write
from attnsvm.record.stored import StoredRun
from attnsvm.svm import SvmStatus
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.cells import SCHEMA
from attnsvm.training import TrainingStatus
from tests.record.test_record import ORIGIN, a_record

ROOT = Path(__file__).parents[2]
COLUMNS = {item.name: item for item in TRIAL_COLUMNS}


def test_every_column_says_all_and_is_there_once_and_the_page_is_the_dictionary():
    page, text = columns_page(), columns_text()
    plugins = (ROOT / "docs/plugins.md").read_text()
    assert all(f"\n| `{name}` | `{name}_" in plugins for name in PROBES.own)
    for columns in dictionary().values():
        names = [item.name for item in columns]
        assert len(set(names)) == len(names)
        for item in columns:
            assert all((item.meaning, item.unit, item.range)), item
            assert item.stage in STAGES, item
            assert f"\n| `{item.name}` | " in page
            assert f"\n  {item.name}\n    {item.meaning.split()[0]}" in text


def test_words_are_those_of_the_code():
    def words(name):
        return set(COLUMNS[name].allowed.words)

    assert words("training") == {str(item) for item in TrainingStatus}
    assert words("nuclear_status") == {str(item) for item in SvmStatus}
    (state,) = (item for item in RUN_COLUMNS if item.name == "state")
    assert state.allowed.words == tuple(STATES)


def test_the_runs_of_a_folder_have_the_columns_of_the_dictionary_and_the_config():
    runs = load(ROOT / "docs/records/rank_vs_d").runs
    measured = [item.name for item in RUN_COLUMNS]
    unused = {"train_s", "compare_s", "probe_s"}  # nothing is trained there
    assert set(measured) - set(runs) == unused
    fields = {*SCHEMA, "seed"}
    assert set(runs) - set(measured) <= fields


def test_a_file_says_meaning_and_unit_of_each_of_its_columns_which_are_not_read(tmp_path):
    write(tmp_path, [a_record()], ORIGIN)
    for name, columns in (("trials", TRIAL_COLUMNS), ("history", HISTORY_COLUMNS)):
        schema = pq.read_schema(tmp_path / f"{name}.parquet")
        assert schema.names == [item.name for item in columns]
        for item in columns:
            stored = schema.field(item.name).metadata
            assert stored[b"meaning"].decode() == item.meaning
            assert stored[b"unit"].decode() == item.unit
    trials, _ = StoredRun(tmp_path).tables()
    assert all(field.metadata is None for field in trials.schema)
    pd.testing.assert_frame_equal(trials.to_pandas(), a_record().trials)
