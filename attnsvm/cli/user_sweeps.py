"""Config files and extensions that a command names: sweeps of the user and of plug-ins.

Sweeps lie in `DIR/sweep/NAME.yaml`, DIR being named by `--config-dir` or `hydra.searchpath`, or the
folder of a module that a plug-in declares in its group `conf`. The options that `extensions`
declare must be known to Hydra before it composes the config, so both are read from the command
line first, by Hydra's own parser of overrides.
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from attnsvm.cli.errors import FLAGS, VALUED, WORDS
from attnsvm.config import ConfigError
from attnsvm.config.names import did_you_mean
from attnsvm.config.plugins import declared_modules
from attnsvm.config.sources import conf_folder

_flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
_flags.add_argument("--info", "-i", nargs="?")
for _names in FLAGS:
    _flags.add_argument(*_names.split(), action="store_true")
for _names in VALUED:
    _flags.add_argument(*_names.split())


def overridden(words: Sequence[str], field: str) -> list[str]:
    """Return the words that a command sets `field` to: one, those of a list or those of a grid."""
    found: list[str] = []
    for word in words:
        with suppress(HydraException):  # a flag, or one whose error Hydra reports
            override = OverridesParser.create().parse_override(word)
            if override.key_or_group == field:
                value = override.value()
                value = value.list if isinstance(value, ChoiceSweep) else value
                found += map(str, value if isinstance(value, list) else [value])
    return found


def config_folders(words: Sequence[str]) -> list[Path]:
    """Return the folders of the user's config files that a command names."""
    flags, rest = _flags.parse_known_args(words)
    named = [flags.config_dir] if flags.config_dir else []
    named += overridden([w for w in rest if w.startswith("hydra.")], "hydra.searchpath")
    return [Path(one.removeprefix("file://")) for one in named if not one.startswith("pkg://")]


def _chosen_sweeps(words: Sequence[str]) -> list[str]:
    return [name for name in overridden(words, "sweep") if name.isidentifier()]


def named_extensions(command: Sequence[str]) -> list[str]:
    """Return the packages that a command, or a config file that it names, has in `extensions`.

    Names that cannot be those of a package are left out: the check of the config reports them.
    """
    words = [*command, *os.environ.get("COMP_LINE", "").split()]  # which a shell is to complete
    named = overridden(words, "extensions")
    files = [f"sweep/{name}.yaml" for name in _chosen_sweeps(words)]
    if primary := _flags.parse_known_args(words)[0].config_name:
        files.append(f"{primary.removesuffix('.yaml')}.yaml")
    for folder in (*config_folders(words), conf_folder()):
        for name in files:
            with suppress(Exception):  # there is none; or Hydra reports what is wrong with it
                content: Any = OmegaConf.to_container(OmegaConf.load(folder / name), resolve=False)
                named += content["extensions"] if isinstance(content["extensions"], list) else []
    return [one for one in dict.fromkeys(map(str, named)) if one.isidentifier()]


def user_sweeps(words: Sequence[str]) -> dict[str, list[Path]]:
    """Return the sweep files that are not attnsvm's, by the name of the sweep."""
    folders = config_folders(words)
    for module in declared_modules("conf"):
        spec = importlib.util.find_spec(module)
        folders += map(Path, (spec and spec.submodule_search_locations) or ())
    found: dict[str, list[Path]] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("sweep/*.yaml"))):
        found.setdefault(path.stem, []).append(path)
    return found


def flags_first(words: Sequence[str]) -> list[str]:
    """Return the words of a command with its flags in front, as Hydra needs them."""
    flags, rest = list(words), _flags.parse_known_args(words)[1]
    for word in rest:
        flags.remove(word)
    return [*flags, *rest]


def check_words(words: Sequence[str]) -> None:
    """Raise ConfigError for a flag that is unknown or a chosen file that Hydra would misread."""
    if unknown := [word for word in _flags.parse_known_args(words)[1] if word.startswith("-")]:
        must = f"must be FIELD=VALUE or {' | '.join(WORDS)}; see attnsvm --help"
        raise ConfigError(f"{unknown[0]}: {did_you_mean(unknown[0], WORDS)}{must}")
    flags = vars(_flags.parse_known_args(words)[0])
    modes = [name for name in ("run", "multirun", "cfg", "info", "shell_completion") if flags[name]]
    if len(modes) > 1:
        raise ConfigError(f"{' '.join(f'--{name}' for name in modes)}: must be one of them")
    if flags["resolve"] and not flags["cfg"]:
        raise ConfigError("--resolve: must be with --cfg, as in --cfg job --resolve")
    completion = {"-sc", "--shell-completion"} & set(words)
    if completion and not any(
        word.startswith(("install=", "uninstall=", "query=")) for word in words
    ):
        must = "must be followed by install=SHELL, uninstall=SHELL or query=SHELL, as install=bash"
        raise ConfigError(f"{completion.pop()}: {must}")
    chosen = _chosen_sweeps(words)
    if len(chosen) > 1:
        must = "must be one experiment: each has a grid and a report of its own"
        raise ConfigError(f"sweep={','.join(chosen)}: {must}")
    found = user_sweeps(words) if chosen else {}
    for name in chosen:
        files, ours = found.get(name, []), conf_folder() / "sweep" / f"{name}.yaml"
        there = [*files, *([ours] if ours.is_file() else [])]
        if len(there) > 1:
            raise ConfigError(f"sweep={name}: must be one file; found {', '.join(map(str, there))}")
        for path in files:
            lines = path.read_text(errors="replace").replace(" ", "").splitlines()
            if "#@package_global_" not in lines:
                raise ConfigError(f"{path}: its first line must be `# @package _global_`")


def check_sweep(composed: DictConfig, hydra: Any, has_grid: bool) -> None:
    """Raise ConfigError if the file of the chosen sweep lacks its name, its mode or its grid.

    `hydra` is Hydra's own section; `has_grid` whether several values of something are given.
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
