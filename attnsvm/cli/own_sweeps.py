"""Sweep files of the user and of plug-ins: where they are, and what they must have.

They lie in `DIR/sweep/NAME.yaml`, DIR being named by `--config-dir` or `hydra.searchpath`, or the
folder of a module that a plug-in declares in its group `conf`.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from attnsvm.config import ConfigError
from attnsvm.config.code import conf_folder
from attnsvm.config.plugins import declared_modules

CHOSEN = re.compile(r"\+{0,2}sweep=(\w+)")
SEARCHED = re.compile(r"hydra\.searchpath=\[?(.*?)\]?")
HEADER = "# @package _global_"


def config_folders(words: Sequence[str]) -> list[Path]:
    """Return the folders of the user's own config files that a command names."""
    named = values_of(words, "--config-dir", "-cd")
    for word in words:
        if found := SEARCHED.fullmatch(word):
            named += [one.strip("'\" ") for one in found[1].split(",")]
    return [Path(one.removeprefix("file://")) for one in named if not one.startswith("pkg://")]


def values_of(words: Sequence[str], *flags: str) -> list[str]:
    """Return the values of a flag: the next word, or what follows an equals sign."""
    found = [after for word, after in pairwise(words) if word in flags]
    joined = (word.partition("=") for word in words)
    return found + [value for flag, equals, value in joined if flag in flags and equals]


def chosen_sweeps(words: Sequence[str]) -> list[str]:
    """Return the names after `sweep=` in a command."""
    return [found[1] for word in words if (found := CHOSEN.fullmatch(word))]


def own_sweeps(words: Sequence[str]) -> dict[str, list[Path]]:
    """Return the sweep files that are not attnsvm's, by the name of the sweep."""
    found: dict[str, list[Path]] = {}
    for folder in (*config_folders(words), *_plugin_folders()):
        for path in sorted(folder.glob("sweep/*.yaml")):
            found.setdefault(path.stem, []).append(path)
    return found


def _plugin_folders() -> list[Path]:
    folders: list[Path] = []
    for module in declared_modules("conf"):
        spec = importlib.util.find_spec(module)
        folders += map(Path, (spec and spec.submodule_search_locations) or ())
    return folders


def check_chosen_file(words: Sequence[str]) -> None:
    """Raise ConfigError if Hydra would not read the chosen sweep's file as it is meant."""
    own = own_sweeps(words)
    for name in chosen_sweeps(words):
        files = own.get(name, [])
        both = [*files, *([conf_folder() / "sweep" / f"{name}.yaml"] if files else [])]
        there = [str(path) for path in both if path.is_file()]
        if len(there) > 1:
            raise ConfigError(f"sweep={name}: must be one file; found {', '.join(there)}")
        comments = [path.read_text(errors="replace").splitlines() for path in files]
        for path, lines in zip(files, comments, strict=True):
            if HEADER.replace(" ", "") not in (line.replace(" ", "") for line in lines):
                raise ConfigError(f"{path}: its first line must be `{HEADER}`")


def check_sweep(composed: DictConfig, hydra: Any, has_grid: bool) -> None:
    """Raise ConfigError if the file of the chosen sweep lacks its name, its mode or its grid.

    Parameters
    ----------
    composed : DictConfig
        The config.
    hydra : DictConfig
        Hydra's own section.
    has_grid : bool
        Whether several values of something are given.
    """
    # not `hydra.overrides`, to which Hydra adds the mode itself
    name = hydra.runtime.choices.get("sweep")
    if name is None or any("hydra.mode=" in word for word in sys.argv[1:]):
        return
    if composed.sweep != name:
        raise ConfigError(f"sweep={name}: its file must have the line `sweep: {name}`")
    if not has_grid:
        raise ConfigError(
            f"sweep={name}: must have a grid; its file must have `hydra: {{mode: MULTIRUN, "
            f"sweeper: {{params: {{FIELD: 'VALUE,VALUE'}}}}}}`"
        )
