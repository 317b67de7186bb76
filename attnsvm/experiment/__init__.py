"""A run from its config to its record: its objects, the stages in order, its tables."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnsvm.config import RunConfig
from attnsvm.experiment.objects import RunObjects, check

if TYPE_CHECKING:
    from attnsvm.experiment.stages import Stages
    from attnsvm.record.schema import RunRecord

MAX_DRAWS_PER_TRIAL = 200
"""With selection.until_accepted: stop after this many drawn instances per requested one."""


def run(config: RunConfig) -> "RunRecord":
    """Return the record of a checked config: a row for every instance, whatever its status.

    ConfigError if the data or the device do not support this config.
    """
    first, *others = parts(config)
    return first.joined([first, *others])


def parts(config: RunConfig, size: int | None = None) -> Iterator["RunRecord"]:
    """Yield the record of `run` in parts, in the order of the seeds, in bounded memory.

    A part has at most `size` instances, by default those of `Stages.chunk_size`; the results do not
    depend on it.
    """
    from attnsvm.experiment.stages import Stages  # pandas, which `check` does not need

    stages = Stages(config)
    if config.selection.until_accepted:
        yield from _until_accepted(stages, size)
    else:
        for batch in stages.batches(size):
            yield stages.record_of(batch)


def _until_accepted(stages: "Stages", size: int | None) -> Iterator["RunRecord"]:
    """Yield records of successive seeds until `trials` instances are accepted."""
    config = stages.config
    size = size or stages.chunk_size(stages.draw(1, config.seed))
    drawn = accepted = 0
    while accepted < config.trials and drawn < MAX_DRAWS_PER_TRIAL * config.trials:
        rate = accepted / drawn if drawn else 1.0
        missing = config.trials - accepted
        trials = min(math.ceil(1.1 * missing / max(rate, 0.1)), 4 * config.trials, size)
        part = stages.record_of(stages.draw(trials, config.seed + drawn))
        yield part.first_accepted(missing)
        drawn += len(part.trials)
        accepted += int((part.trials["status"] == "ok").sum())
