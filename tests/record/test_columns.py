import pyarrow.parquet as pq

from attnsvm.cli.columns import columns_page, dictionary
from attnsvm.record import STATES
from attnsvm.record.columns import HISTORY_COLUMNS, RUN_COLUMNS, STAGES, TRIAL_COLUMNS
from attnsvm.record.folder import write
from attnsvm.svm import SvmStatus
from attnsvm.training import TrainingStatus
from tests.record.test_record import ORIGIN, a_record

COLUMNS = {item.name: item for item in TRIAL_COLUMNS}


def test_every_column_says_all_and_is_there_once_and_on_the_page():
    page = columns_page()
    for columns in dictionary().values():
        names = [item.name for item in columns]
        assert len(set(names)) == len(names)
        for item in columns:
            assert all((item.meaning, item.unit, item.range)), item
            assert item.stage in STAGES, item
            assert f"\n| `{item.name}` | " in page


def test_words_are_those_of_the_code():
    def words(name):
        return set(COLUMNS[name].allowed.words)

    assert words("training") == {str(item) for item in TrainingStatus}
    assert words("nuclear_status") == {str(item) for item in SvmStatus}
    (state,) = (item for item in RUN_COLUMNS if item.name == "state")
    assert state.allowed.words == tuple(STATES)


def test_a_file_says_meaning_and_unit_of_each_of_its_columns(tmp_path):
    write(tmp_path, [a_record()], ORIGIN)
    for name, columns in (("trials", TRIAL_COLUMNS), ("history", HISTORY_COLUMNS)):
        schema = pq.read_schema(tmp_path / f"{name}.parquet")
        assert schema.names == [item.name for item in columns]
        for item in columns:
            stored = schema.field(item.name).metadata
            assert stored[b"meaning"].decode() == item.meaning
            assert stored[b"unit"].decode() == item.unit
