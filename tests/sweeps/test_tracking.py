"""Tracking: every run that is on record is logged once, without a network."""

from __future__ import annotations

import pytest

from tests.command import SMALL, attnsvm

mlflow = pytest.importorskip("mlflow")


def test_parameters_metrics_and_figures_are_logged_once(tmp_path):
    from mlflow.tracking import MlflowClient

    grid = ["-m", "hydra/callbacks=mlflow", "seed=0,10", "trials=2", *SMALL[1:]]
    for _ in range(2):
        done = attnsvm(*grid, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "UserWarning" not in done.stderr
    folder = tmp_path / "multirun/adhoc"
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("attnsvm").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    logged = [run for name, run in runs.items() if (folder / name / "run.json").exists()]
    assert len(logged) == 2
    assert {run.data.params["seed"] for run in logged} == {"0", "10"}
    assert all(run.data.metrics["drawn"] == 2 for run in logged)
    assert list((folder / "mlflow").rglob("adhoc.png"))
