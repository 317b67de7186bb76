"""Tracking with Weights & Biases, without a network unless asked for."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnsvm.config import ConfigError, OneOf

from .tracker import TrackedRun, Tracker

MODES = OneOf(("offline", "online"))

RUN = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-(.+)")
"""The name of the folder that wandb makes for a run; it ends in the run's id."""


class Wandb(Tracker):
    """Log to Weights & Biases.

    Parameters
    ----------
    project : str
        Name of the project.
    mode : str
        offline: into the folder `wandb` of the sweep, which `wandb sync` sends later; online.
    """

    package = "wandb"

    def __init__(self, project: str = "attnsvm", mode: str = "offline") -> None:
        super().__init__()
        if not MODES.holds(mode):
            raise ConfigError(f"hydra.callbacks.wandb.mode={mode}: must be {MODES}")
        self.project, self.mode = project, mode

    def open(self, folder: Path) -> str:
        """Choose the folder of the sweep."""
        self.folder = folder
        return f"{folder}/wandb ({self.mode})"

    def logged(self) -> set[str]:
        """Return the runs that were logged from this folder, by their id."""
        names = (RUN.fullmatch(path.name) for path in (self.folder / "wandb").glob("*run-*"))
        return {found[1] for found in names if found}

    def log_run(self, run: TrackedRun) -> None:
        """Add a run; its id is its name, so that a second upload is no second run."""
        with self._begun(run.name, run.config) as made:
            made.summary.update(dict(run.metrics))

    def log_files(self, name: str, files: Mapping[str, Path]) -> None:
        """Add copies of the files to a run of their own."""
        with self._begun(f"figures-of-{name}", {}) as made:
            for place, path in files.items():
                copy = Path(made.dir, place)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                made.save(str(copy), base_path=made.dir, policy="now")

    def _begun(self, name: str, config: Mapping[str, Any]) -> Any:
        import wandb

        tool: Any = wandb
        settings = tool.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True
        )
        return tool.init(
            project=self.project,
            id=name,
            name=name,
            group=self.folder.name,
            dir=str(self.folder),
            config=dict(config),
            mode=self.mode,
            resume="allow" if self.mode == "online" else None,
            settings=settings,
        )
