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
    if spec is None or spec.submodule_search_locations is None:
        return [Path(spec.origin)] if spec and spec.origin and spec.has_location else []
    files = (
        path for place in spec.submodule_search_locations for path in Path(place).rglob("*.py")
    )
    return sorted(path for path in files if path.is_file())  # an editor's lock is a broken link
