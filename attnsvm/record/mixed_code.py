"""The code that made a record; `mixed_code=true` allows records of several codes in a folder."""

from __future__ import annotations

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from attnsvm.config import ConfigError
from attnsvm.record.run import RUN_FILE
from attnsvm.record.state import run_state
from attnsvm.record.text import shortened


@cache
def code_digest(extensions: tuple[str, ...] = ()) -> str:
    """Return the sha256 (12 digits) of the sources of attnsvm and of the extension packages."""
    digest = hashlib.sha256()
    for package in ("attnsvm", *extensions):
        for path in _sources(package):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _sources(package: str) -> Iterable[Path]:
    """Return the Python files of a package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]


def refuse_mixed_code(folder: Path, extensions: Iterable[list[str]]) -> None:
    """Raise ConfigError if the sweep's folder holds records that other code made.

    Parameters
    ----------
    folder : Path
        The sweep's folder.
    extensions : iterable of list of str
        The extension packages of every run that is to be added.
    """
    own = {code_digest(tuple(names)) for names in extensions}
    states = (run_state(p.parent, verify=False) for p in folder.glob(f"*/{RUN_FILE}"))
    others = Counter(
        shortened(f"version {state.run['version']}, code {state.run['code']}", 60)
        for state in states
        if state.state == "done" and state.run["code"] not in own
    )
    if others:
        listed = "; ".join(f"{n} of {code}" for code, n in others.most_common(3))
        raise ConfigError(
            f"{folder}: holds records made by other code ({listed}). Choose another folder with "
            f"hydra.sweep.dir=DIR, or move this folder away, or allow both codes with "
            f"mixed_code=true"
        )
