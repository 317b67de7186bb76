from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from attnsvm import record
from attnsvm.record import folder as stream
from attnsvm.record.folder import write
from attnsvm.record.provenance import provenance
from attnsvm.record.run import RUN_FILE, TABLES
from attnsvm.record.schema import RunRecord, trial_table
from attnsvm.record.stored import StoredRun
from tests.config.test_config import composed
from tests.faults import cut

ORIGIN = provenance(composed("data.n=2", "data.T=2", "data.d=4", "trials=3"), [])


def a_record() -> RunRecord:
    rng = np.random.default_rng(0)
    trials = trial_table(
        [3, 4, 5],
        {
            "status": ["ok", "infeasible", "ok"],
            "frobenius_rank": [2, None, 3],
            "assumption_b1": [True, None, False],
        },
    )
    history = pd.DataFrame(
        {"seed": [3, 5], "step": [0, 0], "quantity": ["loss"] * 2, "value": [0.5, 0.25]}
    )
    W = rng.normal(size=(3, 4, 4))
    solutions = {"frobenius_W": W, "mask": np.ones((3, 2, 2), bool), "strided": W.swapaxes(1, 2)}
    solutions |= {"none": W[:, :0], "status": np.array(["solved", "infeasible", "solved"])}
    solutions["large"] = rng.normal(size=(3, 300, 300))
    return RunRecord(trials, history, solutions, timings={"svm": 0.1})


def test_what_is_read_is_what_was_written_in_files_of_the_usual_permissions(tmp_path):
    written = a_record()
    write(tmp_path, [written], ORIGIN)
    stored = StoredRun(tmp_path)
    got, run = stored.record(), stored.content
    pd.testing.assert_frame_equal(got.trials, written.trials)
    pd.testing.assert_frame_equal(got.history, written.history)
    assert got.solutions.keys() == written.solutions.keys()
    for name, array in written.solutions.items():
        np.testing.assert_array_equal(got.solutions[name], array, strict=True)
    assert (run["state"], run["drawn"], run["accepted"]) == ("done", 3, 2)
    assert record.run_state(tmp_path).state == "done"
    assert {path.name for path in tmp_path.iterdir()} == {RUN_FILE, *TABLES}
    (tmp_path / "plain").touch()
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_the_files_do_not_depend_on_how_the_record_is_cut(rows, tmp_path, monkeypatch):
    """Row groups smaller than, equal to and larger than a part, arrays in memory and on disk."""
    monkeypatch.setattr(stream, "ROW_GROUP", rows)
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 16 * rows)
    whole = a_record()
    parts = [cut(whole, slice(0, 1)), cut(whole, slice(1, 3))]
    for name, record_parts in (("whole", [whole]), ("parts", parts)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, record_parts, ORIGIN)
    for name in TABLES:
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    stored = StoredRun(tmp_path / "parts")
    pd.testing.assert_frame_equal(stored.record().trials, whole.trials)
    assert stored.content["drawn"] == 3
    assert pq.ParquetFile(tmp_path / "parts/trials.parquet").num_row_groups == -(-3 // rows)


def test_neither_pickles_nor_parts_of_another_shape_nor_unknown_columns_are_written(tmp_path):
    with pytest.raises(ValueError, match="unknown trial columns"):
        trial_table([0], {"frobenius_rnak": [1]})
    other = replace(a_record(), solutions={"mask": np.ones((3, 2, 1), bool)})
    with pytest.raises(ValueError, match="mask"):
        write(tmp_path, [a_record(), other], ORIGIN)
    objects = replace(a_record(), solutions={"o": np.array([{}], dtype=object)})
    with pytest.raises(ValueError, match="pickle"):
        write(tmp_path, [objects], ORIGIN)
    assert record.run_state(tmp_path).state != "done"
