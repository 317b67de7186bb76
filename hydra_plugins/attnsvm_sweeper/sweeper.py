"""The basic grid sweeper, checked before the first job, resumed, and closed by a report.

Hydra's own sweeper composes the cells and hands them to the launcher. Added here: every cell is
validated before any runs, equal cells run once, finished ones are not run again, and the sweep ends
with its tables, figures and report whatever happened to its jobs.
"""

# No `from __future__ import annotations`: Hydra scans plugins without entering them in sys.modules,
# and a dataclass with postponed annotations looks itself up there.

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override

log = logging.getLogger(__name__)

Cell = list[str]
"""The overrides that make one run of the sweep's master config."""


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
        SweepIncomplete
            At the very end, if a cell has no complete record.
        """
        try:
            super().sweep(arguments)
        finally:
            if self.overrides is not None:  # the cells were valid, so there is something to tell
                self._close()

    def split_arguments(  # type: ignore[override]
        self, overrides: list[Override], max_batch_size: int | None
    ) -> list[list[Cell]]:
        """Return the batches of cells to run: valid, distinct, not yet recorded."""
        from attnsvm import record

        (grid,) = BasicSweeper.split_arguments(overrides, None)
        cells = self._named(grid)
        record.write_plan(self._folder, cells)
        todo = [cell for name, cell in cells.items() if not record.is_done(self._folder / name)]
        log.info("%d runs, %d of them done already", len(cells), len(cells) - len(todo))
        return list(self.split_overrides_to_chunks(todo, max_batch_size)) if todo else []

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Do nothing: all cells were composed and validated before the first batch."""

    def _named(self, grid: Iterable[Cell]) -> dict[str, Cell]:
        """Return the distinct cells of `grid` by the name of their run's folder."""
        from attnsvm.identity import run_name, validated

        cells: dict[str, Cell] = {}
        assert self.hydra_context is not None
        assert self.config is not None
        for cell in grid:
            composed = self.hydra_context.config_loader.load_sweep_config(
                master_config=self.config, sweep_overrides=list(cell)
            )
            cells.setdefault(run_name(validated(composed)), cell)
        return cells

    def _close(self) -> None:
        from attnsvm.app import SweepIncompleteError
        from sweeps.aggregate import load
        from sweeps.report import write_report

        frames = load(self._folder)
        files = write_report(frames)
        for path in (files.html, *files.figures, *files.tables):
            log.info("wrote %s", path)
        lacking = frames.incomplete
        if len(lacking):
            counts = ", ".join(
                f"{n} {state}" for state, n in lacking["state"].value_counts().items()
            )
            raise SweepIncompleteError(
                f"{self._folder}: {counts} of {len(frames.runs)} runs; the report names them, "
                f"and the same command runs them again"
            )

    @property
    def _folder(self) -> Path:
        assert self.config is not None
        return Path(self.config.hydra.sweep.dir)
