"""The cells of a sweep: their configs, and what a launcher runs, one cell or several in order.

Hydra composes a cell in about 0.15 s: a sweep of 500 cells would wait more than a minute before its
first run. Most cells choose the same options and differ in values, so options are composed once,
and values are set in copies, in which nothing is resolved.

What is checked and named is what runs: a cell is defined by overrides without references to other
fields, to the environment, the time or the number of its job, which are replaced by their values.

Launchers know overrides only: those of a task of several cells are those of its first one. Each
cell is then run by Hydra as a job of its own, with its folder, log and callbacks; `Task` is the
launcher's job around them.
"""

import gc
import logging
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import OverrideType, Quote, QuotedString
from hydra.core.utils import run_job
from hydra.errors import HydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from attnsvm.cli.signals import hand_on, interruptible
from attnsvm.config import ConfigError, RunConfig
from attnsvm.config.compose import references, validated
from attnsvm.record import run_state
from hydra_plugins.attnsvm_sweeper._grid import parsed


class CellComposer:
    """Hydra's `loader` for the cells of one sweep, which composes each choice of options once."""

    def __init__(self, loader: ConfigLoader) -> None:
        self._loader = loader
        self._composed: dict[tuple[str, ...], bytes] = {}  # three times as fast as a deep copy

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # absent while it is unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        """Return the config of a job as Hydra composes it, in the folder of its sweep."""
        config = self.compose(master_config, sweep_overrides)
        config.hydra.sweep.dir = master_config.hydra.sweep.dir
        return config

    def compose(self, master: DictConfig, cell: list[str]) -> DictConfig:
        """Return the config of a cell as Hydra composes it: of its options, then of its values.

        Hydra itself does what concerns its own section, and adds and removes fields.
        """
        overrides, groups = [parsed(word) for word in cell], master.hydra.runtime.choices
        if any(
            o.type != OverrideType.CHANGE or o.package or o.is_hydra_override() for o in overrides
        ):
            return self._loader.load_sweep_config(master, cell)
        values = [  # a dict sets values, even if its key is a group
            o for o in overrides if o.key_or_group not in groups or isinstance(o.value(), dict)
        ]
        options = tuple(str(o.input_line) for o in overrides if o not in values)
        if options not in self._composed:
            first = self._loader.load_sweep_config(master, list(options))
            self._composed[options] = pickle.dumps(first)
        config: DictConfig = pickle.loads(self._composed[options])  # noqa: S301
        try:
            for override in values:
                OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        except OmegaConfBaseException:  # an option after all, as probe=[rank], or an error
            return self._loader.load_sweep_config(master, cell)
        names = config.hydra.job.config.override_dirname
        kept = [word for word in cell if word.partition("=")[0] not in names.exclude_keys]
        dirname = names.item_sep.join(sorted(kept)).replace("=", names.kv_sep)
        config.hydra.job.override_dirname = dirname
        config.hydra.overrides.task = cell
        OmegaConf.copy_cache(from_config=master, to_config=config)
        return config

    def settled(
        self, master: DictConfig, cell: list[str], number: int
    ) -> tuple[list[str], RunConfig]:
        """Return the overrides that define a cell, without references, and its config.

        `number` is that of its job. ConfigError if its folder or launcher are not those of the
        sweep, or if a reference cannot be replaced by a value.
        """
        config = self.compose(master, cell)
        for name in SHARED:
            if OmegaConf.select(config, name) != OmegaConf.select(master, name):
                must = "must be the same for all runs of a sweep, and is another with"
                raise ConfigError(f"{name}: {must} {' '.join(cell)}")
        fields = sorted(references(config))
        if not fields:
            return cell, validated(config)
        with open_dict(config):
            config.hydra.job.num = number
        before = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(config)
        try:
            run = validated(config)
        finally:
            HydraConfig.instance().cfg = before
        words = [word for word in cell if parsed(word).get_key_element() not in fields]
        words += [f"{field}={_typed(OmegaConf.select(config, field))}" for field in fields]
        try:
            if validated(self.compose(master, words)) == run:
                return words, run
        except (HydraException, OmegaConfBaseException):
            pass
        named = ", ".join(fields)
        raise ConfigError(f"{named}: must refer to a number, a word or a list, not to a group")


SHARED = ("hydra.sweep.dir", "hydra.launcher")
"""What all cells of a sweep have in common."""


def _typed(value: Any) -> str:
    """Return a value as it is typed in an override."""
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list | ListConfig):
        return f"[{','.join(map(_typed, value))}]"
    return "null" if value is None else str(value)


log = logging.getLogger(__name__)

Cells = dict[str, list[str]]
"""The overrides of every cell, by the name of its run's folder."""


@dataclass
class Task:
    """Runs the cells of a job, each composed and called back by Hydra as a job of its own.

    `run_cell` runs a composed cell; `context` and `config` are those of the sweep; a job has `size`
    cells. `packs` has the cells of each job of several, and the number of the first.
    """

    run_cell: TaskFunction
    context: HydraContext
    config: DictConfig
    size: int
    packs: dict[int, tuple[int, Cells]] = field(default_factory=dict)

    def pack(self, cells: Cells) -> list[list[str]]:
        """Divide cells into jobs; return the overrides of every job."""
        if self.size == 1:
            return list(cells.values())
        all_cells = list(cells.items())
        for number, first in enumerate(range(0, len(cells), self.size)):
            self.packs[number] = first, dict(all_cells[first : first + self.size])
        jobs = range(-(-len(cells) // self.size))
        log.info("%d runs in %d jobs", len(cells), len(jobs))
        firsts = (next(iter(self.packs[number][1].values())) for number in jobs)
        return [[*words, "hydra.job.chdir=false"] for words in firsts]  # it is up to its cells

    def __call__(self, composed: DictConfig) -> Any:
        """Run the cell, or the cells of the job one after the other until one is interrupted."""
        if not self.packs:
            return self.run_cell(composed)
        first, cells = self.packs[HydraConfig.get().job.num]
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
            return run_state(Path(self.config.hydra.sweep.dir) / name, verify=False).state
        except Exception as error:
            log.error("job %s: %s", cell, error)
            return "failed"
