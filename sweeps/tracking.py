"""Tracking: at the end of a sweep, each record on disk is logged once, by its folder's name."""

import importlib.util
import logging
import time
from abc import abstractmethod
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


Points = dict[int, dict[str, float]]
"""Step -> name -> number; at step `WHOLE` the numbers of the run as a whole."""
WHOLE = -1


class Tracker(Callback):
    """Logs the runs of a sweep, or a single run; its options are those of conf/hydra/callbacks.

    Of a run: the fields of its config, what made it, and where the report is; `drawn`, `accepted`,
    `wanted`, `wall_s`, `count_STATUS`; over the instances with status ok `median_COLUMN` and the
    median of every quantity of the history at its steps, of a network for each layer and head.
    """

    def __init__(self, **options: Any) -> None:
        self.package = type(self).__name__.lower()
        self.options = options
        if importlib.util.find_spec(self.package) is None:
            how = f"pip install 'attnsvm[{self.package}]' installs it"
            raise ConfigError(f"hydra/callbacks={self.package}: is not installed here; {how}")

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Log a single run."""
        self._log(Path(config.hydra.runtime.output_dir))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Log the runs of a sweep that are not logged yet."""
        self._log(Path(config.hydra.sweep.dir))

    def _log(self, folder: Path) -> None:
        if not folder.is_dir():
            return  # a dry run creates no folder
        self.folder, self.tool = folder.resolve(), importlib.import_module(self.package)
        place = self._open()
        for name, run in states(self.folder).items():
            if run.finished and not self._has(name):
                own = self.folder / name
                fields, points = _content(own if own.exists() else self.folder, run.run)
                self._add(name, fields | {"report": str(self.folder / "report.html")}, points)
        log.info("tracked in %s", place)

    def _open(self) -> str:
        return str(self.folder / self.package)

    @abstractmethod
    def _has(self, name: str) -> bool: ...

    @abstractmethod
    def _add(self, name: str, fields: dict[str, Any], points: Points) -> None: ...


def _content(folder: Path, run: Any) -> tuple[dict[str, Any], Points]:
    trials, history = (table.to_pandas() for table in StoredRun(folder, run).tables())
    metrics = {f"count_{status}": count for status, count in run["statuses"].items()}
    metrics |= {name: run[name] for name in ("drawn", "accepted", "wanted")}
    points: Points = {WHOLE: metrics | {"wall_s": sum(run["timings_s"].values())}}
    key = key_columns(trials)
    for cell, part in groups(trials[trials["status"] == "ok"], key[1:]):  # layers and heads
        prefix = "".join(f"{name}{value}_" for name, value in cell.items())
        medians = part.drop(columns=key).median(numeric_only=True).dropna()
        points[WHOLE] |= {f"{prefix}median_{name}": float(value) for name, value in medians.items()}
        values = history.merge(part[key], on=key).groupby(["step", "quantity"])["value"].median()
        for (step, quantity), value in values.dropna().items():
            points.setdefault(int(step), {})[f"{prefix}{quantity}"] = value
    fields = recorded_fields(run["config"], run["options"]) | {key: run[key] for key in PROVENANCE}
    return {name: value for name, value in fields.items() if value is not None}, points


class Mlflow(Tracker):
    """Logs into an experiment on a server, or in the file `mlflow.db` of the sweep's folder."""

    def _open(self) -> str:
        place = self.options["uri"] or f"sqlite:///{self.folder}/mlflow.db"
        self.tool.set_tracking_uri(place)
        self.tool.set_experiment(self.options["experiment"])
        return place

    def _has(self, name: str) -> bool:
        own = f"tags.`attnsvm.signature` = '{name}'"
        return len(self.tool.search_runs(filter_string=own, output_format="list")) > 0

    def _add(self, name: str, fields: dict[str, Any], points: Points) -> None:
        with self.tool.start_run(run_name=name, tags={"attnsvm.signature": name}):
            self.tool.log_params(fields)
            for step, values in points.items():
                allowed = {key.replace("+", "-"): value for key, value in values.items()}
                self.tool.log_metrics(allowed, step=max(step, 0))


class Wandb(Tracker):
    """Logs into a project; offline into the folder `wandb` of the sweep, for `wandb sync`."""

    def _has(self, name: str) -> bool:
        return any(path.name.endswith(f"-{name}") for path in self.folder.glob("wandb/*run-*"))

    def _add(self, name: str, fields: dict[str, Any], points: Points) -> None:
        # a second upload is no second run
        options = self.options | ({"resume": "allow"} if self.options["mode"] == "online" else {})
        options |= {"dir": self.folder, "group": self.folder.name, "settings": {"silent": True}}
        with self.tool.init(id=name, name=name, config=fields, **options) as run:
            whole = points.pop(WHOLE)
            for step, values in points.items():
                run.log(values, step=step)
            run.summary.update(whole)


class Tensorboard(Tracker):
    """Logs into the folder `tensorboard` of the sweep."""

    def _has(self, name: str) -> bool:
        return (self.folder / "tensorboard" / name).exists()

    def _add(self, name: str, fields: dict[str, Any], points: Points) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        plain = {k: v if isinstance(v, bool | int | float) else str(v) for k, v in fields.items()}
        part = self.folder / "tensorboard" / f".{name}"
        writer, now = EventFileWriter(str(part)), time.time()
        writer.add_event(Event(wall_time=now, step=0, summary=hparams_pb(plain, trial_id=name)))
        for step, values in points.items():
            for pair in values.items():
                writer.add_event(Event(wall_time=now, step=max(step, 0), summary=scalar_pb(*pair)))
        writer.close()
        part.replace(part.with_name(name))  # which appears when it is complete
