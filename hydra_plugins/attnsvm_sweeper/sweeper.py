"""A grid of runs: checked before the first job, resumed, and completed by a report.

Hydra's launchers run the cells. Every cell is validated before any runs, equal cells run once, and
finished ones are not run again. A failed cell does not stop the others, and the sweep always ends
with its tables, figures and report. Results are read from the records on disk only, never from the
return value of a job.
"""

# No `from __future__ import annotations`: a dataclass with postponed annotations needs its module
# in sys.modules, and Hydra scans plugins without adding them there.

import itertools
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from attnsvm.cli.composing import CellComposer

log = logging.getLogger(__name__)

FAILURES_TOLD = 20
"""Largest number of runs without a record that the summary lists; the report lists all."""

RUN_FOLDER = "${run_name:}"


def _log_failure(result: JobReturn) -> None:
    """Log the error of a job outside of its run; an error in the run is in its record."""
    try:
        result.return_value  # noqa: B018  # raises it
    except Exception as error:
        log.error("job %s: %s", result.overrides, error)


@dataclass
class AttnsvmSweeperConf:
    """Options of the sweeper: `params` is the grid, `max_batch_size` splits it."""

    _target_: str = "hydra_plugins.attnsvm_sweeper.sweeper.AttnsvmSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/sweeper", name="attnsvm", node=AttnsvmSweeperConf)


class AttnsvmSweeper(Sweeper):
    """A grid of runs under one folder.

    Parameters
    ----------
    max_batch_size : int or None
        Largest number of cells that the launcher gets at once.
    params : mapping of str to str
        The grid: overrides, each a single value or several.
    """

    def __init__(self, max_batch_size: int | None, params: dict[str, str] | None) -> None:
        self.max_batch_size, self.params = max_batch_size, params or {}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Store what Hydra has composed, and create the launcher."""
        self.composer = CellComposer(hydra_context.config_loader.get_search_path())
        hydra_context.config_loader = self.composer
        self.composed, self.callbacks = config, hydra_context.callbacks
        self.folder = Path(config.hydra.sweep.dir)
        self.jobs: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Run the cells that have no complete record, then write tables, figures and report.

        Raises
        ------
        ConfigError
            Before any run, if a cell is not valid or the folder holds records of other code.
        SweepIncompleteError
            At the end, if a cell has no complete record.
        """
        from attnsvm.cli.dry_run import log_plan
        from attnsvm.record import begin_sweep
        from sweeps.progress import Progress

        cells, configs = self._cells(self._grid(arguments))
        if any(config.dry_run for config in configs.values()):
            log_plan(self.folder, cells, configs)
            return
        self._check_folder(configs)
        pending = begin_sweep(self.folder, cells, OmegaConf.to_yaml(self.composed))
        with Progress(self.folder, pending, done=len(cells) - len(pending)):
            self._launch(pending)
        self._close()

    # --- the grid ---------------------------------------------------------------------------------

    def _grid(self, arguments: list[str]) -> Iterable[list[str]]:
        """Yield the overrides of every cell; the last override of a key is used."""
        parser = OverridesParser.create(config_loader=self.composer)
        given = [*(f"{key}={value}" for key, value in self.params.items()), *arguments]
        axes: dict[str, list[str]] = {}
        for one in parser.parse_overrides(given):
            key = one.get_key_element()
            if not one.is_sweep_override():
                axes[key] = [f"{key}={one.get_value_element_as_str()}"]
            elif one.is_discrete_sweep():
                axes[key] = [f"{key}={value}" for value in one.sweep_string_iterator()]
            else:
                raise HydraException(f"{one.input_line}: must be a list of values in a grid")
        return map(list, itertools.product(*axes.values()))

    def _cells(self, grid: Iterable[list[str]]) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Return overrides and config of the distinct cells, by the name of their run's folder."""
        from attnsvm.config.identity import run_name, validated
        from attnsvm.experiment import check

        cells: dict[str, list[str]] = {}
        configs: dict[str, Any] = {}
        for cell in grid:
            config = validated(self.composer.run_config(self.composed, cell))
            name = run_name(config)
            if name not in cells:
                check(config)
            cells.setdefault(name, cell)
            configs.setdefault(name, config)
        return cells, configs

    def _check_folder(self, configs: dict[str, Any]) -> None:
        """Raise ConfigError if records must not be added to the folder."""
        from attnsvm.config import ConfigError
        from attnsvm.record import refuse_links
        from attnsvm.record.mixed_code import refuse_mixed_code

        sweep: Any = OmegaConf.to_container(self.composed.hydra.sweep, resolve=False)
        subdir = sweep["subdir"]
        if subdir != RUN_FOLDER:
            raise ConfigError(
                f"hydra.sweep.subdir={subdir}: must be {RUN_FOLDER}, the run's identity; set the "
                f"sweep's folder with hydra.sweep.dir"
            )
        refuse_links(self.folder, configs)
        if not any(config.mixed_code for config in configs.values()):
            refuse_mixed_code(self.folder, [config.extensions for config in configs.values()])

    # --- the jobs ---------------------------------------------------------------------------------

    def _launch(self, pending: dict[str, list[str]]) -> None:
        """Run the cells by the launcher; if it fails, submit again the cells that did not start.

        Raises
        ------
        Exception
            The launcher's error, if it failed before any cell started.
        """
        from attnsvm.record import run_state

        everything = pending
        while pending:
            broken = self._launched(list(pending.values()))
            if broken is None:
                return
            left = {
                name: cell
                for name, cell in pending.items()
                if run_state(self.folder / name, verify=False).state == "missing"
            }
            if len(left) == len(everything):
                raise broken
            log.error("the launcher failed (%s); %d runs had not started", broken, len(left))
            pending = left if len(left) < len(pending) else {}

    def _launched(self, cells: list[list[str]]) -> Exception | None:
        """Run the cells in batches; return the exception that stopped the launcher, if any."""
        size = self.max_batch_size or len(cells)
        for first in range(0, len(cells), size):
            try:
                results = self.jobs.launch(cells[first : first + size], initial_job_idx=first)
            except Exception as error:
                return error
            for result in results:
                _log_failure(result)
        return None

    # --- the end ----------------------------------------------------------------------------------

    def _close(self) -> None:
        from attnsvm.cli.errors import SweepIncompleteError
        from sweeps.aggregate import load
        from sweeps.report import one_line, write_report

        frames = load(self.folder)
        files = write_report(frames)
        for path in (files.html, *files.figures, *files.tables):
            log.info("wrote %s", path)
        lacking = frames.incomplete
        if lacking.empty:
            return
        # Hydra itself calls this only after a sweep without failures
        self.callbacks.on_multirun_end(config=self.composed, config_name=None)
        counts = ", ".join(f"{n} {state}" for state, n in lacking["state"].value_counts().items())
        lines = [
            one_line(f"  {row.state} {row.run}: {row.reason} ({getattr(row, 'place', '') or '-'})")
            for row in lacking.head(FAILURES_TOLD).itertuples()
        ]
        raise SweepIncompleteError(
            f"{self.folder}: {counts} of {len(frames.runs)} runs; the report lists all of them; "
            "run the same command again to resume\n" + "\n".join(lines)
        )
