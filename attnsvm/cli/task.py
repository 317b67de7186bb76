"""What a launcher runs: one cell of a sweep, or several one after the other.

Launchers know overrides only. So the overrides of a task are those of its first cell and one more
that holds all of its cells. Each cell is then run by Hydra as a job of its own, with its folder,
log and callbacks; `Task` is the launcher's job around them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import run_job
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from attnsvm.cli.signals import follow, hand_on, interruptible
from attnsvm.record import run_state

log = logging.getLogger(__name__)

PACKED = "hydra.sweeper.packed="
"""Start of the override with the cells of a task, in hexadecimal digits: no character of a cell is
special in it."""


def packed(cells: Sequence[Sequence[str]], first: int) -> list[str]:
    """Return the overrides of a task that runs `cells`, numbers `first`, `first` + 1, ..."""
    content = json.dumps([first, *map(list, cells)]).encode().hex()
    return [*cells[0], "hydra.job.chdir=false", f"{PACKED}{content}"]  # chdir is up to its cells


def unpacked(overrides: Sequence[str]) -> tuple[int | None, list[list[str]]]:
    """Return the number of the first cell of a task and its cells; None and itself of a cell."""
    if not overrides or not overrides[-1].startswith(PACKED):
        return None, [list(overrides)]
    first, *cells = json.loads(bytes.fromhex(overrides[-1].removeprefix(PACKED)))
    return first, cells


@dataclass(frozen=True)
class Task:
    """Runs the cells of a task, each composed and called back by Hydra as a job of its own.

    Attributes
    ----------
    run_cell : function
        Runs a composed cell.
    context, config : HydraContext, DictConfig
        Those of the sweep.
    driver : int
        The process that started the sweep: a worker ends when it is gone.
    """

    run_cell: TaskFunction
    context: HydraContext
    config: DictConfig
    driver: int

    def __call__(self, composed: DictConfig) -> Any:
        """Run the cell, or the cells of the task one after the other until one is interrupted."""
        follow(self.driver)
        first, cells = unpacked(HydraConfig.get().overrides.hydra)
        if first is None:
            return self.run_cell(composed)
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
