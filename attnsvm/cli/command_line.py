"""The words of a command: its flags, its overrides, and the config files that they name.

Sweeps and experiments lie in `DIR/sweep/NAME.yaml` and `DIR/experiment/NAME.yaml`, DIR being named
by `--config-dir` or `hydra.searchpath`, or the folder of a module that a plug-in declares in its
group `conf`. The options that `extensions`
declare must be known to Hydra before it composes the config, so both are read from the command
line first, by Hydra's own parser of overrides.
"""

import argparse
import importlib.util
import os
import re
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

_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
_parser.add_argument("--info", "-i", nargs="?")
for _names in FLAGS:
    _parser.add_argument(*_names.split(), action="store_true")
for _names in VALUED:
    _parser.add_argument(*_names.split())


PACKAGED = ("sweep", "experiment")
"""Groups whose files set fields of any group."""


class CommandLine:
    """The words of a command; flags may stand anywhere among the overrides."""

    def __init__(self, words: Sequence[str]) -> None:
        self.flags, self.overrides = _parser.parse_known_args(words)
        flags = list(words)
        for word in self.overrides:
            flags.remove(word)
        self.flags_first = [*flags, *self.overrides]
        """The words in the order that Hydra needs."""

    def values(self, field: str, completed: str = "") -> list[str]:
        """Return the values of `field`: one, those of a list or those of a grid.

        `completed` is a command that a shell is to complete, whose words count too.
        """
        values: list[str] = []
        for word in [*self.overrides, *completed.split()]:
            with suppress(HydraException):  # a flag, or one whose error Hydra reports
                override = OverridesParser.create().parse_override(word)
                if override.key_or_group == field:
                    value = override.value()
                    value = value.list if isinstance(value, ChoiceSweep) else value
                    values += map(str, value if isinstance(value, list) else [value])
        return values

    def chosen(self, group: str) -> list[str]:
        """Return the options of `group` that the command names."""
        named = (name for name in self.values(group) if name != str(None))
        return [name for name in named if re.fullmatch(r"[\w-]+", name)]

    @property
    def folders(self) -> list[Path]:
        """The folders of the user's config files."""
        folders = [self.flags.config_dir] if self.flags.config_dir else []
        folders += self.values("hydra.searchpath")
        return [Path(f.removeprefix("file://")) for f in folders if not f.startswith("pkg://")]

    @property
    def extensions(self) -> list[str]:
        """The packages that the command, or a config file that it names, has in `extensions`.

        Names that cannot be those of a package are left out: the check of the config reports them.
        """
        names = self.values("extensions", os.environ.get("COMP_LINE", ""))
        files = [f"{group}/{name}" for group in PACKAGED for name in self.chosen(group)]
        files += [self.flags.config_name.removesuffix(".yaml")] if self.flags.config_name else []
        for path in (folder / name for folder in (*self.folders, conf_folder()) for name in files):
            with suppress(Exception):  # there is none; or Hydra reports what is wrong with it
                content: Any = OmegaConf.load(f"{path}.yaml").extensions
                names += content if OmegaConf.is_list(content) else []
        return [name for name in dict.fromkeys(map(str, names)) if name.isidentifier()]

    @property
    def topics(self) -> list[str]:
        """What help is asked for: the overrides but `extensions`."""
        return [word for word in self.overrides if not word.startswith("extensions=")]

    def user_files(self, group: str) -> dict[str, list[Path]]:
        """Return the files of sweeps or experiments that are not attnsvm's, by name."""
        folders = self.folders
        for module in declared_modules("conf"):
            spec = importlib.util.find_spec(module)
            folders += map(Path, (spec and spec.submodule_search_locations) or ())
        files: dict[str, list[Path]] = {}
        for folder in folders:
            for path in sorted(folder.glob(f"{group}/*.yaml")):
                files.setdefault(path.stem, []).append(path)
        return files

    def check(self) -> None:
        """Raise ConfigError for an unknown flag, or a file that Hydra would misread."""
        for word in self.overrides:
            if word.startswith("-"):
                must = f"must be FIELD=VALUE or {' | '.join(WORDS)}; see attnsvm --help"
                raise ConfigError(f"{word}: {did_you_mean(word, WORDS)}{must}")
        if len(sweeps := self.chosen("sweep")) > 1:
            must = "must be one experiment: each has a grid and a report of its own"
            raise ConfigError(f"sweep={','.join(sweeps)}: {must}")
        for group in PACKAGED:
            known = self.user_files(group)
            for name in self.chosen(group):
                files = known.get(name, [])
                listed = [*files, *conf_folder().glob(f"{group}/{name}.yaml")]
                if len(listed) > 1:
                    must = f"must be one file, is {', '.join(map(str, listed))}"
                    raise ConfigError(f"{group}={name}: {must}")
                for path in files:
                    if not re.search(
                        "^# *@package +_global_", path.read_text(errors="replace"), re.M
                    ):
                        raise ConfigError(f"{path}: its first line must be `# @package _global_`")
                if group == "experiment" and not self.folders and not declared_modules("conf"):
                    must = f"must be a file DIR/experiment/{name}.yaml, with --config-dir DIR"
                    raise ConfigError(f"experiment={name}: {must}")


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
        grid = "`hydra: {mode: MULTIRUN, sweeper: {params: {FIELD: 'VALUE,VALUE'}}}`"
        raise ConfigError(f"sweep={name}: must have a grid; its file must have {grid}")
