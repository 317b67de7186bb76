"""A grid of runs: checked before the first job, resumed, and completed by a report.

Hydra's launchers run the cells. Every cell is validated before any runs, equal cells run once, and
finished ones are not run again. A failed cell does not stop the others, and the sweep always ends
with its tables, figures and report. Results are read from the records on disk only, never from the
return value of a job.
"""

# No `from __future__ import annotations`: a dataclass with postponed annotations needs its module
# in sys.modules, and Hydra scans plugins without adding them there.

import gc
import logging
from dataclasses import dataclass, field
from typing import Annotated, Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.errors import HydraException, MissingConfigException
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnsvm.cli.command_line import check_sweep
from attnsvm.cli.dry_run import log_plan
from attnsvm.cli.errors import SweepIncompleteError, user_message
from attnsvm.cli.memory import job_machine
from attnsvm.cli.sweep import (
    FAILURES_LISTED,
    check_run,
    check_subdir,
    close_sweep,
    rerun,
    sweep_folder,
)
from attnsvm.config import ConfigError, OneOf, RunConfig
from attnsvm.config.fields import SIZE, Schema, check_fields
from attnsvm.config.identity import fields_of, plan_digest, run_name
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
from hydra_plugins.attnsvm_sweeper._cells import CellComposer, Cells, Task
from hydra_plugins.attnsvm_sweeper._grid import axes, grid, per_cell

log = logging.getLogger(__name__)

SHARING = 8
"""Cells of a job with a GPU: a start of CUDA takes longer than a small run."""


@dataclass
class AttnsvmSweeperConf(Schema):
    """Options of the sweeper."""

    _target_: str = "hydra_plugins.attnsvm_sweeper.sweeper.AttnsvmSweeper"
    max_batch_size: Annotated[int | None, SIZE, "most jobs of a launcher at once"] = None
    cells_per_job: Annotated[
        int | None, SIZE, "runs of a job, one after the other; null: 1, with a GPU SHARING"
    ] = None
    rerun: Annotated[str | None, "state of the records to be made again: stale"] = None
    invalid: Annotated[
        str,
        OneOf(("refuse", "skip")),
        "what a cell that cannot be leads to: no sweep, or a line in log, plan and report",
    ] = "refuse"
    params: dict[str, str] | None = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/sweeper", name="attnsvm", node=AttnsvmSweeperConf)


class PluginSearchPath(SearchPathPlugin):
    """Hydra looks for config files in the modules that plug-ins declare in their group `conf`."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append `pkg://MODULE` for each of them, after attnsvm's own files."""
        for module in declared_modules("conf"):
            search_path.append(provider=module.partition(".")[0], path=f"pkg://{module}")


class AttnsvmSweeper(Sweeper):
    """A grid of runs under one folder: `params`, overrides of a single value or several each.

    The options are those of `AttnsvmSweeperConf`.
    """

    def __init__(self, **options: Any) -> None:
        self.options = AttnsvmSweeperConf(**options)
        check_fields(self.options, "hydra.sweeper.")
        self.params = self.options.params or {}

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
        hydra = self.composed.hydra
        check_subdir(self.composed)
        written = axes(self.params, arguments, self.context.config_loader)
        several = bool(self.params) or any(axis.is_swept for axis in written)
        check_sweep(self.composed, hydra, several)
        cells, configs, skipped = self._cells(grid(written))
        folder = self.folder = sweep_folder(self.composed, lambda: plan_digest(configs.values()))
        hydra.sweep.dir = str(folder)
        launcher = self._launcher()
        if any(config.dry_run for config in configs.values()):
            log_plan(folder, cells, configs)
            return
        from attnsvm.sweeps.status import progress

        def on_record(names: dict[str, str]) -> tuple[Cells, dict[str, Any]]:
            fields = {names[name]: fields_of(config) for name, config in configs.items()}
            return {names[name]: cell for name, cell in cells.items()}, fields

        again = rerun(hydra)
        names, composed = names_on_record(folder, configs, again), OmegaConf.to_yaml(self.composed)
        pending = begin_sweep(folder, *on_record(names), composed, again, skipped)
        with progress(folder, pending, done=len(cells) - len(pending)):
            self._launch(launcher, unobstructed(folder, pending))
        if again:  # what was not made again is still on record
            names = names_on_record(folder, configs)
            write_plan(folder, *on_record(names), skipped)
        if incomplete := close_sweep(folder, names.values(), ("done",) if again else FINISHED):
            # Hydra itself calls this only after a sweep without failures
            self.context.callbacks.on_multirun_end(config=self.composed, config_name=None)
            raise SweepIncompleteError(incomplete)

    def _cells(self, grid: list[list[str]]) -> tuple[Cells, dict[str, RunConfig], dict[str, str]]:
        """Return overrides and config of the distinct cells, by the name of their run's folder.

        And why cells cannot be, by their overrides; ConfigError unless they are to be skipped.
        """
        from attnsvm.experiment import check

        gc.freeze()  # else a fifth of the time goes to objects of torch, which stay
        cells, configs, skipped = Cells(), dict[str, RunConfig](), dict[str, str]()
        machine = job_machine(self.composed.hydra.launcher)
        common = set(grid[0]).intersection(*grid)
        for number, written in enumerate(each("checking run", grid)):
            try:
                cell, config = self.composer.settled(self.composed, written, number)
                if (name := run_name(config)) in cells:
                    continue
                check(config)
            except MissingConfigException:  # an option that does not exist
                raise
            except (ConfigError, HydraException, OmegaConfBaseException) as error:
                own = " ".join(word for word in written if word not in common)
                skipped[own or " ".join(written)] = one_line(user_message(error) or str(error))
            else:
                check_run(config, self.composed.hydra, machine)
                cells[name], configs[name] = cell, config
        if skipped:
            first, share = next(iter(skipped.values())), f"{len(skipped)} of {len(grid)} cells"
            if not cells:
                raise ConfigError(first)
            if self.options.invalid == "refuse":
                hint = f"hydra.sweeper.invalid=skip skips {share} of the grid that cannot be"
                raise ConfigError(f"{first}; {hint}")
            log.warning("%s of the grid are skipped: they cannot be", share)
            for words, why in list(skipped.items())[:FAILURES_LISTED]:
                log.warning("skipped %s: %s", words, why)
        if equal := len(grid) - len(cells) - len(skipped):
            log.info("%d of %d runs are equal to others: each runs once", equal, len(grid))
        return cells, configs, skipped

    def _launcher(self) -> Launcher:
        """Return the launcher; in jobs of several cells the callbacks are called for each cell."""
        options = self.composed.hydra.launcher
        has_gpu = any(options.get(name) for name in ("gpus_per_node", "gpus_per_task", "gres"))
        size = self.options.cells_per_job or (SHARING if has_gpu else 1)
        self.job, context = Task(self.task, self.context, self.composed, size), self.context
        if size > 1:
            context = HydraContext(context.config_loader, type(context.callbacks)())
        return Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=self.job, config=self.composed
        )

    def _launch(self, launcher: Launcher, pending: Cells) -> None:
        """Run the cells by the launcher; if it fails, submit again the cells that did not start.

        If it failed before any cell started, its error is raised.
        """
        first = len(pending)
        while pending:
            jobs = self.job.pack(pending)
            size = self.options.max_batch_size or len(jobs)
            try:
                for k in range(0, len(jobs), size):
                    for result in launcher.launch(jobs[k : k + size], initial_job_idx=k):
                        if result.status is not JobStatus.COMPLETED:  # an error outside of the run
                            log.error("job %s: %s", result.overrides, result._return_value)
                return
            except Exception as error:
                left = {
                    name: cell
                    for name, cell in pending.items()
                    if run_state(self.folder / name, verify=False).state == "missing"
                }
                if len(left) == first:
                    raise
                log.error("the launcher failed (%s); %d runs had not started", error, len(left))
                pending = left if len(left) < len(pending) else {}
