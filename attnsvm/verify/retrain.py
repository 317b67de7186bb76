"""`attnsvm-verify --retrain K`: instances of a record computed again by the public training code.

It proves what no arithmetic on the record can: that the stored weights are what training gives.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from attnsvm import experiment
from attnsvm.config import RunConfig
from attnsvm.record import RunRecord
from attnsvm.record.columns import key_columns
from attnsvm.record.run import recorded_config
from attnsvm.verify.comparison import Comparison, sheet
from attnsvm.verify.config import with_files_beside
from attnsvm.verify.exact import Array
from attnsvm.verify.rows import Refusal
from attnsvm.verify.stored import Key, StoredArrays, key_of, keys_of, opened

TO_ROUNDING = 1e-10
"""Relative difference of weights after steps that do not overshoot, on another machine."""

NUMBERS = 1e-9
"""Relative difference of what follows from equal weights: solvers of SVMs round differently."""

STEPS_APART = 10
"""Number of last steps by which weights may differ where steps overshoot."""

PATH = 1e-2
"""Relative difference of the last point of a regularisation path."""


def retrained(folder: Path, count: int) -> tuple[int, int, list[Refusal]]:
    """Compute `count` random instances of the run in `folder` again.

    Equal weights must have an equal row and history; on another machine the weights may differ as
    far as docs/library.md says.

    Returns
    -------
    int
        How many were compared: not those whose draw differs here in its last bits, nor those of a
        plug-in, whose code is not run, nor where nothing was trained.
    int
        How many of these came out again: weights equal in every bit, and row and history with them.
    list
        What differs.
    """
    with opened(folder) as (record, run):
        config = dataclasses.replace(recorded_config(with_files_beside(run, folder)), device="auto")
        if config.extensions or config.selection.tokens == "optimal":
            return 0, 0, []
        names = key_columns(record.trials)
        stored = _stored(record.solutions, names)
        compared, repeated, refusals = 0, 0, list[Refusal]()
        for k in sorted(np.random.default_rng().permutation(len(record.trials))[:count]):
            row = record.trials.iloc[k]
            key = key_of(row, names)
            stated = RunRecord(
                record.trials.iloc[[k]], _of_row(record.history, names, key), stored.get(key, {})
            )
            found = _computed(config, names, key)
            if not _is_same_draw(stated, found):
                continue
            weights = _weights(stated, found)
            equal = all(np.array_equal(*pair, equal_nan=True) for pair in weights.values())
            wrong = list(_other_numbers(stated, found, names) if equal else _apart(config, weights))
            compared += 1
            repeated += equal and not wrong
            refusals += [("retrained", key[0], why) for why in wrong]
        return compared, repeated, refusals


def _stored(solutions: StoredArrays, names: list[str]) -> dict[Key, dict[str, Array]]:
    """Return tokens, queries and all that was trained of every recorded row, (1, ...) each.

    All that was trained of a network are the arrays of all its layers.
    """
    if "trained_W" not in solutions:
        return {}
    trained = sorted(name for name in solutions if name.startswith("network_")) or ["trained_W"]
    kept = ["seeds", *names[1:], "X", "Z", *trained]
    rows = zip(keys_of(solutions, names), *(solutions[name] for name in kept), strict=True)
    return {
        key: {name: array[None] for name, array in zip(kept, arrays, strict=True)}
        for key, *arrays in rows
    }


def _computed(config: RunConfig, names: list[str], key: Key) -> RunRecord:
    """Return what is recorded of one row, computed again."""
    selection = dataclasses.replace(config.selection, until_accepted=False)
    asked: dict[str, Any] = {"seed": key[0], "trials": 1}
    if hasattr(config.data, "path"):  # the instances of a file are numbered from the first
        asked = {"trials": key[0] - config.seed + 1}
    found = experiment.run(dataclasses.replace(config, selection=selection, **asked))
    keys = keys_of(found.solutions, names) if found.solutions else []
    at = [one == key for one in keys]
    return RunRecord(
        _of_row(found.trials, names, key),
        _of_row(found.history, names, key),
        {name: array[at] for name, array in found.solutions.items()} if any(at) else {},
    )


def _of_row(table: pd.DataFrame, names: list[str], key: Key) -> pd.DataFrame:
    """Return the part of a table of one instance, or of a layer and head of one."""
    pairs = zip(names, key, strict=True)
    return table[np.logical_and.reduce([table[name] == value for name, value in pairs])]


def _is_same_draw(stated: RunRecord, found: RunRecord) -> bool:
    """Return whether tokens and queries are equal to the last bit, as far as stored."""
    if not (stated.solutions and found.solutions):
        return True
    return all(np.array_equal(stated.solutions[n], found.solutions[n]) for n in ("X", "Z"))


def _weights(stated: RunRecord, found: RunRecord) -> dict[str, tuple[Array, Array]]:
    """Return what was trained as stated and as found, by name; norms of W if W is not stored.

    Each array is compared on its own: among others much larger it could be anything.
    """
    if not (stated.solutions and found.solutions):
        norms = [one.trials["W_norm"].to_numpy() for one in (stated, found)]
        return {"W_norm": (norms[0], norms[1])}
    trained = [name for name in stated.solutions if name.startswith(("network_", "trained_"))]
    return {name: (stated.solutions[name], found.solutions[name]) for name in trained}


def _other_numbers(stated: RunRecord, found: RunRecord, names: list[str]) -> Iterator[str]:
    """Yield which numbers of row and history are not those that training gives."""
    sheets = [
        sheet(one.trials, one.history, _keys(one.solutions, names), names)
        for one in (stated, found)
    ]
    comparison = Comparison(sheets[1:], relative=NUMBERS, absolute=NUMBERS * 1e-3)
    if wrong := comparison.form_refusal(sheets[0]):
        yield wrong
    else:
        yield from (why for part, _, _, why in comparison.differences(sheets[0]) if why)


def _keys(solutions: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: solutions[name] for name in ("seeds", *names[1:])} if solutions else {}


def _apart(config: RunConfig, weights: Mapping[str, tuple[Array, Array]]) -> Iterator[str]:
    """Yield which weights differ by more than they may on another machine."""
    for name, (stated, found) in weights.items():
        apart, size = np.linalg.norm(stated - found), float(np.linalg.norm(stated))
        allowed = _allowed(config, name, size)
        if not apart <= allowed * size:
            yield f"{name} differs by {apart / size:.2g}, allowed is {allowed:.2g}"


def _allowed(config: RunConfig, name: str, size: float) -> float:
    """Return the largest relative difference of weights of this norm on another machine."""
    optimizer: Any = config.optimizer
    if not hasattr(optimizer, "steps"):
        return PATH
    beside = name not in ("trained_W", "network_W", "W_norm")  # values, MLPs, head of a network
    factors = not beside and not config.parameterization._target_.endswith(".W")
    rule = optimizer._target_.rpartition(".")[2]
    zigzags = rule in ("SignGD", "Steepest", "Muon") or (factors and rule == "NormalizedGD")
    if not (beside or zigzags or optimizer.growth > 0 or optimizer.gradient == "direct"):
        return TO_ROUNDING
    last = optimizer.lr * (1 + optimizer.growth * optimizer.steps)
    if optimizer.schedule == "geometric":
        last = optimizer.lr * (1 + optimizer.growth) ** optimizer.steps
    if optimizer.schedule == "decay":
        last = optimizer.lr
    if beside:
        last *= cast(Any, config.model).rate
    return float(STEPS_APART * last / (math.sqrt(size) if factors else size))
