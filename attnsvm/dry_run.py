"""What a sweep would run and about how long that takes, from pilots of two instances."""

from __future__ import annotations

import dataclasses
import math
import time

from attnsvm.config import RunConfig

PILOT_TRIALS = 2


def estimated_s(configs: list[RunConfig]) -> float:
    """Return about how many seconds all runs of `configs` take one after the other.

    The smallest and the largest run are tried on two instances each, after one that loads and
    compiles everything. Time is taken as proportional to the number of instances, which is too
    much where they are computed in a batch: an upper bound more than a forecast.
    """
    if not configs:
        return 0.0
    by_size = sorted(configs, key=size)
    ends = [by_size[0], by_size[-1]]
    _pilot_s(ends[0])
    each = [_pilot_s(config) for config in ends]
    return sum(config.trials for config in configs) * sum(each) / len(each)


def size(config: RunConfig) -> float:
    """Return the number of floats of an instance's tokens; 0 where the data's file decides."""
    return math.prod(float(getattr(config.data, key, 0)) for key in "nTd")


def _pilot_s(config: RunConfig) -> float:
    """Return seconds per instance of a run like `config`, on few instances."""
    from attnsvm import experiment

    trials = min(PILOT_TRIALS, config.trials)
    begin = time.perf_counter()
    experiment.run(dataclasses.replace(config, trials=trials))
    return (time.perf_counter() - begin) / trials
