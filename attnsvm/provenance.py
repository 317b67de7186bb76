"""Who computed what, with which code, on what: the part of a record that is known at the start."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from attnsvm.config import RunConfig
from attnsvm.identity import option_names, result_fields, signature
from attnsvm.version import __version__

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
        "packages": {name: _package_version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "cpu_count": os.cpu_count(),
        },
        "started_s": time.time(),
    }


def git_revision() -> str | None:
    """Return the revision of the source tree, with `+` if it has changes; None outside git."""
    git = shutil.which("git")
    if git is None:
        return None
    root = str(Path(__file__).parent)
    asked = [git, "-C", root, "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
