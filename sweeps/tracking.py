"""Tracking: at the end of a sweep, each record on disk is logged once, by its folder's name."""

import importlib.util
import logging
import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from attnsvm.config import ConfigError
from attnsvm.config.identity import recorded_fields
from attnsvm.record import states
from attnsvm.record.columns import key_columns
from attnsvm.record.stored import StoredRun

from .aggregate import PROVENANCE
from .cells import groups

log = logging.getLogger(__name__)


class Tracker(Callback):
    """Logs the runs of a sweep, or a single run; its options are those of conf/hydra/callbacks.

    Of a run: the fields of its config, what made the record, and where the report is; `drawn`,
    `accepted`, `wanted` and `wall_s`; `count_STATUS`, the number of instances of each status; and
    `median_COLUMN`, over the instances with status ok, of a network for each layer and head.
    ConfigError: the package of the tool is not installed.
    """

    def __init__(self, **options: Any) -> None:
        self.package = type(self).__name__.lower()
        if importlib.util.find_spec(self.package) is None:
            how = f"pip install 'attnsvm[{self.package}]' installs it"
            raise ConfigError(f"hydra/callbacks={self.package}: is not installed here; {how}")
        self.options = options

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Log a single run."""
        self._log(Path(config.hydra.runtime.output_dir))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Log the runs of a sweep that are not logged yet."""
        self._log(Path(config.hydra.sweep.dir))

    def _log(self, folder: Path) -> None:
        if not folder.is_dir():
            return  # a dry run creates no folder
        folder = folder.resolve()
        place = self._open(folder)
        for name, run in states(folder).items():
            if run.finished and not self._has(name):
                single = name == folder.name and not (folder / name).exists()
                fields, metrics = _content(folder if single else folder / name, run.run)
                self._add(name, fields | {"report": str(folder / "report.html")}, metrics)
        log.info("tracked in %s", place)

    def _open(self, folder: Path) -> str:
        self.folder = folder
        return str(folder / self.package)

    @abstractmethod
    def _has(self, name: str) -> bool: ...

    @abstractmethod
    def _add(self, name: str, fields: dict[str, Any], metrics: dict[str, float]) -> None: ...


def _content(folder: Path, run: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    trials = StoredRun(folder, run).tables()[0].to_pandas()
    metrics = {name: run[name] for name in ("drawn", "accepted", "wanted")}
    metrics["wall_s"] = sum(run["timings_s"].values())
    metrics |= {f"count_{status}": count for status, count in run["statuses"].items()}
    key = key_columns(trials)
    for cell, part in groups(trials[trials["status"] == "ok"], key[1:]):  # layers and heads
        prefix = "".join(f"{name}{value}_" for name, value in cell.items())
        medians = part.drop(columns=key).median(numeric_only=True).dropna()
        metrics |= {f"{prefix}median_{name}": float(value) for name, value in medians.items()}
    fields = recorded_fields(run["config"], run["options"]) | {key: run[key] for key in PROVENANCE}
    return {name: value for name, value in fields.items() if value is not None}, metrics


class Mlflow(Tracker):
    """Logs into an experiment on a server, or in the file `mlflow.db` of the sweep's folder."""

    def _open(self, folder: Path) -> str:
        import mlflow

        place = self.options["uri"] or f"sqlite:///{folder}/mlflow.db"
        mlflow.set_tracking_uri(place)
        mlflow.set_experiment(self.options["experiment"])
        return place

    def _has(self, name: str) -> bool:
        import mlflow

        signature = f"tags.`attnsvm.signature` = '{name}'"
        return bool(mlflow.search_runs(filter_string=signature, output_format="list"))

    def _add(self, name: str, fields: dict[str, Any], metrics: dict[str, float]) -> None:
        import mlflow

        with mlflow.start_run(run_name=name, tags={"attnsvm.signature": name}):
            mlflow.log_params(fields)
            for key, value in metrics.items():
                mlflow.log_metric(key.replace("+", "-"), value)  # a plus is not allowed


class Wandb(Tracker):
    """Logs into a project; offline into the folder `wandb` of the sweep, for `wandb sync`."""

    def _has(self, name: str) -> bool:
        return any(path.name.endswith(f"-{name}") for path in self.folder.glob("wandb/*run-*"))

    def _add(self, name: str, fields: dict[str, Any], metrics: dict[str, float]) -> None:
        import wandb

        options = self.options | {"dir": str(self.folder), "group": self.folder.name}
        if options["mode"] == "online":
            options["resume"] = "allow"  # a second upload is no second run
        options["settings"] = {"silent": True}
        with wandb.init(id=name, name=name, config=fields, **options) as run:
            run.summary.update(metrics)


class Tensorboard(Tracker):
    """Logs into the folder `tensorboard` of the sweep."""

    def _has(self, name: str) -> bool:
        return (self.folder / "tensorboard" / name).exists()

    def _add(self, name: str, fields: dict[str, Any], metrics: dict[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        plain = {k: v if isinstance(v, bool | int | float) else str(v) for k, v in fields.items()}
        part = self.folder / "tensorboard" / f".{name}"
        writer = EventFileWriter(str(part))
        scalars = map(scalar_pb, metrics, metrics.values())
        for summary in (hparams_pb(plain, trial_id=name), *scalars):
            writer.add_event(Event(wall_time=time.time(), step=0, summary=summary))
        writer.close()
        part.replace(part.with_name(name))  # which appears when it is complete
