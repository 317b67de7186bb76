"""Tracking: every run that is on record is logged once, without a network.

`make test-tracking` installs the packages; a test is skipped where its package is missing.
"""

import importlib.util
import os
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

from attnsvm.record import read_run
from attnsvm.sweeps.tracking import Tracker
from tests.command import SMALL, ran


def needs(package: str) -> pytest.MarkDecorator:
    lacking = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(lacking, reason=f"needs {package} (make test-tracking)")


PACKAGES = ("mlflow", "wandb", "tensorboard")
GRID = ("-m", "seed=0,10", "trials=2", *SMALL[1:4], "optimizer.steps=200", "optimizer.lr=0.5")


def expected_of(run: Path) -> dict[str, float]:
    """Return the metrics of a run, from its files alone."""
    content, trials = read_run(run), pd.read_parquet(run / "trials.parquet")
    accepted = trials[trials["status"] == "ok"].select_dtypes(["number", "bool", "boolean"])
    metrics = {name: content[name] for name in ("drawn", "accepted", "wanted")}
    metrics |= {f"count_{one}": number for one, number in trials["status"].value_counts().items()}
    medians = accepted.drop(columns="seed").median().dropna()
    metrics |= {f"median_{name}": value for name, value in medians.items()}
    assert "median_one_minus_corr_frobenius" in metrics
    return metrics | {"wall_s": sum(content["timings_s"].values())}


def swept_twice(callback: str, cwd: Path) -> Path:
    """Return the folder of a sweep that was run, and run again, with a callback."""
    for _ in range(2):
        done = ran(*GRID, f"hydra/callbacks={callback}", cwd=cwd)
        assert "UserWarning: Callback" not in done.stderr
        assert "tracked in" in done.stdout
    return (cwd / "multirun/latest").resolve()


@needs("mlflow")
@pytest.mark.filterwarnings("ignore:.*noload:DeprecationWarning")
def test_parameters_metrics_and_figures_are_logged_once(tmp_path):
    from mlflow.tracking import MlflowClient

    folder = swept_twice("mlflow", tmp_path)
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("attnsvm").experiment_id
    runs = client.search_runs([experiment])
    logged = [run for run in runs if (folder / run.info.run_name / "run.json").exists()]
    assert len(logged) == 2
    assert {run.data.params["seed"] for run in logged} == {"0", "10"}
    assert {run.data.params["optimizer"] for run in logged} == {"normalized_gd"}
    assert all(run.data.metrics["drawn"] == 2 for run in logged)
    expected = {path.parent.name: expected_of(path.parent) for path in folder.glob("*/run.json")}
    assert {run.info.run_name: run.data.metrics for run in logged} == expected
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert list((folder / "mlflow").rglob("adhoc.png"))


HPARAMS = "_hparams_/session_start_info"


@needs("tensorboard")
@pytest.mark.full
def test_tensorboard_has_every_run_once(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.util.tensor_util import make_ndarray

    folder = swept_twice("tensorboard", tmp_path)
    runs = [path.parent for path in folder.glob("*/run.json")]
    logged = {path.name: path for path in (folder / "tensorboard").iterdir()}
    assert set(logged) == {run.name for run in runs} | {f"figures of {folder.name}"}
    for run in runs:
        assert len(list(logged[run.name].iterdir())) == 1
        events = EventAccumulator(str(logged[run.name]))
        events.Reload()
        found = {
            name: float(make_ndarray(events.Tensors(name)[0].tensor_proto))
            for name in events.Tags()["tensors"]
            if name != HPARAMS
        }
        assert found == pytest.approx(expected_of(run), rel=1e-6)  # 32-bit floats
        content = HParamsPluginData.FromString(events.SummaryMetadata(HPARAMS).plugin_data.content)
        fields = content.session_start_info.hparams
        assert fields["optimizer"].string_value == "normalized_gd"
        assert fields["seed"].number_value == read_run(run)["config"]["seed"]
    events = EventAccumulator(str(logged[f"figures of {folder.name}"]))
    events.Reload()
    png = events.Images("figures/adhoc")[-1].encoded_image_string
    assert png == (folder / "figures/adhoc.png").read_bytes()


@needs("wandb")
@pytest.mark.full
def test_wandb_has_every_run_once_and_offline(tmp_path):
    folder = swept_twice("wandb", tmp_path)
    runs = [path.parent for path in folder.glob("*/run.json")]
    for run in runs:
        (logged,) = (folder / "wandb").glob(f"offline-run-*-{run.name}")
        (file,) = logged.glob("*.wandb")
        content = file.read_bytes()
        for name in (*expected_of(run), "optimizer.lr", "normalized_gd"):
            assert name.encode() in content, name
        assert repr(float(expected_of(run)["median_risk"]))[:10].encode() in content
    copies = list((folder / "wandb").glob(f"*figures-of-{folder.name}/files/figures/adhoc.png"))
    assert copies[-1].read_bytes() == (folder / "figures/adhoc.png").read_bytes()


HIDDEN = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == {!r} else find(name, *more)
"""


@pytest.mark.parametrize(
    ("package", "told"),
    [
        *((one, f"is not installed here; pip install 'attnsvm[{one}]'") for one in PACKAGES),
        pytest.param("", "mode=onlin: must be offline | online", marks=needs("wandb")),
    ],
)
@pytest.mark.full
def test_what_cannot_be_tracked_is_an_error_before_the_sweep(package, told, tmp_path):
    """Without the package of a tool, or in an unknown mode of wandb."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/sitecustomize.py").write_text(HIDDEN.format(package))
    env = os.environ | {"PYTHONPATH": str(tmp_path / "hidden")}
    mode = () if package else ("hydra.callbacks.wandb.mode=onlin",)
    given = (f"hydra/callbacks={package or 'wandb'}", *mode)
    assert told in ran(*GRID, *given, cwd=tmp_path, env=env, code=2).stderr
    assert not list(tmp_path.rglob("run.json"))


class Kept(Tracker):
    """A tracker that keeps what it is given."""

    package = "attnsvm"

    def open(self, folder: Path) -> str:
        self.runs = getattr(self, "runs", {})
        return "memory"

    def logged(self) -> list[str]:
        return list(self.runs)

    def log_run(self, name, *given) -> None:
        self.runs[name] = given

    def log_files(self, name: str, files: dict[str, Path]) -> None:
        self.files = files


def test_medians_are_those_of_accepted_instances_and_files_are_regular(tmp_path):
    ran(*GRID, cwd=tmp_path)
    folder = tmp_path / "multirun/latest"
    (folder / "figures/outside.png").symlink_to("/etc/hostname")
    os.mkfifo(folder / "tables/pipe.csv")
    config = OmegaConf.create({"hydra": {"sweep": {"dir": str(folder)}}})
    tracker = Kept()
    for _ in range(2):
        tracker.on_multirun_end(config)
    assert {name: metrics for name, (_, metrics) in tracker.runs.items()} == {
        path.parent.name: expected_of(path.parent) for path in folder.glob("*/run.json")
    }
    assert {(of["seed"], of["data.n"]) for of, _ in tracker.runs.values()} == {(0, 3), (10, 3)}
    assert {"report.html", "figures/adhoc.png", "tables/outcomes.csv"} <= set(tracker.files)
    assert not {"figures/outside.png", "tables/pipe.csv"} & set(tracker.files)
    run = next(folder.glob("*/run.json")).parent  # a run alone
    alone = Kept()
    alone.on_run_end(OmegaConf.create({"hydra": {"runtime": {"output_dir": str(run)}}}))
    assert list(alone.runs) == [run.name]
