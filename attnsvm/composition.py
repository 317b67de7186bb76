"""The configs of a sweep's cells: options are composed once, values are set in copies.

Hydra composes a cell in about 0.1 s, whatever is asked for; most cells of a grid choose the same
options and differ in values, which can be set in a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

Compose = Callable[[list[str]], DictConfig]

_parser = OverridesParser.create()
_bases: dict[tuple[str, ...], DictConfig] = {}


def composed_once(
    loader: ConfigLoaderImpl,
    master: DictConfig,
    cell: list[str],
    compose: Compose,
    hydra: bool = True,
) -> DictConfig:
    """Return what `compose` makes of a cell's overrides; its options are composed once a process.

    Parameters
    ----------
    loader : ConfigLoaderImpl
        Hydra's, that `compose` uses.
    master : DictConfig
        The config of the sweep.
    cell : list of str
        The overrides.
    compose : callable
        Composes overrides as Hydra does.
    hydra : bool
        Whether Hydra's own section is wanted, which takes most of the time; a cell that overrides
        it keeps it.
    """
    overrides = _parser.parse_overrides(list(cell))
    if any(one.is_hydra_override() for one in overrides):
        return compose(cell)  # its section may be interpolated
    options, values = _split(loader, overrides)
    sweep = master.hydra
    key = (str(loader.get_search_path()), str(sweep.runtime.cwd), str(sweep.job.config_name),
           str(sweep.overrides.hydra), str(hydra), *options)  # fmt: skip
    if key not in _bases:
        base = compose(options)
        if not hydra:
            with read_write(base), open_dict(base):
                base.pop("hydra")
        _bases[key] = base
    config = copy.deepcopy(_bases[key])
    ConfigLoaderImpl._apply_overrides_to_config(values, config)
    if hydra:
        names = config.hydra.job.config.override_dirname
        config.hydra.overrides.task = list(cell)
        config.hydra.job.override_dirname = get_overrides_dirname(
            overrides, names.exclude_keys, names.item_sep, names.kv_sep
        )
        OmegaConf.copy_cache(from_config=master, to_config=config)
    return config


def _split(loader: ConfigLoaderImpl, overrides: list[Override]) -> tuple[list[str], list[Override]]:
    """Return the overrides that choose an option of a group, as text, and the others.

    A dict sets values, also of a group.
    """
    chooses = [
        bool(loader.repository.group_exists(one.key_or_group)) and not isinstance(one.value(), dict)
        for one in overrides
    ]
    pairs = list(zip(overrides, chooses, strict=True))
    return [str(one.input_line) for one, is_option in pairs if is_option], [
        one for one, is_option in pairs if not is_option
    ]
