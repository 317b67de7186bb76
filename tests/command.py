"""Run the installed commands as a user does: another process, another directory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

BIN = Path(sys.executable).parent


Finished = subprocess.CompletedProcess[str]


def environment(of: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which commands are run, made from `of` (this process's)."""
    made = {**(of or os.environ), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    made.pop("HYDRA_FULL_ERROR", None)
    return made


def attnsvm(
    *arguments: str, cwd: Path, command: str = "attnsvm", env: dict[str, str] | None = None
) -> Finished:
    """Return the finished process of `command arguments` in `cwd`."""
    return subprocess.run(
        [str(BIN / command), *arguments],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def begun(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Return the process `attnsvm arguments`, which runs on and talks to `cwd`/driver.log."""
    with (cwd / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [str(BIN / "attnsvm"), *arguments],
            cwd=cwd,
            env=environment(env),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def until(holds: Callable[[], object], seconds: float = 60, what: str = "it") -> None:
    """Wait until `holds()`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds:g} s"
        time.sleep(0.05)


SMALL = ("trials=3", "data.n=3", "data.T=3", "data.d=4", "optimizer.steps=50")
