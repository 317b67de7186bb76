"""Sweeps by Hydra's other sweepers, such as Optuna's or the basic one.

They choose the runs and know nothing of records. A callback around them gives each search a folder
of its own, and at its end a plan, a report and the exit code that our own sweeper gives.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from attnsvm.cli.errors import exit_code
from attnsvm.cli.objective import Objective
from attnsvm.cli.sweep import close_sweep, sweep_folder
from attnsvm.config import PROBES, ConfigError
from attnsvm.record import (
    CorruptRecordError,
    kind_of,
    link_latest,
    read_run,
    refuse_mixed_code,
    write_plan,
)

OWN = "hydra_plugins.attnsvm_sweeper.sweeper.AttnsvmSweeper"
BASIC = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
RUN_FOLDER = "${run_name:}"

_open: dict[Path, str | None] = {}
"""Folders of the sweeps begun in this process -> what is not complete, None before the end."""


class OtherSweeper(Callback):
    """Begins and ends the sweep of any sweeper but our own."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse what cannot be run, and give the sweep a folder: one for each search space.

        Raises
        ------
        SystemExit
            If it is refused: Hydra makes warnings of other errors in a callback.
        """
        if config.hydra.sweeper._target_ == OWN:
            return
        folder = sweep_folder(config, lambda: _space_digest(config))
        if code := exit_code(lambda: _refuse(config, folder)):
            raise SystemExit(code)
        config.hydra.sweep.dir = str(folder)
        config.hydra.overrides.hydra.append(f"hydra.sweep.dir={folder}")  # jobs are composed anew
        folder.mkdir(parents=True, exist_ok=True)
        link_latest(folder)
        _open[folder] = None

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write the report before other callbacks log it."""
        folder = Path(config.hydra.sweep.dir)
        if folder in _open:
            _open[folder] = _closed(folder)


def close_others() -> str:
    """Close the sweeps of this process that are still open; return what is not complete."""
    message = [_closed(folder) if missing is None else missing for folder, missing in _open.items()]
    _open.clear()
    return "\n".join(filter(None, message))


def _space_digest(config: DictConfig) -> str:
    """Return 12 digits that name the search space; the objective is no part of it."""
    given = config.hydra.overrides.task
    space = [one for one in given if not one.lstrip("+").startswith("objective=")]
    text = json.dumps([space, dict(_params(config))], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _params(config: DictConfig) -> Mapping[Any, Any]:
    return OmegaConf.select(config, "hydra.sweeper.params") or {}


def _refuse(config: DictConfig, folder: Path) -> None:
    """Raise ConfigError for what our own sweeper refuses before the first job too."""
    sweeper = config.hydra.sweeper._target_
    if config.objective is not None:
        Objective.of(config.objective, PROBES, config.svm.norms)  # a job: those that it has
    elif sweeper != BASIC and "objective" not in _params(config):
        raise ConfigError(
            f"objective=null: must be given with {sweeper}, which searches by it, as in "
            "'objective=median(risk)'"
        )
    if sweeper != BASIC and config.dry_run:
        raise ConfigError(
            f"dry_run=true: must be false with {sweeper}, which chooses its runs by the results of "
            "others"
        )
    check_folder(config, folder, [config])


def check_folder(config: DictConfig, folder: Path, runs: Collection[Any]) -> None:
    """Raise ConfigError if records of runs with these configs must not be added to `folder`."""
    sweep: Any = OmegaConf.to_container(config.hydra.sweep, resolve=False)
    if (subdir := sweep["subdir"]) != RUN_FOLDER:
        raise ConfigError(
            f"hydra.sweep.subdir={subdir}: must be {RUN_FOLDER}, the run's identity; set the "
            f"sweep's folder with hydra.sweep.dir"
        )
    if not any(run.mixed_code for run in runs):
        refuse_mixed_code(folder, [list(run.extensions) for run in runs])


def _closed(folder: Path) -> str:
    """Write plan and report of the runs in `folder`; return what is not complete."""
    runs = sorted(path for path in folder.iterdir() if kind_of(path / ".hydra") == "a folder")
    if not runs:
        return ""
    write_plan(folder, {path.name: _overrides(path) for path in runs})
    return close_sweep(folder, [path.name for path in runs])


def _overrides(folder: Path) -> list[str]:
    try:
        return list(read_run(folder)["overrides"])
    except (OSError, CorruptRecordError):
        return []
