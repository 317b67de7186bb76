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
from attnsvm.verify.config import recorded_config, with_files_beside
from attnsvm.verify.exact import Array
from attnsvm.verify.rows import Refusal, key_of
from attnsvm.verify.stored import opened, plain_rows

TO_ROUNDING = 1e-10
"""Relative difference of weights after steps that do not overshoot, on another machine."""

NUMBERS = 1e-9
"""Relative difference of what follows from equal weights."""

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
        config = dataclasses.replace(
            recorded_config(with_files_beside(run, folder))[0], device="auto"
        )
        if config.extensions or config.selection.tokens == "optimal":
            return 0, 0, []
        rows = plain_rows(record.trials)
        key = key_columns(record.trials)
        stored = _weights(record.solutions, key)
        compared, repeated, refusals = 0, 0, list[Refusal]()
        for k in sorted(np.random.default_rng().permutation(len(rows))[:count]):
            seed = rows[k]["seed"]
            one = _Instance(config, rows[k], record.history, stored.get(key_of(rows[k], key)))
            if one.is_same_draw():
                compared += 1
                differences = [(what, seed, why) for what, why in one.differences()]
                repeated += one.has_equal_weights() and not differences
                refusals += differences
        return compared, repeated, refusals


Stored = tuple[Array, Array, dict[str, Array]]
"""X, Z and all that was trained of an instance, by name."""


def _weights(solutions: Mapping[str, Any], key: list[str]) -> dict[tuple[int, ...], Stored]:
    if "trained_W" not in solutions:
        return {}
    rows = zip(*(solutions[name] for name in ["seeds", *key[1:]]), strict=True)
    names = _names(solutions)
    arrays = (solutions[name] for name in ("X", "Z", *names))
    stored = zip(rows, *arrays, strict=True)
    return {
        tuple(map(int, row)): (X, Z, dict(zip(names, trained, strict=True)))
        for row, X, Z, *trained in stored
    }


def _names(solutions: Mapping[str, Any]) -> list[str]:
    """Return the names of all that was trained: of a network, the arrays of all its layers."""
    of_network = sorted(name for name in solutions if name.startswith("network_"))
    return of_network or ["trained_W"]


def _computed(config: RunConfig, seed: int) -> RunRecord:
    """Return a record that contains the instance `seed`."""
    selection = dataclasses.replace(config.selection, until_accepted=False)
    if hasattr(config.data, "path"):  # the instances of a file are numbered from the first
        trials = seed - config.seed + 1
        return experiment.run(dataclasses.replace(config, selection=selection, trials=trials))
    one = dataclasses.replace(config, selection=selection, seed=seed, trials=1)
    return experiment.run(one)


def _of_row(table: pd.DataFrame, row: Mapping[str, Any]) -> pd.DataFrame:
    """Return the part of a table of the instance, or of the layer and head of one, in `row`."""
    return table[np.logical_and.reduce([table[name] == row[name] for name in key_columns(table)])]


class _Instance:
    """A stored instance and the same one computed again."""

    def __init__(
        self,
        config: RunConfig,
        row: Mapping[str, Any],
        history: pd.DataFrame,
        stored: Stored | None,
    ) -> None:
        self.config, self.row, self.stored = config, row, stored
        self.trained = None if stored is None else stored[2]
        self.curve = _of_row(history, row)
        found = _computed(config, row["seed"])
        arrays = {"seed": found.solutions.get("seeds", np.zeros(0)), **found.solutions}
        here = [arrays[name] == row[name] for name in key_columns(found.trials) if name in arrays]
        kept = np.logical_and.reduce(here)
        self.again = RunRecord(
            _of_row(found.trials, row),
            _of_row(found.history, row),
            {name: array[kept] for name, array in found.solutions.items()},
        )
        self.other = plain_rows(self.again.trials)[0]

    def is_same_draw(self) -> bool:
        """Return whether tokens and queries are equal to the last bit, as far as stored."""
        found = self.again.solutions
        if self.stored is None or "X" not in found:
            return True
        pairs = zip(self.stored[:2], (found["X"], found["Z"]), strict=True)
        return all(len(new) == 1 and np.array_equal(old, new[0]) for old, new in pairs)

    def has_equal_weights(self) -> bool:
        """Return whether all that was trained and is stored is equal in every bit."""
        return all(np.array_equal(*pair, equal_nan=True) for pair in self._pairs().values())

    def differences(self) -> Iterator[tuple[str, str]]:
        """Yield (what, why) where they differ: by any bit, or else by more than is allowed."""
        if not self.has_equal_weights():
            for name, (stated, found) in self._pairs().items():
                apart, size = np.linalg.norm(stated - found), float(np.linalg.norm(stated))
                allowed = _allowed(self.config, name, size)
                if not apart <= allowed * size:
                    words = f"{apart / size:.2g}, allowed is {allowed:.2g}"
                    yield "retrained", f"{name} differs by {words}"
            return
        for name, value in self.row.items():
            other = self.other[name]
            if not _agree(value, other):
                yield "retrained", f"{name} is {other}, stated is {value}"
        curves = _sorted(self.curve), _sorted(self.again.history)
        if curves[0].shape != curves[1].shape or not _close(*curves).all():
            yield "history", "is not what training gives"

    def _pairs(self) -> dict[str, tuple[Array, Array]]:
        """Return what was trained as stated and as found, by name; norms of W if W is not stored.

        Each array is compared on its own: among others much larger it could be anything.
        """
        found = self.again.solutions
        if self.trained is None or not len(found.get("trained_W", ())):
            return {"W_norm": (np.array(self.row["W_norm"]), np.array(self.other["W_norm"]))}
        return {name: (stated, found[name][0]) for name, stated in self.trained.items()}


def _agree(value: Any, other: Any) -> bool:
    if isinstance(value, float) and isinstance(other, float):
        return bool(_close(np.array(value), np.array(other)))
    return bool(value == other)


def _close(a: Array, b: Array) -> Any:
    """Return where numbers agree: solvers of SVMs round differently on another machine."""
    return np.isclose(a, b, rtol=NUMBERS, atol=NUMBERS * 1e-3, equal_nan=True)


def _sorted(history: pd.DataFrame) -> Array:
    ordered = history.sort_values(["quantity", "step"])
    return np.asarray(ordered["value"].to_numpy(dtype=np.float64))


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
