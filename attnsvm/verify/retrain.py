"""`attnsvm-verify --retrain K`: instances of a record computed again by the public training code.

It proves what no arithmetic on the record can: that the stored weights are what training gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from attnsvm.experiment import stages_of
from attnsvm.record.columns import key_columns
from attnsvm.record.folder import read_record
from attnsvm.record.run import recorded_config
from attnsvm.record.schema import RunRecord
from attnsvm.verify.comparison import sheet
from attnsvm.verify.rounding import ROUNDS, Instance, Rerun
from attnsvm.verify.stored import Refusal
from attnsvm.verify.trusted import Unknown, with_files_beside


@dataclass
class Retrained:
    """What came out again.

    Of `compared` rows `repeated` have every bit of the record, and `undecidable` are of instances
    of which rounding decides a word or a count; `refusals` are what differs by more than rounding.
    `reason` says why nothing was compared.
    """

    compared: int = 0
    repeated: int = 0
    undecidable: int = 0
    refusals: list[Refusal] = field(default_factory=list)
    reason: str = ""


def retrained(folder: Path, count: int) -> Retrained:
    """Compute `count` random instances of the run in `folder` again.

    Everything in the record of an instance is compared: equal, or as near as rounding makes it
    (`attnsvm.verify.rounding`). Not compared are rows whose draw differs here in its last bits,
    those of a plug-in, whose code is not run, and untrained ones.
    """
    record, run = read_record(folder)
    moved = with_files_beside(run, folder)
    config = replace(recorded_config(moved), device="auto")
    config = replace(config, selection=replace(config.selection, until_accepted=False))
    if reason := _reason(moved, config.selection.tokens):
        return Retrained(reason=reason)
    result = Retrained()
    chosen = np.random.default_rng().permutation(record.trials["seed"].unique())[:count]
    stages, seeds = stages_of(config), sorted(chosen.tolist())
    size = max(1, stages.chunk_size(stages.draw(1, config.seed)) // (1 + ROUNDS[0][0]))
    for first in range(0, len(seeds), size):
        rerun = Rerun(stages, seeds[first : first + size])
        for seed in rerun.seeds:
            stated, again = record.of_seeds([seed]), rerun.of(seed)
            if _is_same_draw(stated, again.record):
                _compare(stated, again, result)
    return result


def _reason(run: Mapping[str, Any], tokens: str) -> str:
    """Return why a run cannot be run again, "" if it can."""
    unknown = Unknown.of(run)
    if tokens == "optimal":
        return "nothing was trained"
    if unknown.groups or run["config"]["extensions"]:
        return "the code of a plug-in is not run"
    return unknown.files


def _compare(stated: RunRecord, again: Instance, result: Retrained) -> None:
    """Add an instance to the result."""
    key, rows = key_columns(stated.trials), len(stated.trials)
    numbers = sheet(stated.trials, stated.history, stated.solutions, key)
    result.compared += rows
    if again.is_equal(numbers):
        result.repeated += rows
        return
    wrong, undecidable = again.compared(numbers)
    result.undecidable += rows * undecidable
    result.refusals += [("retrained", again.seed, why) for why in wrong]


def _is_same_draw(stated: RunRecord, again: RunRecord) -> bool:
    """Return whether tokens and queries are equal to the last bit, as far as stored.

    The first row of a network has those of its first layer: others depend on what was trained.
    """
    if not (stated.solutions and again.solutions):
        return True
    pairs = ((stated.solutions[name][0], again.solutions[name][0]) for name in ("X", "Z"))
    return all(np.array_equal(*pair) for pair in pairs)
