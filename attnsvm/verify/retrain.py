"""`attnsvm-verify --retrain K`: instances of a record computed again by the public training code.

It proves what no arithmetic on the record can: that the stored weights are what training gives.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnsvm import experiment
from attnsvm.config import RunConfig
from attnsvm.record import RunRecord
from attnsvm.record.columns import key_columns
from attnsvm.verify.config import recorded_config
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


def retrained(folder: Path, count: int) -> tuple[int, list[Refusal]]:
    """Compute `count` random instances of the run in `folder` again.

    Equal weights must have an equal row and history; on another machine the weights may differ as
    far as docs/library.md says.

    Returns
    -------
    int
        How many were compared: not those whose draw differs here in its last bits, nor those of a
        plug-in, whose code is not run, nor where nothing was trained.
    list
        What differs.
    """
    with opened(folder) as (record, run):
        config = dataclasses.replace(recorded_config(run)[0], device="auto")
        if config.extensions or config.selection.tokens == "optimal":
            return 0, []
        rows = plain_rows(record.trials)
        key = key_columns(record.trials)
        stored = _weights(record.solutions, key)
        compared, refusals = 0, list[Refusal]()
        for k in sorted(np.random.default_rng().permutation(len(rows))[:count]):
            seed = rows[k]["seed"]
            one = _Instance(config, rows[k], record.history, stored.get(key_of(rows[k], key)))
            if one.is_same_draw():
                compared += 1
                refusals += ((what, seed, why) for what, why in one.differences())
        return compared, refusals


Stored = tuple[Array, Array, Array]
"""X, Z and all trained weights of an instance."""


def _weights(solutions: Mapping[str, Any], key: list[str]) -> dict[tuple[int, ...], Stored]:
    if "trained_W" not in solutions:
        return {}
    rows = zip(*(solutions[name] for name in ["seeds", *key[1:]]), strict=True)
    arrays = (solutions[name] for name in ("X", "Z", *_names(solutions)))
    stored = zip(rows, *arrays, strict=True)
    return {tuple(map(int, row)): (X, Z, _joined(W)) for row, X, Z, *W in stored}


def _names(solutions: Mapping[str, Any]) -> list[str]:
    """Return the names of all that was trained: of a network, the arrays of all its layers."""
    of_network = sorted(name for name in solutions if name.startswith("network_"))
    return of_network or ["trained_W"]


def _joined(arrays: Sequence[Array]) -> Array:
    """Return a matrix as it is, several arrays as one vector."""
    return arrays[0] if len(arrays) == 1 else np.concatenate([one.ravel() for one in arrays])


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
        self.W = None if stored is None else stored[2]
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

    def differences(self) -> Iterator[tuple[str, str]]:
        """Yield (what, why) where they differ: by any bit, or else by more than is allowed."""
        if not self._same_bits():
            apart, size = self._distance()
            allowed = _allowed(self.config, size)
            if not apart <= allowed * size:
                yield "retrained", f"W differs by {apart / size:.2g}, allowed is {allowed:.2g}"
            return
        for name, value in self.row.items():
            other = self.other[name]
            if not _agree(value, other):
                yield "retrained", f"{name} is {other}, stated is {value}"
        curves = _sorted(self.curve), _sorted(self.again.history)
        if curves[0].shape != curves[1].shape or not _close(*curves).all():
            yield "history", "is not what training gives"

    def _same_bits(self) -> bool:
        found = self._weights_again()
        if self.W is None or found is None:
            norms = self.row["W_norm"], self.other["W_norm"]
            return bool(np.array_equal(*norms, equal_nan=True))
        return np.array_equal(self.W, found, equal_nan=True)

    def _distance(self) -> tuple[float, float]:
        """Return ||W - W'||, or the difference of norms where W is not stored, and ||W||."""
        found = self._weights_again()
        if self.W is None or found is None:
            return abs(self.row["W_norm"] - self.other["W_norm"]), self.row["W_norm"]
        return float(np.linalg.norm(self.W - found)), float(np.linalg.norm(self.W))

    def _weights_again(self) -> Array | None:
        found = self.again.solutions
        if not len(found.get("trained_W", ())):
            return None
        return _joined([found[name][0] for name in _names(found)])


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


def _allowed(config: RunConfig, size: float) -> float:
    """Return the largest relative difference of weights W of this norm on another machine."""
    optimizer: Any = config.optimizer
    if not hasattr(optimizer, "steps"):
        return PATH
    factors = not config.parameterization._target_.endswith(".W")
    name = optimizer._target_.rpartition(".")[2]
    zigzags = name in ("SignGD", "Steepest", "Muon") or (factors and name == "NormalizedGD")
    overshoots = optimizer.growth > 0 or optimizer.gradient == "direct" or zigzags
    if not overshoots:
        return TO_ROUNDING
    last = optimizer.lr * (1 + optimizer.growth * optimizer.steps)
    if optimizer.schedule == "geometric":
        last = optimizer.lr * (1 + optimizer.growth) ** optimizer.steps
    if optimizer.schedule == "decay":
        last = optimizer.lr
    return float(STEPS_APART * last / (math.sqrt(size) if factors else size))
