"""A record is read as it was written, says what its columns mean, and is packed as one file."""

import subprocess
from dataclasses import replace
from pathlib import Path
from shutil import which

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from attnsvm import record
from attnsvm.cli.columns import columns_page, dictionary
from attnsvm.record import CorruptRecordError, archive, provenance
from attnsvm.record import columns as declared
from attnsvm.record import folder as stream
from attnsvm.record.folder import write
from attnsvm.record.run import RUN_FILE, TABLES
from attnsvm.record.schema import RunRecord, trial_table
from attnsvm.record.stored import StoredRun
from attnsvm.svm import SvmStatus
from attnsvm.training import TrainingStatus
from tests.config.test_config import composed
from tests.faults import cut

ORIGIN = provenance.provenance(composed("data.n=2", "data.T=2", "data.d=4", "trials=3"), [])


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


def test_every_column_says_all_and_is_there_once_and_on_the_page():
    page = columns_page()
    for columns in dictionary().values():
        names = [item.name for item in columns]
        assert len(set(names)) == len(names)
        for item in columns:
            assert all((item.meaning, item.unit, item.range)), item
            assert item.stage in declared.STAGES, item
            assert f"\n| `{item.name}` | " in page


def test_words_are_those_of_the_code():
    for name, statuses in (("training", TrainingStatus), ("nuclear_status", SvmStatus)):
        assert {*declared.WORDS[name]} == {*map(str, statuses)}
    (state,) = (item for item in declared.RUN_COLUMNS if item.name == "state")
    assert state.allowed.words == tuple(record.STATES)


def test_a_file_says_meaning_and_unit_of_each_of_its_columns(tmp_path):
    write(tmp_path, [a_record()], ORIGIN)
    for name, columns in (
        ("trials", declared.TRIAL_COLUMNS),
        ("history", declared.HISTORY_COLUMNS),
    ):
        schema = pq.read_schema(tmp_path / f"{name}.parquet")
        assert schema.names == [item.name for item in columns]
        for item in columns:
            stored = schema.field(item.name).metadata
            assert stored[b"meaning"].decode() == item.meaning
            assert stored[b"unit"].decode() == item.unit


FILES = {
    "sweep/sweep.json": b"{}",
    "sweep/run/run.json": b"{1}",
    "sweep/run/solutions.npz": b"\0\1" * 500,
}


def files_below(folder: Path) -> dict[str, bytes]:
    content = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder.parent).as_posix(): path.read_bytes() for path in content}


def test_a_record_is_packed_without_logs_and_comes_back_equal_if_it_is_not_too_large(
    tmp_path, monkeypatch
):
    others = {"sweep/run/log.txt": b"?", "sweep/run/.hydra/x.json": b"?"}
    for name, content in {**FILES, **others}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "sweep/elsewhere.json").symlink_to(__file__)
    path = archive.pack(tmp_path / "sweep", tmp_path)
    first = path.read_bytes()
    with archive.unpacked(path) as folder:
        assert files_below(folder) == FILES
    assert not folder.exists()
    assert archive.pack(tmp_path / "sweep", tmp_path).read_bytes() == first
    for most, value in (("MOST_FILES", 2), ("MOST_BYTES", 1000)):
        with monkeypatch.context() as patched:
            patched.setattr(archive, most, value)
            with pytest.raises(CorruptRecordError, match="files of"):
                archive.unpacked(path).__enter__()


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_archive_is_refused(content, tmp_path):
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(CorruptRecordError, match="must be a zip archive"):
        archive.unpacked(tmp_path / "a.zip").__enter__()


def test_the_revision_is_the_commit_or_none(tmp_path, monkeypatch):
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    which("git") or pytest.skip("git is not installed")
    revision = provenance.git_revision.__wrapped__  # a process reads it once
    (inside := tmp_path / "package").mkdir()
    assert revision(inside) is None
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "-m", "first", "--no-gpg-sign")
    assert revision(inside) == git("rev-parse", "HEAD").strip()
    monkeypatch.setenv("PATH", str(inside))
    assert revision(inside) is None  # git is not installed
