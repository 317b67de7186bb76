"""The basic grid sweeper, checked before the first job, resumed, and closed by a report.

Hydra's own sweeper parses the grid and its launchers run the cells. Added here: every cell is
validated before any runs, equal cells run once, finished ones are not run again, no cell sinks the
others, and the sweep ends with its tables, figures and report whatever happened to its jobs. What
is true stands on disk: no job's return value is read.
"""

# No `from __future__ import annotations`: Hydra scans plugins without entering them in sys.modules,
# and a dataclass with postponed annotations looks itself up there.

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobStatus
from omegaconf import OmegaConf

from attnsvm.composition import composed_once

log = logging.getLogger(__name__)

FAILURES_TOLD = 20
"""How many runs without a record the summary names; the report names all."""


@dataclass
class AttnsvmSweeperConf(BasicSweeperConf):
    """Options of the basic sweeper: `params` is the grid, `max_batch_size` splits it."""

    _target_: str = "hydra_plugins.attnsvm_sweeper.sweeper.AttnsvmSweeper"


ConfigStore.instance().store(group="hydra/sweeper", name="attnsvm", node=AttnsvmSweeperConf)


class AttnsvmSweeper(BasicSweeper):
    """A grid of runs under one folder."""

    def sweep(self, arguments: list[str]) -> None:
        """Run the cells that have no complete record, then write tables, figures and report.

        Raises
        ------
        ConfigError
            Before any run, if a cell is not valid or the folder holds records of other code.
        SweepIncompleteError
            At the very end, if a cell has no complete record.
        """
        from sweeps.progress import Progress

        cells, configs = self._cells(self._grid(arguments))
        if any(config.dry_run for config in configs.values()):
            self._list(cells, configs)
            return
        self._check_folder(configs)
        todo = self._open(cells)
        with Progress(self._folder, todo, done=len(cells) - len(todo)):
            self._launch(todo)
        self._close()

    # --- the grid ---------------------------------------------------------------------------------

    def _grid(self, arguments: list[str]) -> list[list[str]]:
        """Return the overrides of every cell."""
        assert self.hydra_context is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        (grid,) = self.split_arguments(overrides, None)
        return grid

    def _cells(self, grid: Iterable[list[str]]) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Return overrides and config of the distinct cells, by the name of their run's folder."""
        from attnsvm.experiment import check
        from attnsvm.identity import run_name, validated

        cells: dict[str, list[str]] = {}
        configs: dict[str, Any] = {}
        assert self.hydra_context is not None
        assert self.config is not None
        loader: Any = self.hydra_context.config_loader
        by_hydra = partial(loader.load_sweep_config, self.config)
        for cell in grid:
            config = validated(composed_once(loader, self.config, cell, by_hydra, hydra=False))
            name = run_name(config)
            if name not in cells:
                check(config)
            cells.setdefault(name, cell)
            configs.setdefault(name, config)
        return cells, configs

    def _list(self, cells: dict[str, list[str]], configs: dict[str, Any]) -> None:
        """Tell what would be run and about how long it would take."""
        from attnsvm.dry_run import estimated_s
        from attnsvm.state import run_state
        from sweeps.progress import duration

        states = {name: run_state(self._folder / name).state for name in cells}
        for name, cell in cells.items():
            log.info("%-11s %s  %s", states[name], name, " ".join(cell))
        todo = [configs[name] for name, state in states.items() if state != "done"]
        log.info("%d runs, %d of them to do", len(cells), len(todo))
        log.info("about %s on one process, at most", duration(estimated_s(todo)))

    # --- the folder -------------------------------------------------------------------------------

    def _check_folder(self, configs: dict[str, Any]) -> None:
        """Raise ConfigError if the folder must not be added to."""
        from attnsvm.config import ConfigError
        from attnsvm.provenance import code_digest
        from attnsvm.state import RUN_FILE, run_state

        for name in configs:
            if (self._folder / name).is_symlink():
                raise ConfigError(f"{self._folder / name}: a link; allowed is a folder of its own")
        if any(config.mixed_code for config in configs.values()):
            return
        allowed = {code_digest(tuple(config.extensions)) for config in configs.values()}
        found = (run_state(p.parent, verify=False) for p in self._folder.glob(f"*/{RUN_FILE}"))
        others = Counter(
            f"version {state.run.get('version')}, code {state.run.get('code')}"
            for state in found
            if state.state == "done" and state.run.get("code") not in allowed
        )
        if others:
            listed = "; ".join(f"{n} of {code}" for code, n in others.most_common(3))
            raise ConfigError(
                f"{self._folder}: holds records of other code than this ({listed}). Choose another "
                f"folder with hydra.sweep.dir=DIR, or move this one away, or mix them knowingly "
                f"with mixed_code=true"
            )

    def _open(self, cells: dict[str, list[str]]) -> dict[str, list[str]]:
        """Write the plan of the sweep, tidy up after the dead, return the cells that are to do."""
        from attnsvm import record
        from attnsvm.state import run_state
        from attnsvm.storage import remove_orphans, write_atomically

        record.write_plan(self._folder, cells)
        write_atomically(self._folder / "multirun.yaml", OmegaConf.to_yaml(self.config).encode())
        for folder in (self._folder, self._folder / "figures", self._folder / "tables"):
            remove_orphans(folder)
        states = {name: run_state(self._folder / name).state for name in cells}
        for name, state in states.items():
            if state == "done":
                record.tidy(self._folder / name)
        counts = ", ".join(f"{n} {state}" for state, n in sorted(Counter(states.values()).items()))
        log.info("%d runs: %s", len(cells), counts)
        return {n: cell for n, cell in cells.items() if states[n] not in ("done", "running")}

    @property
    def _folder(self) -> Path:
        assert self.config is not None
        return Path(self.config.hydra.sweep.dir)

    # --- the jobs ---------------------------------------------------------------------------------

    def _launch(self, todo: dict[str, list[str]]) -> None:
        """Hand the cells to the launcher; again those that never began when it broke down.

        Raises
        ------
        Exception
            The launcher's, if it broke down before any cell began.
        """
        from attnsvm.state import run_state

        everything = todo
        while todo:
            broken = self._launched(list(todo.values()))
            if broken is None:
                return
            left = {
                name: cell
                for name, cell in todo.items()
                if run_state(self._folder / name, verify=False).state == "missing"
            }
            if len(left) == len(everything):
                raise broken
            log.error("the launcher broke down (%s); %d runs had not begun", broken, len(left))
            todo = left if len(left) < len(todo) else {}

    def _launched(self, cells: list[list[str]]) -> Exception | None:
        """Run the cells in batches; return the exception that stopped the launcher, if any."""
        assert self.launcher is not None
        first = 0
        for batch in self.split_overrides_to_chunks(cells, self.max_batch_size):
            try:
                results = self.launcher.launch(batch, initial_job_idx=first)
            except Exception as error:
                return error
            for result in results:
                if result.status is not JobStatus.COMPLETED:
                    log.error("job %s: %s", result.overrides, result._return_value)
            first += len(batch)
        return None

    # --- the end ----------------------------------------------------------------------------------

    def _close(self) -> None:
        from attnsvm.app import SweepIncompleteError
        from sweeps.aggregate import load
        from sweeps.report import one_line, write_report

        frames = load(self._folder)
        files = write_report(frames)
        for path in (files.html, *files.figures, *files.tables):
            log.info("wrote %s", path)
        lacking = frames.incomplete
        if lacking.empty:
            return
        assert self.hydra_context is not None
        assert self.config is not None
        # Hydra calls this itself only after a sweep without failures
        self.hydra_context.callbacks.on_multirun_end(config=self.config, config_name=None)
        counts = ", ".join(f"{n} {state}" for state, n in lacking["state"].value_counts().items())
        lines = [
            one_line(f"  {row.state} {row.run}: {row.reason} ({getattr(row, 'place', '') or '-'})")
            for row in lacking.head(FAILURES_TOLD).itertuples()
        ]
        raise SweepIncompleteError(
            f"{self._folder}: {counts} of {len(frames.runs)} runs; the report names them all, "
            "and the same command runs them again\n" + "\n".join(lines)
        )
