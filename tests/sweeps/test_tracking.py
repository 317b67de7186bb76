"""Tracking: every run that is on record is logged once, without a network.

A double of MLflow's client takes the place of the package where that is not installed
(`make test-tracking` installs it); the package has every call of the double.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path

import pytest

from tests.command import SMALL, attnsvm

DOUBLE = Path(__file__).parent / "double"
MLFLOW = "mlflow"

needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec(MLFLOW) is None, reason="needs mlflow (make test-tracking)"
)
in_mlflow = pytest.mark.filterwarnings("ignore:.*noload:DeprecationWarning")


def client_class(path: list[str]):
    """Return `MlflowClient`, imported with `path` before all others."""
    names = [name for name in sys.modules if name.partition(".")[0] == MLFLOW]
    held = {name: sys.modules.pop(name) for name in names}
    sys.path[:0] = path
    try:
        return importlib.import_module("mlflow.tracking").MlflowClient
    finally:
        del sys.path[: len(path)]
        if path:
            sys.modules.pop("mlflow.tracking")
            sys.modules.pop(MLFLOW)
        sys.modules.update(held)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param([str(DOUBLE)], id="double"),
        pytest.param([], id="mlflow", marks=[needs_mlflow, in_mlflow]),
    ],
)
def test_parameters_metrics_and_figures_are_logged_once(path, tmp_path):
    found = os.pathsep.join([*path, *filter(None, [os.environ.get("PYTHONPATH")])])
    grid = ["-m", "hydra/callbacks=mlflow", "seed=0,10", "trials=2", *SMALL[1:]]
    for _ in range(2):
        done = attnsvm(*grid, cwd=tmp_path, env={**os.environ, "PYTHONPATH": found})
        assert done.returncode == 0, done.stderr
        assert "UserWarning" not in done.stderr
    folder = tmp_path / "multirun/latest"
    client = client_class(path)(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("attnsvm").experiment_id
    runs, token = [], None
    while not runs or token:
        page = client.search_runs([experiment], page_token=token)
        runs, token = [*runs, *page], page.token
    logged = [run for run in runs if (folder / run.info.run_name / "run.json").exists()]
    assert len(logged) == 2
    assert {run.data.params["seed"] for run in logged} == {"0", "10"}
    assert {run.data.params["optimizer"] for run in logged} == {"normalized_gd"}
    assert all(run.data.metrics["drawn"] == 2 for run in logged)
    assert all("median_risk" in run.data.metrics for run in logged)
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert list((folder / "mlflow").rglob("adhoc.png"))


@needs_mlflow
def test_the_package_has_every_call_of_the_double():
    double, package = client_class([str(DOUBLE)]), client_class([])
    for name, call in inspect.getmembers(double, inspect.isfunction):
        if not name.startswith("_") or name == "__init__":
            known = inspect.signature(getattr(package, name)).parameters
            assert set(inspect.signature(call).parameters) <= set(known), name
