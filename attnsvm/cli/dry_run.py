"""`dry_run=true`: list the runs and estimate their time from small pilot runs."""

import dataclasses
import logging
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from attnsvm.config import ConfigError, RunConfig
from attnsvm.config.identity import result_fields
from attnsvm.record import duration, run_state

log = logging.getLogger(__name__)

PILOTS = (2, 8)
"""Numbers of instances of the two pilots: they give the time per run and per instance."""

SIZES = 3
"""Number of instance shapes that are timed for each kind of run."""

OF_INSTANCES = ("n", "T", "d", "at_layer", "at_head", "control")
"""Fields of data that do not change the kind of a run: the shape, and which head it is."""


def log_plan(
    folder: Path, cells: Mapping[str, Sequence[str]], configs: Mapping[str, RunConfig]
) -> None:
    """Log every run in `folder` with its state, and the time that the pending ones need.

    `cells` and `configs` are the overrides and the config of each run, by the name of its folder.
    """
    states = {name: run_state(folder / name).state for name in cells}
    for name, overrides in cells.items():
        log.info("%-11s %s  %s", states[name], name, " ".join(overrides))
    pending = [configs[name] for name, state in states.items() if state != "done"]
    log.info("%d runs, %d of them pending", len(cells), len(pending))
    if not pending:
        return
    try:
        log.info("about %s in one process", duration(estimated_s(pending)))
    except ConfigError as error:  # a device or a file that only the machine of the runs has
        log.info("no estimate: %s", error)


def estimated_s(configs: Sequence[RunConfig]) -> float:
    """Return the estimated time in seconds of all runs of `configs`, one after the other.

    Runs that differ only in the shape and the seeds of their instances, or in the pretrained head,
    are of one kind. For each kind the smallest, the middle and the largest shape are timed twice,
    on few instances. The time of other shapes is interpolated by a power law in the number of
    floats of an instance.
    """
    kinds: dict[str, list[RunConfig]] = defaultdict(list)
    for config in configs:
        fields = result_fields(config)
        data = {key: value for key, value in fields["data"].items() if key not in OF_INSTANCES}
        kinds[repr({**fields, "data": data, "seed": 0, "trials": 0})].append(config)
    total = 0.0
    for kind in kinds.values():
        by_size = dict(sorted({size(config): config for config in kind}.items()))
        places = np.linspace(0, len(by_size) - 1, min(SIZES, len(by_size))).round().astype(int)
        tried = np.array([*by_size])[places]
        costs = np.log(np.maximum([_cost_s(by_size[floats]) for floats in tried], 1e-6))
        at = np.log([size(config) for config in kind])
        start, each = (np.exp(np.interp(at, np.log(tried), column)) for column in costs.T)
        total += float((start + [config.trials for config in kind] * each).sum())
    return total


def size(config: RunConfig) -> float:
    """Return the number of floats of an instance's tokens; 1 if only the data file gives it."""
    return math.prod(float(getattr(config.data, key, 1)) for key in "nTd")


def _cost_s(config: RunConfig) -> tuple[float, float]:
    """Return the seconds that a run like `config` takes at its start and per instance."""
    from attnsvm import experiment

    few, more = (min(count, config.trials) for count in PILOTS)
    seconds = []
    for trials in (few, few, more):  # the first pilot also imports and compiles
        begin = time.perf_counter()
        experiment.run(dataclasses.replace(config, trials=trials))
        seconds.append(time.perf_counter() - begin)
    _, short, long = seconds
    each = max(long - short, 0.0) / (more - few) if more > few else long / more
    return max(long - more * each, 0.0), each
