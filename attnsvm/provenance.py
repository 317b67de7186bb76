"""Who computed what, with which code, on what: the part of a record that is known at the start."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from attnsvm.config import RunConfig
from attnsvm.identity import option_names, result_fields, signature
from attnsvm.version import __version__

SLURM = {
    "job": "SLURM_JOB_ID",
    "node": "SLURMD_NODENAME",
    "cpus": "SLURM_CPUS_PER_TASK",
    "gpus": "SLURM_STEP_GPUS",
}
PACKAGES = ("torch", "numpy", "scipy", "cvxpy", "hydra-core", "pandas", "pyarrow")


def provenance(config: RunConfig, command: list[str]) -> dict[str, Any]:
    """Return identity, config, versions and hardware of a run that was asked for by `command`."""
    return {
        "signature": signature(config),
        "config": result_fields(config),
        "options": option_names(config),
        "sweep": config.sweep,
        "device": config.device,
        "overrides": command,
        "version": __version__,
        "git_revision": git_revision(),
        "code": code_digest(tuple(config.extensions)),
        "packages": {name: _package_version(name) for name in PACKAGES},
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
def code_digest(extensions: tuple[str, ...] = ()) -> str:
    """Return the sha256 (12 digits) of the sources of attnsvm and of the extension packages."""
    digest = hashlib.sha256()
    for package in ("attnsvm", *extensions):
        for path in _sources(package):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _sources(package: str) -> Iterable[Path]:
    """Return the Python files of a package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]


@cache
def git_revision() -> str | None:
    """Return the revision of the source tree, with `+` if it has changes; None outside git.

    Asked once: what runs is what this process imported.
    """
    git = shutil.which("git")
    if git is None:
        return None
    root = str(Path(__file__).parent)
    asked = [git, "-C", root, "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


@cache
def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
