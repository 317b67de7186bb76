"""Tracking: every run that is on record is logged once, without a network.

`make test-tracking` installs the packages; a test is skipped where its package is missing.
"""

import contextlib
import os
import sys

import pandas as pd
import pytest
from omegaconf import OmegaConf

from attnsvm.record import read_run
from attnsvm.sweeps import tracking
from tests.command import SMALL, ran
from tests.quick import quick

GRID = ("-m", "seed=0,10", "trials=2", *SMALL[1:4], "optimizer.steps=200", "optimizer.lr=0.5")


def expected_metrics(run):
    """Return the metrics of a run, and its curves over the steps, from its files alone."""
    content, trials = read_run(run), pd.read_parquet(run / "trials.parquet")
    accepted = trials[trials["status"] == "ok"].select_dtypes(["number", "bool", "boolean"])
    metrics = {name: content[name] for name in ("drawn", "accepted", "wanted")}
    metrics |= {f"count_{name}": count for name, count in trials["status"].value_counts().items()}
    medians = accepted.drop(columns="seed").median().dropna()
    metrics |= {f"median_{name}": value for name, value in medians.items()}
    history = pd.read_parquet(run / "history.parquet")
    history = history[history["seed"].isin(accepted["seed"])]
    values = history.pivot_table("value", "step", "quantity", aggfunc="median")
    curves = {step: row.dropna().to_dict() for step, row in values.iterrows()}
    return metrics | {"wall_s": sum(content["timings_s"].values())}, curves


class Fake:
    """A package for tracking that keeps what it is told: metrics by step, None for the summary."""

    def __init__(self):
        self.runs, self.points, self.summary = {}, {}, self

    def init(self, id=None, run_name=None, config=None, **options):
        self.points = {}
        self.runs[id or run_name] = ({} if config is None else config, self.points)
        return contextlib.nullcontext(self)

    start_run = init

    def log(self, values, step=None):
        self.points.setdefault(step, {}).update(values)

    update = log_metrics = log

    def log_params(self, fields):
        [*self.runs.values()][-1][0].update(fields)

    def search_runs(self, filter_string, **_):
        return [name for name in self.runs if f"= '{name}'" in filter_string]

    set_tracking_uri = set_experiment = search_runs


@pytest.mark.parametrize(
    ("package", "options"),
    [("Wandb", {"mode": "offline"}), ("Mlflow", {"uri": None, "experiment": "attnsvm"})],
)
def test_config_counts_medians_and_curves_are_logged_once(package, options, sound, monkeypatch):
    fake = Fake()
    monkeypatch.setitem(sys.modules, package.lower(), fake)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    tracker = getattr(tracking, package)(**options)
    for _ in range(2 if package == "Mlflow" else 1):  # of W&B the files tell what is logged
        tracker.on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(sound)}}}))
    assert fake.runs.keys() == runs_in(sound).keys()
    for name, (fields, points) in fake.runs.items():
        metrics, curves = expected_metrics(sound / name)
        whole = {} if package == "Mlflow" else points.pop(None)
        assert points.keys() | {0} == curves.keys() | {0}
        for step, values in points.items():
            for key, value in values.items():
                assert value == {**metrics, **curves.get(step, {})}[key.replace("-", "+")]
        assert {**whole, **points.get(0, {})}.keys() >= metrics.keys()
        assert fields["optimizer"] == "normalized_gd"
        assert fields["report"] == str(sound / "report.html")


def runs_in(folder):
    return {path.parent.name: path.parent for path in folder.glob("*/run.json")}


def logged_to_mlflow(folder):
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("attnsvm").experiment_id])
    assert {run.info.status for run in runs} == {"FINISHED"}
    return [run.info.run_name for run in runs]


def logged_to_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for run in (folder / "tensorboard").iterdir():
        events = EventAccumulator(str(run)).Reload()
        metrics, curves = expected_metrics(folder / run.name)
        assert {*events.Tags()["tensors"]} >= {*metrics}
        assert [event.step for event in events.Tensors("risk")] == [*curves]
    return [run.name for run in (folder / "tensorboard").iterdir()]


def logged_to_wandb(folder):
    return [path.name.split("-", 3)[-1] for path in (folder / "wandb").glob("offline-run-*")]


LOGGED = {
    "mlflow": logged_to_mlflow,
    "wandb": logged_to_wandb,
    "tensorboard": logged_to_tensorboard,
}


@pytest.mark.filterwarnings("ignore:.*noload:DeprecationWarning")
@pytest.mark.parametrize("package", quick(*LOGGED))
def test_the_real_package_takes_every_run_once(package, tmp_path):
    pytest.importorskip(package, reason="make test-tracking installs it")
    for _ in range(2):
        done = ran(*GRID, f"hydra/callbacks={package}", cwd=tmp_path)
        assert "UserWarning: Callback" not in done.stderr
        assert "tracked in" in done.stdout
    folder = (tmp_path / "multirun/latest").resolve()
    assert sorted(LOGGED[package](folder)) == sorted(runs_in(folder))


HIDDEN = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "mlflow" else find(name, *more)
"""


@pytest.mark.full
def test_a_missing_package_is_an_error_before_the_sweep(tmp_path):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/sitecustomize.py").write_text(HIDDEN)
    env = os.environ | {"PYTHONPATH": str(tmp_path / "hidden")}
    done = ran(*GRID, "hydra/callbacks=mlflow", cwd=tmp_path, env=env, code=2)
    assert "is not installed here; pip install 'attnsvm[mlflow]'" in done.stderr
    assert not list(tmp_path.rglob("run.json"))
