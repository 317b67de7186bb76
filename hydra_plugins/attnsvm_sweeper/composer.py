"""The configs of a sweep's cells, without the section of Hydra, which takes most of the time."""

# No `from __future__ import annotations`: see sweeper.

import copy
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, open_dict, read_write

from attnsvm.composition import split


class Composer:
    """Composes cells of one sweep.

    Parameters
    ----------
    loader : ConfigLoader
        Hydra's.
    master : DictConfig
        The config of the sweep.
    """

    def __init__(self, loader: Any, master: DictConfig) -> None:
        self._loader, self._master = loader, master
        self._parser = OverridesParser.create(config_loader=loader)
        self._bases: dict[tuple[str, ...], DictConfig] = {}

    def composed(self, cell: list[str]) -> DictConfig:
        """Return the config of the cell with these overrides, as Hydra composes it."""
        overrides = self._parser.parse_overrides(list(cell))
        if any(str(one.key_or_group).startswith("hydra") for one in overrides):
            return self._whole(cell)  # its section may be interpolated
        options, values = split(self._loader, overrides)
        key = tuple(options)
        if key not in self._bases:
            base = self._whole(options)
            with read_write(base), open_dict(base):
                base.pop("hydra")
            self._bases[key] = base
        config = copy.deepcopy(self._bases[key])
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
        return config

    def _whole(self, overrides: list[str]) -> DictConfig:
        config: DictConfig = self._loader.load_sweep_config(
            master_config=self._master, sweep_overrides=overrides
        )
        return config
