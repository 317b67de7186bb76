"""The packages that a command names in `extensions`, found before Hydra composes the config.

The options that they declare must be known to Hydra before it looks for them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from attnsvm.cli.own_sweeps import chosen_sweeps, config_folders, values_of
from attnsvm.config.code import conf_folder

NAMED = re.compile(r"\+{0,2}extensions=(.*)")
COMPLETED = "COMP_LINE"
"""The environment variable in which a shell passes the command that is to be completed."""


def named_extensions(command: Sequence[str]) -> list[str]:
    """Return the packages that a command names in `extensions`, or the config files that it names.

    Names that cannot be those of a package are left out: the check of the config reports them.
    """
    words = [*command, *os.environ.get(COMPLETED, "").split()]
    named = [name for word in words if (found := NAMED.fullmatch(word)) for name in
             re.split(r"[\[\],'\"\s]+", found[1])]  # fmt: skip
    for path in _config_files(words):
        named += _extensions_in(path)
    return [name for name in dict.fromkeys(named) if name.isidentifier()]


def _config_files(words: Sequence[str]) -> Iterator[Path]:
    """Yield the files of the chosen sweep and of the primary config."""
    names = [f"sweep/{name}.yaml" for name in chosen_sweeps(words)]
    primary = values_of(words, "--config-name", "-cn")
    names += [f"{name.removesuffix('.yaml')}.yaml" for name in primary]
    for folder in (*config_folders(words), conf_folder()):
        yield from (folder / name for name in names)


def _extensions_in(path: Path) -> list[str]:
    """Return the field `extensions` of a config file; Hydra reports what is wrong with the file."""
    try:
        named: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except Exception:
        return []
    listed = named.get("extensions") if isinstance(named, dict) else None
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
