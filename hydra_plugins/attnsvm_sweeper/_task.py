"""What a launcher runs: one cell of a sweep, or several one after the other.

Launchers know overrides only: those of a task of several cells are those of its first one. Each
cell is then run by Hydra as a job of its own, with its folder, log and callbacks; `Task` is the
launcher's job around them.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import run_job
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from attnsvm.cli.signals import follow, hand_on, interruptible
from attnsvm.record import run_state

log = logging.getLogger(__name__)

Cells = list[list[str]]
"""The overrides of every cell."""


@dataclass
class Task:
    """Runs the cells of a job, each composed and called back by Hydra as a job of its own.

    `run_cell` runs a composed cell; `context` and `config` are those of the sweep; `driver` is the
    process that started it: a worker ends when it is gone. `packs` has, for each job of several
    cells, the number of its first cell and the cells.
    """

    run_cell: TaskFunction
    context: HydraContext
    config: DictConfig
    driver: int
    packs: dict[int, tuple[int, Cells]] = field(default_factory=dict)

    def pack(self, cells: Cells, size: int) -> Cells:
        """Divide cells into jobs of `size` cells; return the overrides of every job."""
        starts = range(0, len(cells), size)
        self.packs = {n: (k, cells[k : k + size]) for n, k in enumerate(starts)}
        return [overrides_of(pack) for _, pack in self.packs.values()]

    def __call__(self, composed: DictConfig) -> Any:
        """Run the cell, or the cells of the job one after the other until one is interrupted."""
        follow(self.driver)
        if not self.packs:
            return self.run_cell(composed)
        first, cells = self.packs[HydraConfig.get().job.num]
        try:
            with interruptible():  # also between two cells
                for number, cell in enumerate(cells, start=first):
                    if self._state(cell, number) == "interrupted":
                        break
        except KeyboardInterrupt as stop:
            hand_on(stop)
        return None

    def _state(self, cell: list[str], number: int) -> str:
        """Run a cell as a job of Hydra and return its state; log an error outside of the run."""
        try:
            config = self.context.config_loader.load_sweep_config(self.config, cell)
            with open_dict(config):
                config.hydra.job.id = HydraConfig.get().job.id
                config.hydra.job.num = number
            done = run_job(
                task_function=self.run_cell,
                config=config,
                job_dir_key="hydra.sweep.dir",
                job_subdir_key="hydra.sweep.subdir",
                hydra_context=self.context,
            )
            _ = done.return_value  # raises its error
            assert done.hydra_cfg is not None
            return run_state(Path(done.hydra_cfg.hydra.runtime.output_dir), verify=False).state
        except Exception as error:
            log.error("job %s: %s", cell, error)
            return "failed"


def overrides_of(pack: Sequence[list[str]]) -> list[str]:
    """Return the overrides of a job of these cells."""
    return [*pack[0], "hydra.job.chdir=false"]  # the folder is up to its cells
