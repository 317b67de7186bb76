"""The configs of a sweep's cells: options are composed once, values are set in copies.

Hydra composes a cell in about 0.1 s, twice for every cell: a sweep of 500 cells would wait a minute
before its first run. Most cells choose the same options and differ in values.
"""

import copy

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException


class CellComposer(ConfigLoaderImpl):
    """Hydra's composer for the cells of one sweep; it composes each choice of options once."""

    def __init__(self, search_path: ConfigSearchPath) -> None:
        super().__init__(search_path)
        self._composed: dict[tuple[str, ...], DictConfig] = {}

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        """Return the config of a job as Hydra composes it, in the folder of its sweep."""
        overrides = OverridesParser.create().parse_overrides(list(sweep_overrides))
        # Hydra itself composes its own section, added and removed fields, and what is an error
        changed = all(one.type == OverrideType.CHANGE for one in overrides)
        plain = changed and not any(one.is_hydra_override() for one in overrides)
        run = self._with_values(master_config, overrides) if plain else None
        if run is None:
            run = super().load_sweep_config(master_config, sweep_overrides)
        run.hydra.sweep.dir = master_config.hydra.sweep.dir
        return run

    def _with_values(self, master: DictConfig, overrides: list[Override]) -> DictConfig | None:
        """Return the config of the chosen options with its values set; None at an error."""
        groups = master.hydra.runtime.choices  # a dict sets values, even if its key is a group
        options = [
            one
            for one in overrides
            if one.key_or_group in groups and not isinstance(one.value(), dict)
        ]
        words = tuple(str(one.input_line) for one in options)
        if words not in self._composed:
            self._composed[words] = super().load_sweep_config(master, list(words))
        run: DictConfig = copy.deepcopy(self._composed[words])
        try:
            for one in overrides:
                if one not in options:
                    OmegaConf.update(run, one.key_or_group, one.value(), merge=True)
        except OmegaConfBaseException:
            return None
        names = run.hydra.job.config.override_dirname
        run.hydra.job.override_dirname = get_overrides_dirname(
            overrides, names.exclude_keys, names.item_sep, names.kv_sep
        )
        run.hydra.overrides.task = [str(one.input_line) for one in overrides]
        OmegaConf.copy_cache(from_config=master, to_config=run)
        return run
