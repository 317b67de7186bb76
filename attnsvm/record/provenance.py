"""The part of a record that is known at the start: config, code, versions, hardware."""

import importlib.metadata
import os
import platform
import re
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
COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
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

    It is read from git's files, so that no program from the environment and no hook or filter of
    the repository is run. The digest `code` shows whether the sources differ from the commit.
    """
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        try:
            if git.is_file():  # a worktree: "gitdir: PATH"
                git = parent / git.read_text().removeprefix("gitdir:").strip()
            if (git / "HEAD").is_file():
                return _commit(git)
        except (OSError, UnicodeDecodeError):
            return None
    return None


def _commit(git: Path) -> str | None:
    """Return the commit of HEAD in the repository's folder `git`."""
    head = (git / "HEAD").read_text().strip()
    if head.startswith("ref:"):
        name = head.removeprefix("ref:").strip()
        shared = git / "commondir"  # of a worktree
        common = git / shared.read_text().strip() if shared.exists() else git
        packed = common / "packed-refs"
        lines = packed.read_text().splitlines() if packed.exists() else []
        files = (place / name for place in (git, common) if (place / name).is_file())
        found = [*(path.read_text().strip() for path in files),
                 *(line.split()[0] for line in lines if line.endswith(f" {name}")), ""]  # fmt: skip
        head = found[0]
    return head if COMMIT.fullmatch(head) else None
