"""The part of a record that is known at the start: config, code, versions, hardware."""

import importlib.metadata
import os
import platform
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

from attnsvm.config import RunConfig
from attnsvm.config.identity import extension_code, option_names, result_fields, signature
from attnsvm.config.probe import described_quantities
from attnsvm.config.sources import code_digest
from attnsvm.config.version import FORMAT, NUMBERS, __version__

SLURM = {
    "job": "SLURM_JOB_ID",
    "node": "SLURMD_NODENAME",
    "cpus": "SLURM_CPUS_PER_TASK",
    "gpus": "SLURM_STEP_GPUS",
}
PACKAGES = ("torch", "numpy", "scipy", "cvxpy", "hydra-core", "pandas", "pyarrow")


def provenance(config: RunConfig, command: list[str]) -> dict[str, Any]:
    """Return identity, config, versions and hardware of a run that was started by `command`."""
    return {
        "format": FORMAT,
        "numbers": NUMBERS,
        "signature": signature(config),
        "config": result_fields(config),
        "options": option_names(config),
        "probes": described_quantities(config.probe),
        "sweep": config.sweep,
        "question": config.question,
        "device": config.device,
        "overrides": command,
        "version": __version__,
        "git_revision": git_revision(Path(__file__).parent),
        "code": code_digest("attnsvm", *config.extensions),
        "extension_code": extension_code(config),
        "packages": _versions(),
        "python": platform.python_version(),
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "cpu_count": os.cpu_count(),
        },
        "slurm": {name: os.environ[key] for name, key in SLURM.items() if key in os.environ},
        "started_s": time.time(),
    }


@cache
def _versions() -> dict[str, str]:
    """Return the version of each package; a process reads them once."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


@cache
def git_revision(folder: Path) -> str | None:
    """Return the commit checked out in the git repository that contains `folder`, or None.

    None too where git is not installed. The digest `code` shows whether the sources differ from it.
    """
    command = ["git", "-C", str(folder), "rev-parse", "--verify", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
