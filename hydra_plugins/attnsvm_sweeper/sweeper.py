"""A grid of runs: checked before the first job, resumed, and completed by a report.

Hydra's launchers run the cells. Every cell is validated before any runs, equal cells run once, and
finished ones are not run again. A failed cell does not stop the others, and the sweep always ends
with its tables, figures and report. Results are read from the records on disk only, never from the
return value of a job.
"""

# No `from __future__ import annotations`: a dataclass with postponed annotations needs its module
# in sys.modules, and Hydra scans plugins without adding them there.

import gc
import itertools
import logging
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnsvm.cli.command_line import check_sweep
from attnsvm.cli.dry_run import log_plan
from attnsvm.cli.errors import SweepIncompleteError, absent_field, user_message
from attnsvm.cli.memory import job_machine, refuse_without_disk
from attnsvm.cli.sweep import (
    FAILURES_LISTED,
    check_run,
    check_subdir,
    close_sweep,
    rerun,
    sweep_folder,
)
from attnsvm.config import ConfigError
from attnsvm.config.identity import fields_of, plan_digest, run_name
from attnsvm.config.names import must_be_one_of
from attnsvm.config.plugins import declared_modules
from attnsvm.display.pace import each
from attnsvm.record import (
    FINISHED,
    begin_sweep,
    names_on_record,
    one_line,
    run_state,
    unobstructed,
    write_plan,
)
from hydra_plugins.attnsvm_sweeper._cells import CellComposer, Task
from hydra_plugins.attnsvm_sweeper._grid import axes, grid, per_cell

log = logging.getLogger(__name__)

JOBS = 64
"""Jobs of joblib for each worker: more do not share the work better, and each has its cost."""


@dataclass
class AttnsvmSweeperConf:
    """Options of the sweeper: `params` is the grid, `rerun` the state of runs to be made again.

    `invalid` is what is done about a cell that cannot be: `refuse` the sweep, or `skip` the cell.
    """

    _target_: str = "hydra_plugins.attnsvm_sweeper.sweeper.AttnsvmSweeper"
    max_batch_size: int | None = None
    cells_per_job: int | None = None
    rerun: str | None = None
    invalid: str = "refuse"
    params: dict[str, str] | None = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/sweeper", name="attnsvm", node=AttnsvmSweeperConf)


class PluginSearchPath(SearchPathPlugin):
    """Hydra looks for config files in the modules that plug-ins declare in their group `conf`."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append `pkg://MODULE` for each of them, after attnsvm's own files."""
        for module in declared_modules("conf"):
            search_path.append(provider=module.partition(".")[0], path=f"pkg://{module}")


INVALID = ("refuse", "skip")
"""What may be done about a cell that cannot be."""

SHARING = 8
"""Cells of a job with a GPU: a start of CUDA takes longer than a small run."""


def _default_job_size(cells: int, launcher: DictConfig) -> int:
    """Return how many cells a job of the launcher has by default."""
    if any(launcher.get(name) for name in ("gpus_per_node", "gpus_per_task", "gres")):
        return SHARING
    if "n_jobs" not in launcher:
        return 1
    if launcher.n_jobs == 0:
        raise ConfigError("hydra.launcher.n_jobs=0: must be >= 1, or -1 for all cores")
    from joblib import effective_n_jobs

    return max(1, cells // (JOBS * effective_n_jobs(launcher.n_jobs)))


def _renamed(values: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return the values under the names of their folders on record."""
    return {names[name]: value for name, value in values.items()}


class AttnsvmSweeper(Sweeper):
    """A grid of runs under one folder: `params`, overrides of a single value or several each.

    The launcher gets at most `max_batch_size` jobs at once, each of `cells_per_job` cells that are
    run one after the other, each with its own record. By default it is one, and `SHARING` where a
    job has a GPU; where joblib would have more than `JOBS` for each worker, as many cells as that
    leaves. With `rerun` = stale, records of another version are made again. With `invalid` = skip,
    cells whose fields do not go together are not run, but named in the log, plan and report.
    """

    def __init__(
        self,
        max_batch_size: int | None,
        cells_per_job: int | None,
        rerun: str | None,
        invalid: str,
        params: dict[str, str] | None,
    ) -> None:
        self.max_batch_size, self.cells_per_job = max_batch_size, cells_per_job
        self.params = params or {}
        for name, value in (("max_batch_size", max_batch_size), ("cells_per_job", cells_per_job)):
            if value is not None and value < 1:
                raise ConfigError(f"hydra.sweeper.{name}={value}: must be a whole number >= 1")
        if invalid not in INVALID:
            must = must_be_one_of(invalid, INVALID)
            raise ConfigError(f"hydra.sweeper.invalid={invalid}: {must}")
        self.skips = invalid == "skip"

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Store what Hydra has composed."""
        self.composer = CellComposer(hydra_context.config_loader)
        hydra_context.config_loader = self.composer  # type: ignore[assignment]
        self.composed, self.context, self.task = config, hydra_context, task_function
        raw: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=False)
        if isinstance(raw["params"], dict):
            self.params = {
                key: per_cell(key, raw["params"][key], self.params[key]) for key in self.params
            }

    def sweep(self, arguments: list[str]) -> None:
        """Run the cells that have no complete record, then write tables, figures and report.

        ConfigError before any run, if a cell is not valid; SweepIncompleteError at the end, if a
        cell has no complete record.
        """
        check_subdir(self.composed)
        written = axes(self.params, arguments, self.context.config_loader)
        several = bool(self.params) or any(axis.is_swept for axis in written)
        check_sweep(self.composed, self.composed.hydra, several)
        cells, configs, skipped = self._cells(grid(written))
        self.folder = sweep_folder(self.composed, lambda: plan_digest(configs.values()))
        self.composed.hydra.sweep.dir = str(self.folder)
        self.job_size = self.cells_per_job or _default_job_size(
            len(cells), self.composed.hydra.launcher
        )
        self.jobs = self._launcher()
        if any(config.dry_run for config in configs.values()):
            log_plan(self.folder, cells, configs)
            return
        from attnsvm.sweeps.status import progress

        again = rerun(self.composed.hydra)
        names = names_on_record(self.folder, configs, again)
        fields = {name: fields_of(config) for name, config in configs.items()}
        for name, config in configs.items():
            if not run_state(self.folder / names[name], verify=False).finished:
                refuse_without_disk(config, self.folder)
        on_record = _renamed(cells, names), _renamed(fields, names)
        composed = OmegaConf.to_yaml(self.composed)
        pending = begin_sweep(self.folder, *on_record, composed, again, skipped)
        with progress(self.folder, pending, done=len(cells) - len(pending)):
            self._launch(unobstructed(self.folder, pending))
        complete: tuple[str, ...] = FINISHED
        if again:  # what was not made again is still on record
            names, complete = names_on_record(self.folder, configs), ("done",)
            write_plan(self.folder, _renamed(cells, names), _renamed(fields, names), skipped)
        if incomplete := close_sweep(self.folder, names.values(), complete):
            # Hydra itself calls this only after a sweep without failures
            self.context.callbacks.on_multirun_end(config=self.composed, config_name=None)
            raise SweepIncompleteError(incomplete)

    def _cells(
        self, grid: list[list[str]]
    ) -> tuple[dict[str, list[str]], dict[str, Any], dict[str, str]]:
        """Return overrides and config of the distinct cells, by the name of their run's folder.

        And why cells cannot be, by their overrides; ConfigError unless they are to be skipped, or
        if they set a field that the options of no cell have.
        """
        usual = gc.get_threshold()
        gc.set_threshold(100_000)  # else a fifth of the time goes to objects of torch, which stay
        from attnsvm.experiment import check

        cells, configs, skipped = dict[str, list[str]](), dict[str, Any](), dict[str, str]()
        absent = dict[str, str]()
        machine = job_machine(self.composed.hydra.launcher)
        common = set(grid[0]).intersection(*grid)
        for number, written in enumerate(each("checking run", grid)):
            try:
                cell, config = self.composer.settled(self.composed, written, number)
                if (name := run_name(config)) in cells:
                    continue
                check(config)
            except (ConfigError, HydraException, OmegaConfBaseException) as error:
                field_name, why = absent_field(error), one_line(user_message(error) or str(error))
                if not (field_name or isinstance(error, ConfigError)):
                    raise
                if field_name:
                    absent[field_name] = why
                own = " ".join(word for word in written if word not in common)
                skipped[own or " ".join(written)] = why
                continue
            check_run(config, self.composed.hydra, machine)
            cells[name], configs[name] = cell, config
        gc.set_threshold(*usual)
        if absent:
            known = {name for config in configs.values() for name in fields_of(config)}
            for name in absent.keys() - known:
                if not any(field.startswith(f"{name}.") for field in known):
                    raise ConfigError(absent[name])
        if skipped:
            share = f"{len(skipped)} of {len(grid)} cells of the grid"
            if not (self.skips and cells):
                hint = f"; hydra.sweeper.invalid=skip skips {share} that cannot be" if cells else ""
                raise ConfigError(f"{next(iter(skipped.values()))}{hint}")
            log.warning("%s are skipped: they cannot be", share)
            for cell_words, why in itertools.islice(skipped.items(), FAILURES_LISTED):
                log.warning("skipped %s: %s", cell_words, why)
        if equal := len(grid) - len(cells) - len(skipped):
            log.info("%d of %d runs are equal to others: each runs once", equal, len(grid))
        return cells, configs, skipped

    def _launch(self, pending: dict[str, list[str]]) -> None:
        """Run the cells by the launcher; if it fails, submit again the cells that did not start.

        If it failed before any cell started, its error is raised.
        """
        first = len(pending)
        while pending and (broken := self._launched(pending)):
            left = {
                name: cell
                for name, cell in pending.items()
                if run_state(self.folder / name, verify=False).state == "missing"
            }
            if len(left) == first:
                raise broken
            log.error("the launcher failed (%s); %d runs had not started", broken, len(left))
            pending = left if len(left) < len(pending) else {}

    def _launcher(self) -> Launcher:
        """Return the launcher; in jobs of several cells the callbacks are called for each cell."""
        self.job = Task(self.task, self.context, self.composed)
        context = self.context
        if self.job_size > 1:
            context = HydraContext(context.config_loader, type(context.callbacks)())
        return Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=self.job, config=self.composed
        )

    def _launched(self, cells: dict[str, list[str]]) -> Exception | None:
        """Run the cells in batches; return the exception that stopped the launcher, if any."""
        jobs = list(cells.values())
        if self.job_size > 1:
            jobs = self.job.pack(cells, self.job_size)
            log.info("%d runs in %d jobs", len(cells), len(jobs))
        size = self.max_batch_size or len(jobs)
        for first in range(0, len(jobs), size):
            try:
                results = self.jobs.launch(jobs[first : first + size], initial_job_idx=first)
            except Exception as error:
                return error
            for result in results:  # an error in a run is in its record
                if result.status is not JobStatus.COMPLETED:
                    log.error("job %s: %s", result.overrides, result._return_value)
        return None
