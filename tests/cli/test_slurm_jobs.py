"""Following SLURM's jobs, with a queue that is made up; on a real SLURM: tests/slurm."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from hydra_plugins.attnsvm_launcher import jobs
from hydra_plugins.attnsvm_launcher.jobs import note, noted, wait


@pytest.fixture
def paths(tmp_path):
    return SimpleNamespace(result_pickle=tmp_path / "result", stderr=tmp_path / "err")


def waited(monkeypatch, caplog, paths, *answers):
    """Wait for job 7 while the queue gives these answers; return what was logged."""
    left, waiting = list(answers), {"7": paths}
    monkeypatch.setattr(jobs, "ASK_S", (0.0, 0.0))
    monkeypatch.setattr(jobs, "queue", lambda: left.pop(0))
    caplog.set_level("INFO")
    wait(waiting)
    assert (left, waiting) == ([], {})
    return [one.getMessage() for one in caplog.records]


def test_a_result_file_is_not_the_end_of_a_job_that_is_in_the_queue(paths, monkeypatch, caplog):
    paths.result_pickle.touch()
    pending, running = {"7": ("PENDING", "BeginTime")}, {"7": ("RUNNING", "None")}
    answers = (running, pending, None, pending, running, {"8": ("RUNNING", "")})
    logged = waited(monkeypatch, caplog, paths, *answers)
    assert logged == ["1 SLURM jobs pending (BeginTime)"]


def test_a_job_that_leaves_without_a_result_is_told(paths, monkeypatch, caplog):
    (logged,) = waited(monkeypatch, caplog, paths, {"7": ("RUNNING", "None")}, {})
    assert "SLURM job 7 left the queue without a result" in logged


def test_a_note_tells_who_runs_which_cells_and_an_odd_one_hides_no_other(tmp_path, caplog):
    for cells in ({"7_0": ["a", "b"], "7_1": ["c"]}, {"9": ["d"]}, {}):
        note(tmp_path, cells)
    ours = {"a": "7_0", "b": "7_0", "c": "7_1", "d": "9"}
    assert noted(tmp_path, ["7_0", "7_1", "8", "9"]) == ours
    assert noted(tmp_path, ["7_1", "8"]) == {"c": "7_1"}  # the others are over
    assert noted(tmp_path, []) == {}
    (tmp_path / "8.json").write_text("{")
    os.mkfifo(tmp_path / "10.json")
    (tmp_path / "11.json").mkdir()
    assert noted(tmp_path, ["8", "9", "10", "11"]) == {"d": "9"}
    assert len(caplog.records) == 3
