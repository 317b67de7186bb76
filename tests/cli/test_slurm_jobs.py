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


def queues(monkeypatch, *answers):
    """Let the queue give these answers, one after the other."""
    left = list(answers)
    monkeypatch.setattr(jobs, "LOOK_S", 0.0)
    monkeypatch.setattr(jobs, "ASK_S", (0.0, 0.0))
    monkeypatch.setattr(jobs, "queue", lambda: left.pop(0))
    return left


def test_a_result_file_is_not_the_end_of_a_job_that_is_in_the_queue(paths, monkeypatch, caplog):
    paths.result_pickle.touch()
    pending, running = {"7": ("PENDING", "BeginTime")}, {"7": ("RUNNING", "None")}
    left = queues(monkeypatch, running, pending, None, pending, running, {"8": ("RUNNING", "")})
    waiting = {"7": paths}
    caplog.set_level("INFO")
    wait(waiting)
    assert (left, waiting) == ([], {})
    assert [r.getMessage() for r in caplog.records] == ["1 SLURM jobs pending (BeginTime)"]


def test_a_job_that_leaves_without_a_result_is_told(paths, monkeypatch, caplog):
    queues(monkeypatch, {"7": ("RUNNING", "None")}, {})
    wait({"7": paths})
    (told,) = caplog.records
    assert "SLURM job 7 left the queue without a result" in told.getMessage()


def test_a_new_result_makes_the_questions_frequent_for_a_minute(paths):
    results = {}
    assert not jobs._news({"7": paths}, results, 0.0)
    paths.result_pickle.touch()
    os.utime(paths.result_pickle, ns=(1, 1))
    assert jobs._news({"7": paths}, results, 10.0)
    assert jobs._news({"7": paths}, results, 69.0)
    assert not jobs._news({"7": paths}, results, 71.0)
    os.utime(paths.result_pickle, ns=(2, 2))  # the end of the second start
    assert jobs._news({"7": paths}, results, 500.0)


def test_a_note_tells_who_runs_which_cells(tmp_path):
    note(tmp_path, {"7_0": ["a", "b"], "7_1": ["c"]})
    note(tmp_path, {"9": ["d"]})
    note(tmp_path, {})
    assert noted(tmp_path, ["7_0", "7_1", "8", "9"]) == {
        "a": "7_0",
        "b": "7_0",
        "c": "7_1",
        "d": "9",
    }
    assert noted(tmp_path, ["7_1", "8"]) == {"c": "7_1"}  # the others are over
    assert noted(tmp_path, []) == {}


def test_an_odd_note_hides_no_other(tmp_path, caplog):
    note(tmp_path, {"7": ["a"]})
    (tmp_path / "8.json").write_text("{")
    os.mkfifo(tmp_path / "9.json")
    (tmp_path / "10.json").mkdir()
    assert noted(tmp_path, ["7", "8", "9", "10"]) == {"a": "7"}
    assert len(caplog.records) == 3
