"""The packages behind a config, and the digest of their sources, which tells records apart."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path


def package_of(target: str) -> str:
    """Return the package on top of a `_target_`."""
    return target.partition(".")[0]


@cache
def code_digest(*packages: str) -> str:
    """Return the sha256 (12 digits) of the Python files of packages, without importing them."""
    digest = hashlib.sha256()
    for package in packages:
        for path in _sources(package):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _sources(package: str) -> Iterable[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]
