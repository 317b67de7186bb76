"""The cells of a sweep: their configs, and what a launcher runs, one cell or several in order.

Hydra composes a cell in about 0.1 s, twice for every cell: a sweep of 500 cells would wait a minute
before its first run. Most cells choose the same options and differ in values, so options are
composed and validated once, and values are set in copies.

Launchers know overrides only: those of a task of several cells are those of its first one. Each
cell is then run by Hydra as a job of its own, with its folder, log and callbacks; `Task` is the
launcher's job around them.
"""

import copy
import gc
import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.utils import run_job
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from attnsvm.cli.signals import hand_on, interruptible
from attnsvm.config import ConfigError, RunConfig
from attnsvm.config.compose import validated
from attnsvm.record import run_state


class CellComposer(ConfigLoaderImpl):
    """Hydra's composer for the cells of one sweep; it composes each choice of options once."""

    def __init__(self, search_path: ConfigSearchPath) -> None:
        super().__init__(search_path)
        self._groups = set[str]()
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._validated: dict[tuple[str, ...], tuple[RunConfig, DictConfig] | None] = {}

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        """Return the config of a job as Hydra composes it, in the folder of its sweep."""
        overrides = [_parsed(word) for word in sweep_overrides]
        run = self._with_values(master_config, overrides) if _plain(overrides) else None
        if run is None:
            run = super().load_sweep_config(master_config, sweep_overrides)
        run.hydra.sweep.dir = master_config.hydra.sweep.dir
        return run

    def run_config(self, master: DictConfig, cell: list[str]) -> RunConfig:
        """Return the validated config of a cell, as if it were composed."""
        overrides = [_parsed(word) for word in cell]
        found = self._run_with_values(master, overrides) if _plain(overrides) else None
        return found or validated(self.load_sweep_config(master, cell))

    def _run_with_values(self, master: DictConfig, overrides: list[Override]) -> RunConfig | None:
        """Return the config of the options with its values set; None if it must be composed."""
        words, values = self._options(master, overrides)
        if words not in self._validated:
            self._validated[words] = _template(self._composed[words])
        if (template := self._validated[words]) is None:
            return None
        first, typed = template
        run = copy.copy(first)
        changed = {"": run}
        try:
            for key, given in _leaves(values):
                group, _, name = key.rpartition(".")
                if group not in changed:
                    changed[group] = copy.copy(getattr(first, group))
                    setattr(run, group, changed[group])
                OmegaConf.update(typed, key, given)  # checks name and type
                value = OmegaConf.select(typed, key)
                if isinstance(value, DictConfig) or name == "extensions":
                    return None
                plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
                setattr(changed[group], name, plain)
            for node in (*list(changed.values())[1:], run):
                node.__post_init__()
        except (OmegaConfBaseException, AttributeError, ConfigError):
            return None
        return run

    def _options(
        self, master: DictConfig, overrides: list[Override]
    ) -> tuple[tuple[str, ...], list[Override]]:
        """Return the chosen options, which are composed, and the overrides that set values."""
        groups = self._groups = self._groups or set(master.hydra.runtime.choices)
        sets = [  # a dict sets values, even if its key is a group
            one.key_or_group not in groups or isinstance(one.value(), dict) for one in overrides
        ]
        words = tuple(
            str(one.input_line) for one, of in zip(overrides, sets, strict=True) if not of
        )
        if words not in self._composed:
            self._composed[words] = super().load_sweep_config(master, list(words))
        return words, list(itertools.compress(overrides, sets))

    def _with_values(self, master: DictConfig, overrides: list[Override]) -> DictConfig | None:
        """Return the config of the chosen options with its values set; None at an error."""
        words, values = self._options(master, overrides)
        run: DictConfig = copy.deepcopy(self._composed[words])
        try:
            for one in values:
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


@cache
def _parsed(word: str) -> Override:
    """Return an override; a sweep has the same words in many cells."""
    return _parser().parse_override(word)


_parser = cache(OverridesParser.create)


def _plain(overrides: list[Override]) -> bool:
    """Whether Hydra need not compose: its own section, added and removed fields, and errors."""
    changed = all(one.type == OverrideType.CHANGE for one in overrides)
    return changed and not any(one.is_hydra_override() for one in overrides)


def _leaves(overrides: list[Override]) -> Iterator[tuple[str, Any]]:
    """Yield field and value of each override; a dict sets several fields."""
    for one in overrides:
        key, value = one.key_or_group, one.value()
        fields = value.items() if isinstance(value, dict) else ()
        yield from [(f"{key}.{name}", each) for name, each in fields] or [(key, value)]


def _template(composed: DictConfig) -> tuple[RunConfig, DictConfig] | None:
    """Return the validated config of options and its typed fields; None if values complete it."""
    typed = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
    if "${" in OmegaConf.to_yaml(typed):  # a field that follows others
        return None
    try:
        return validated(composed), typed
    except (OmegaConfBaseException, ConfigError):
        return None


log = logging.getLogger(__name__)

Cells = dict[str, list[str]]
"""The overrides of every cell, by the name of its run's folder."""


@dataclass
class Task:
    """Runs the cells of a job, each composed and called back by Hydra as a job of its own.

    `run_cell` runs a composed cell; `context` and `config` are those of the sweep. `packs` has, for
    each job of several cells, the number of its first cell and the cells.
    """

    run_cell: TaskFunction
    context: HydraContext
    config: DictConfig
    packs: dict[int, tuple[int, Cells]] = field(default_factory=dict)

    def pack(self, cells: Cells, size: int) -> list[list[str]]:
        """Divide cells into jobs of `size` cells; return the overrides of every job."""
        starts, all_cells = range(0, len(cells), size), list(cells.items())
        self.packs = {n: (k, dict(all_cells[k : k + size])) for n, k in enumerate(starts)}
        return [overrides_of(pack) for _, pack in self.packs.values()]

    def __call__(self, composed: DictConfig) -> Any:
        """Run the cell, or the cells of the job one after the other until one is interrupted."""
        if not self.packs:
            return self.run_cell(composed)
        first, cells = self.packs[HydraConfig.get().job.num]
        gc.collect()
        gc.freeze()  # else a sixth of the time of small runs goes to objects of torch, which stay
        try:
            with interruptible():  # also between two cells
                for number, name in enumerate(cells, start=first):
                    if self._state(name, cells[name], number) == "interrupted":
                        break
        except KeyboardInterrupt as stop:
            hand_on(stop)
        return None

    def _state(self, name: str, cell: list[str], number: int) -> str:
        """Run a cell as a job of Hydra and return its state; log an error outside of the run."""
        try:
            config = self.context.config_loader.load_sweep_config(self.config, cell)
            with open_dict(config):
                config.hydra.job.id = HydraConfig.get().job.id
                config.hydra.job.num = number
                config.hydra.sweep.subdir = name
            done = run_job(
                task_function=self.run_cell,
                config=config,
                job_dir_key="hydra.sweep.dir",
                job_subdir_key="hydra.sweep.subdir",
                hydra_context=self.context,
            )
            _ = done.return_value  # raises its error
            assert done.hydra_cfg is not None
            return run_state(Path(done.hydra_cfg.hydra.runtime.output_dir), verify=False).state
        except Exception as error:
            log.error("job %s: %s", cell, error)
            return "failed"


def overrides_of(pack: Cells) -> list[str]:
    """Return the overrides of a job of these cells."""
    return [*next(iter(pack.values())), "hydra.job.chdir=false"]  # the folder is up to its cells
