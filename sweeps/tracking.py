"""Tracking: at the end of a sweep its driver logs the records on disk to a tracking tool.

Config, counts and medians of each run, and the report. Each record is identified by its folder's
name, which ends in its signature, and is logged once, independent of the process, machine or
launcher that made it, and of how often the sweep was resumed.
"""

import importlib.util
import logging
import re
import shutil
import struct
import time
from abc import abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from attnsvm.config import ConfigError, OneOf
from attnsvm.config.identity import recorded_fields
from attnsvm.record import kind_of, states
from attnsvm.record.columns import key_columns
from attnsvm.record.folder import read_tables

from .aggregate import PROVENANCE
from .cells import groups

log = logging.getLogger(__name__)


class Tracker(Callback):
    """Logs a sweep, or a single run, when it ends.

    ConfigError: the package of the tool is not installed; a callback is made before the first run.
    """

    package: str
    """The package of the tool; the option of hydra/callbacks and the extra have this name too."""

    def __init__(self) -> None:
        if importlib.util.find_spec(self.package) is None:
            raise ConfigError(
                f"hydra/callbacks={self.package}: is not installed here; "
                f"pip install 'attnsvm[{self.package}]' installs it"
            )

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Log a single run."""
        self._log(Path(config.hydra.runtime.output_dir))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Log the sweep's files and those of its runs that are not logged yet."""
        self._log(Path(config.hydra.sweep.dir))

    @abstractmethod
    def open(self, folder: Path) -> str:
        """Open the tool for the sweep in `folder`; return the place where it is logged."""

    @abstractmethod
    def logged(self) -> Collection[str]:
        """Return the names of the runs that are logged already."""

    @abstractmethod
    def log_run(self, name: str, config: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Add a run, `name` that of its folder.

        `config` has the fields of its config as users type them, and what made the record;
        `metrics` drawn, accepted, wanted, wall_s; count_STATUS, the number of instances of each
        status; and median_COLUMN, over the instances with status ok; of a network, for each layer
        and head, layer0_attention_head0_median_COLUMN.
        """

    @abstractmethod
    def log_files(self, name: str, files: Mapping[str, Path]) -> None:
        """Add the files of the sweep `name`, by their paths in its folder."""

    def _log(self, folder: Path) -> None:
        if not folder.is_dir():
            return  # a dry run creates no folder
        folder = folder.resolve()
        place, logged = self.open(folder), self.logged()
        for name, found in states(folder).items():
            if found.finished and name not in logged:
                single = name == folder.name and not (folder / name).exists()
                self.log_run(name, *_tracked(folder if single else folder / name, found.run))
        if files := _files(folder):
            self.log_files(folder.name, files)
        log.info("tracked in %s", place)


def _tracked(folder: Path, run: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Return config and metrics of a run."""
    trials = read_tables(folder, run)[0].to_pandas()
    metrics = {name: run[name] for name in ("drawn", "accepted", "wanted")}
    metrics["wall_s"] = sum(run["timings_s"].values())
    metrics |= {f"count_{status}": count for status, count in run["statuses"].items()}
    key = key_columns(trials)
    for cell, part in groups(trials[trials["status"] == "ok"], key[1:]):  # layers and heads
        where = "".join(f"{name}{value}_" for name, value in cell.items())
        medians = part.drop(columns=key).median(numeric_only=True).dropna()
        metrics |= {f"{where}median_{name}": value for name, value in medians.items()}
    fields = recorded_fields(run["config"], run["options"]) | {key: run[key] for key in PROVENANCE}
    config = {name: value for name, value in fields.items() if value is not None}
    return config, {name: float(value) for name, value in metrics.items()}


def _files(folder: Path) -> dict[str, Path]:
    """Return figures, tables and report by their path in `folder`; regular files only."""
    below = [path for part in ("figures", "tables") for path in sorted(folder.glob(f"{part}/*"))]
    return {
        str(path.relative_to(folder)): path
        for path in (*below, folder / "report.html")
        if kind_of(path.parent) == "a folder" and kind_of(path) == "a file"
    }


# --- the tools ------------------------------------------------------------------------------------


class Mlflow(Tracker):
    """Log to MLflow, into the `experiment` of that name on the tracking server `uri`.

    By default the server is the file `mlflow.db` in the sweep's folder, which
    `mlflow ui --backend-store-uri sqlite:///mlflow.db` displays without a network.
    """

    package = "mlflow"
    SIGNATURE = "attnsvm.signature"
    """The tag with the name of a run."""

    def __init__(self, uri: str | None = None, experiment: str = "attnsvm") -> None:
        super().__init__()
        self.uri, self.experiment = uri, experiment

    def open(self, folder: Path) -> str:
        """Find or make the experiment; without a server its files are in the folder too."""
        from mlflow.tracking import MlflowClient

        place = self.uri or f"sqlite:///{folder}/mlflow.db"
        self.client = MlflowClient(tracking_uri=place)
        if (found := self.client.get_experiment_by_name(self.experiment)) is not None:
            self.number = str(found.experiment_id)
        else:
            files = None if self.uri else (folder / "mlflow").as_uri()
            made = self.client.create_experiment(self.experiment, artifact_location=files)
            self.number = str(made)
        return place

    def logged(self) -> set[str]:
        """Return the runs of the experiment, which is read page by page."""
        names = set[str]()
        token: str | None = None
        while True:
            page = self.client.search_runs([self.number], max_results=1000, page_token=token)
            names |= {run.data.tags.get(self.SIGNATURE, "") for run in page}
            if not (token := page.token):
                return names

    def log_run(self, name: str, config: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Add a run."""
        made = self._begun(name, name)
        for key, value in config.items():
            self.client.log_param(made, key, value)
        for key, metric in metrics.items():
            self.client.log_metric(made, key.replace("+", "-"), metric)  # it allows no plus
        self.client.set_terminated(made)

    def log_files(self, name: str, files: Mapping[str, Path]) -> None:
        """Add the files as artifacts of a run of their own."""
        made = self._begun(name, f"figures of {name}")
        for place, path in files.items():
            self.client.log_artifact(made, str(path), str(Path(name, place).parent))
        self.client.set_terminated(made)

    def _begun(self, name: str, signature: str) -> str:
        tags = {self.SIGNATURE: signature}
        return str(self.client.create_run(self.number, run_name=name, tags=tags).info.run_id)


class Wandb(Tracker):
    """Log to the `project` of that name of Weights & Biases.

    With `mode` offline into the folder `wandb` of the sweep, which `wandb sync` sends later.
    """

    package = "wandb"
    MODES = OneOf(("offline", "online"))
    RUN = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-(.+)")
    """The name of the folder that wandb makes for a run; it ends in the run's id."""

    def __init__(self, project: str = "attnsvm", mode: str = "offline") -> None:
        super().__init__()
        if not self.MODES.holds(mode):
            raise ConfigError(f"hydra.callbacks.wandb.mode={mode}: must be {self.MODES}")
        self.project, self.mode = project, mode

    def open(self, folder: Path) -> str:
        """Choose the folder of the sweep."""
        self.folder = folder
        return f"{folder}/wandb ({self.mode})"

    def logged(self) -> set[str]:
        """Return the runs that were logged from this folder, by their id."""
        names = (self.RUN.fullmatch(path.name) for path in self.folder.glob("wandb/*run-*"))
        return {found[1] for found in names if found}

    def log_run(self, name: str, config: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Add a run; its id is its name, so that a second upload is no second run."""
        with self._begun(name, config) as made:
            made.summary.update(dict(metrics))

    def log_files(self, name: str, files: Mapping[str, Path]) -> None:
        """Add copies of the files to a run of their own."""
        with self._begun(f"figures-of-{name}", {}) as made:
            for place, path in files.items():
                copy = Path(made.dir, place)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                made.save(str(copy), base_path=made.dir, policy="now")

    def _begun(self, name: str, config: Mapping[str, Any]) -> Any:
        import wandb

        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True
        )
        return wandb.init(
            project=self.project, id=name, name=name, group=self.folder.name, dir=str(self.folder),
            config=dict(config), mode=self.mode, settings=settings,
            resume="allow" if self.mode == "online" else None,
        )  # fmt: skip


class Tensorboard(Tracker):
    """Log into the folder `tensorboard` of the sweep: config, metrics, figures (PNG)."""

    package = "tensorboard"
    PART = ".part"
    """End of the name of a run's folder while it is written."""

    def open(self, folder: Path) -> str:
        """Choose the folder of the event files."""
        self.folder = folder / "tensorboard"
        return str(self.folder)

    def logged(self) -> set[str]:
        """Return the runs that are complete."""
        return {path.name for path in self.folder.glob("*") if not path.name.endswith(self.PART)}

    def log_run(self, name: str, config: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Add a run: its config for the table of hyperparameters, each metric as a scalar."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        fields = {
            key: value if isinstance(value, bool | int | float) else str(value)
            for key, value in config.items()
        }
        scalars = [scalar_pb(key, value) for key, value in metrics.items()]
        self._write(name, [hparams_pb(fields, trial_id=name), *scalars])

    def log_files(self, name: str, files: Mapping[str, Path]) -> None:
        """Add the figures that are PNG; a later report replaces them."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        images = []
        for place, path in files.items():
            if place.endswith(".png"):
                png = path.read_bytes()
                width, height = struct.unpack(">II", png[16:24])  # of the header IHDR
                size = {"width": width, "height": height, "colorspace": 4}
                image = Summary.Image(encoded_image_string=png, **size)
                images.append(Summary(value=[Summary.Value(tag=place[:-4], image=image)]))
        self._write(f"figures of {name}", images)

    def _write(self, name: str, summaries: list[Any]) -> None:
        """Write an event file of `summaries` in a folder `name`, which appears when it is whole."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        part, whole = self.folder / f"{name}{self.PART}", self.folder / name
        shutil.rmtree(part, ignore_errors=True)
        writer = EventFileWriter(str(part))
        for summary in summaries:
            writer.add_event(Event(wall_time=time.time(), step=0, summary=summary))
        writer.close()
        shutil.rmtree(whole, ignore_errors=True)
        part.replace(whole)
