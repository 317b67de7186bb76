"""What lies behind a config: the folder `conf`, packages, and the digest of their sources."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path


def conf_folder() -> Path:
    """Return the folder of our own config files."""
    return Path(str(files("attnsvm.conf")))


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
    # the folder of __init__.py only: in a checkout attnsvm finds its `sweeps` and `conf` outside
    places = [Path(spec.origin).parent] if spec.origin else spec.submodule_search_locations
    paths = (path for place in places for path in Path(place).rglob("*.py"))
    drawing = f"{package}/sweeps/" if package == "attnsvm" else "\0"  # reads records, makes none
    return sorted(path for path in paths if path.is_file() and drawing not in path.as_posix())
