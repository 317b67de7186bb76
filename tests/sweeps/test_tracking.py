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

PACKAGES = ("mlflow", "wandb", "tensorboard")
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
    logged = {run.info.run_name: (run.data.params, run.data.metrics) for run in runs}
    assert len(logged) == len(runs)
    return logged


def logged_to_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.util.tensor_util import make_ndarray

    logged, hparams = {}, "_hparams_/session_start_info"
    for run in (folder / "tensorboard").iterdir():
        assert len(list(run.iterdir())) == 1
        events = EventAccumulator(str(run))
        events.Reload()
        metrics = {
            name: float(make_ndarray(events.Tensors(name)[-1].tensor_proto))
            for name in events.Tags()["tensors"]
            if name != hparams
        }
        content = HParamsPluginData.FromString(events.SummaryMetadata(hparams).plugin_data.content)
        fields = content.session_start_info.hparams
        texts = {name: value.string_value for name, value in fields.items()}
        logged[run.name] = texts | {"seed": f"{fields['seed'].number_value:g}"}, metrics
    return logged


def logged_to_wandb(folder):
    """Look for the expected names and values in the binary files."""
    logged = {}
    for name, run in runs_in(folder).items():
        (file,) = (folder / "wandb").glob(f"offline-run-*-{name}/*.wandb")
        content, (metrics, _) = file.read_bytes(), expected_metrics(run)
        assert all(key.encode() in content for key in (*metrics, "optimizer.lr", "normalized_gd"))
        assert repr(float(metrics["median_risk"]))[:10].encode() in content
        seed = str(read_run(run)["config"]["seed"])
        report = str(folder / "report.html")
        assert report.encode() in content
        logged[name] = {"seed": seed, "optimizer": "normalized_gd", "report": report}, metrics
    assert len(list((folder / "wandb").glob("offline-run-*"))) == len(logged)
    return logged


@pytest.mark.filterwarnings("ignore:.*noload:DeprecationWarning")
@pytest.mark.parametrize(
    ("package", "logged"),
    [
        ("mlflow", logged_to_mlflow),
        pytest.param("wandb", logged_to_wandb, marks=pytest.mark.full),
        pytest.param("tensorboard", logged_to_tensorboard, marks=pytest.mark.full),
    ],
)
def test_every_run_is_logged_once_with_config_counts_and_medians(package, logged, tmp_path):
    pytest.importorskip(package, reason="make test-tracking installs it")
    for _ in range(2):
        done = ran(*GRID, f"hydra/callbacks={package}", cwd=tmp_path)
        assert "UserWarning: Callback" not in done.stderr
        assert "tracked in" in done.stdout
    folder = (tmp_path / "multirun/latest").resolve()
    entries = logged(folder)
    assert entries.keys() == runs_in(folder).keys()
    for name, (fields, metrics) in entries.items():
        expected, curves = expected_metrics(folder / name)
        last = {key: curves[max(curves)][key] for key in metrics.keys() & curves[max(curves)]}
        assert metrics == pytest.approx(expected | last, rel=1e-6)  # float32
        assert fields["optimizer"] == "normalized_gd"
        assert fields["seed"] == str(read_run(folder / name)["config"]["seed"])
        assert fields["report"] == str(folder / "report.html")


HIDDEN = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == {!r} else find(name, *more)
"""


@pytest.mark.full
@pytest.mark.parametrize("package", PACKAGES)
def test_a_missing_package_is_an_error_before_the_sweep(package, tmp_path):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/sitecustomize.py").write_text(HIDDEN.format(package))
    env = os.environ | {"PYTHONPATH": str(tmp_path / "hidden")}
    done = ran(*GRID, f"hydra/callbacks={package}", cwd=tmp_path, env=env, code=2)
    assert f"is not installed here; pip install 'attnsvm[{package}]'" in done.stderr
    assert not list(tmp_path.rglob("run.json"))
