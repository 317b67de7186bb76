"""The commands of the main job, as a user types them: `attnsvm --help`; `main_job.sweeps`."""

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks._measure import OURS, Program, Work


def run(*words: str) -> None:
    """Run `attnsvm words` in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("attnsvm")), *words]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)


def programs(*words: str) -> dict[str, Program]:
    return {OURS: Program(partial(run, *words))}


def _work(*words: str) -> Work:
    return Work("attnsvm", "command", words, programs, cores=None)


WORKS = [_work("--help")]
SWEEPS = [
    _work(f"sweep={name}", "hydra/launcher=joblib") for name in ("rank_vs_d", "correlation_vs_d")
]
