"""The configs of a sweep's cells: options are composed once, values are set in copies.

Hydra composes a cell in about 0.1 s, twice for every cell; most cells of a grid choose the same
options and differ in values, which can be set in a copy. This is the only file that uses Hydra's
private modules: checked on hydra-core 1.3.8 by `tests/cli/test_composing.py`.
"""

from __future__ import annotations

import copy

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from attnsvm.cli.task import PACKED

_parser = OverridesParser.create()
_bases: dict[tuple[str, ...], tuple[DictConfig, DictConfig]] = {}
"""A config composed from options alone: the run and Hydra's own section."""

_groups: dict[tuple[str, ...], CachingConfigRepository] = {}
"""The config groups, by all that says where they are looked for."""


class CellComposer(ConfigLoaderImpl):
    """Hydra's composer; it composes each choice of options only once per process."""

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        """Return the config of a job as Hydra composes it, in the folder of its sweep.

        That of a task of several cells is the config of the first, and holds the others.
        """
        if sweep_overrides and sweep_overrides[-1].startswith(PACKED):
            run = self.load_sweep_config(master_config, sweep_overrides[:-1])
            run.hydra.overrides.hydra.append(sweep_overrides[-1])
            run.hydra.job.chdir = False  # that is up to its cells
            return run
        overrides = _parser.parse_overrides(list(sweep_overrides))
        if any(one.is_hydra_override() for one in overrides):
            run = super().load_sweep_config(master_config, sweep_overrides)
            run.hydra.sweep.dir = master_config.hydra.sweep.dir
            return run
        run, hydra = self._copies(master_config, overrides)
        with read_write(run), open_dict(run):
            run.hydra = copy.deepcopy(hydra)
        run.hydra.sweep.dir = master_config.hydra.sweep.dir
        names = run.hydra.job.config.override_dirname
        run.hydra.overrides.task = list(sweep_overrides)
        run.hydra.job.override_dirname = get_overrides_dirname(
            overrides, names.exclude_keys, names.item_sep, names.kv_sep
        )
        OmegaConf.copy_cache(from_config=master_config, to_config=run)
        return run

    def run_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """Return the config of a cell without Hydra's own section, which takes most of the time.

        A cell that overrides that section keeps it, since other fields may refer to it.
        """
        overrides = _parser.parse_overrides(list(sweep_overrides))
        if any(one.is_hydra_override() for one in overrides):
            return super().load_sweep_config(master_config, sweep_overrides)
        return self._copies(master_config, overrides)[0]

    def _copies(
        self, master: DictConfig, overrides: list[Override]
    ) -> tuple[DictConfig, DictConfig]:
        """Return the config of a run with `overrides`, and Hydra's section, which runs share."""
        sweep = master.hydra
        sources = (str(self.get_search_path()), str(sweep.runtime.cwd), str(sweep.job.config_name),
                   str(sweep.overrides.hydra))  # fmt: skip
        if sources not in _groups:  # those of hydra.searchpath too
            given = list(sweep.overrides.hydra)
            _groups[sources] = self._parse_overrides_and_create_caching_repo(
                sweep.job.config_name, given
            )[1]
        options, values = _split(overrides, _groups[sources])
        key = (*sources, *options)
        if key not in _bases:
            base = super().load_sweep_config(master, options)
            hydra = base.hydra
            with read_write(base), open_dict(base):
                base.pop("hydra")
            _bases[key] = base, hydra
        run, hydra = _bases[key]
        run = copy.deepcopy(run)
        self._apply_overrides_to_config(values, run)
        return run, hydra


def _split(
    overrides: list[Override], groups: CachingConfigRepository
) -> tuple[list[str], list[Override]]:
    """Return the overrides that choose an option of a group, as text, and the others.

    A dict sets values, even if its key is a group.
    """
    options, values = [], []
    for one in overrides:
        if groups.group_exists(one.key_or_group) and not isinstance(one.value(), dict):
            options.append(str(one.input_line))
        else:
            values.append(one)
    return options, values
