"""Run the installed commands as a user does: another process, another directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent


Finished = subprocess.CompletedProcess[str]


def attnsvm(*arguments: str, cwd: Path, command: str = "attnsvm") -> Finished:
    """Return the finished process of `command arguments` in `cwd`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    environment.pop("HYDRA_FULL_ERROR", None)
    return subprocess.run(
        [str(BIN / command), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


SMALL = ("trials=3", "data.n=3", "data.T=3", "data.d=4", "optimizer.steps=50")
