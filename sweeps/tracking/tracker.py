"""What is logged, for every tracking tool: config, counts and medians of each run; the report.

Each record is identified by its folder's name, which ends in its signature, and is logged once,
independent of the process, machine or launcher that made it, and of how often the sweep was
resumed.
"""

from __future__ import annotations

import importlib.util
import logging
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from attnsvm.config import ConfigError
from attnsvm.record import kind_of, read_tables, states
from attnsvm.record.columns import key_columns

from ..cells import recorded_fields

log = logging.getLogger(__name__)

PROVENANCE = ("version", "code", "git_revision", "device", "python")
"""Fields of `run.json` that are logged beside the config."""


@dataclass(frozen=True)
class TrackedRun:
    """What is logged of a run.

    Attributes
    ----------
    name : str
        The name of its folder.
    config : mapping
        The fields of its config as users type them, and what made the record.
    metrics : mapping of str to float
        drawn, accepted, wanted, wall_s; count_STATUS, the number of instances of each status; and
        median_COLUMN, over the instances with status ok; of a network, for each layer and head,
        layer0_attention_head0_median_COLUMN.
    """

    name: str
    config: Mapping[str, Any]
    metrics: Mapping[str, float]


class Tracker(Callback):
    """Logs a sweep, or a single run, when it ends.

    Raises
    ------
    ConfigError
        If the package of the tool is not installed: a callback is made before the first run.
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
    def log_run(self, run: TrackedRun) -> None:
        """Add a run."""

    @abstractmethod
    def log_files(self, name: str, files: Mapping[str, Path]) -> None:
        """Add the files of the sweep `name`, by their paths in its folder."""

    def _log(self, folder: Path) -> None:
        if not folder.is_dir():
            return  # a dry run creates no folder
        folder = folder.resolve()
        place, logged = self.open(folder), self.logged()
        for name, found in states(folder).items():
            if found.state == "done" and name not in logged:
                single = name == folder.name and not (folder / name).exists()
                self.log_run(_tracked(folder if single else folder / name, found.run))
        if files := _files(folder):
            self.log_files(folder.name, files)
        log.info("tracked in %s", place)


def _tracked(folder: Path, run: Mapping[str, Any]) -> TrackedRun:
    trials = read_tables(folder, run)[0].to_pandas()
    accepted = trials[trials["status"] == "ok"]
    metrics = {name: run[name] for name in ("drawn", "accepted", "wanted")}
    metrics["wall_s"] = sum(run["timings_s"].values())
    metrics |= {f"count_{status}": count for status, count in run["statuses"].items()}
    metrics |= _medians(accepted)
    made_by = {name: run[name] for name in PROVENANCE if run[name] is not None}
    fields = recorded_fields(run["config"], run["options"])
    return TrackedRun(
        name=folder.name,
        config={name: value for name, value in fields.items() if value is not None} | made_by,
        metrics={name: float(value) for name, value in metrics.items()},
    )


def _medians(accepted: pd.DataFrame) -> dict[str, float]:
    """Return the median of every column; of a network, that of every layer and head."""
    key = key_columns(accepted)
    found: dict[str, float] = {}
    for values, part in accepted.groupby(key[1:]) if key[1:] else [((), accepted)]:
        where = "".join(f"{name}{value}_" for name, value in zip(key[1:], values, strict=True))
        medians = part.drop(columns=key).median(numeric_only=True).dropna()
        found |= {f"{where}median_{name}": value for name, value in medians.items()}
    return found


def _files(folder: Path) -> dict[str, Path]:
    """Return figures, tables and report by their path in `folder`; regular files only."""
    below = [path for part in ("figures", "tables") for path in sorted(folder.glob(f"{part}/*"))]
    return {
        str(path.relative_to(folder)): path
        for path in (*below, folder / "report.html")
        if kind_of(path.parent) == "a folder" and kind_of(path) == "a file"
    }
