"""Which tokens training selects: pairs of runs that differ in their optimizer only."""

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pandas as pd

from .. import statistics
from ..cells import groups
from . import LoadedSweep
from ._numbers import arrays_of

NEEDED = ("X", "Z", "mask", "seeds", "selected", "scores", "snapshots")
"""Arrays of a run, with keep_path, that a comparison needs."""

SETTLED = ("ok", "infeasible", "undecided")
"""Statuses of the instances whose selected tokens are final, whatever their SVM is."""

START = ("optimizer.init", "optimizer.init_scale")
"""Fields of the group `optimizer` that define the start."""

Tokens = dict[int, tuple[np.ndarray, ...] | None]
"""Seed -> X, Z, W at the start, selected and optimal tokens of an instance; None without a path on
record, or where the selection is not final."""


def of_pairs(frames: LoadedSweep) -> pd.DataFrame:
    """Return how often two optimizers select the same tokens, and both the optimal ones.

    Runs are paired if they agree in all axes but those of the optimizer, START not among these. An
    instance counts if both runs hold the same X and Z to the last bit, began at the same W,
    and selected final tokens; all others are counted as excluded.

    There is a row for each pair and measure, with the axes of the first run and `second`, the label
    of the other one: the share of the instances on which it holds in all samples, with Wilson's
    interval. A run is paired with itself too: `both_optimal` is then its own share.
    """
    axes = frames.cells
    of_optimizer = [
        name for name in axes.names if name.partition(".")[0] == "optimizer" and name not in START
    ]
    rows: list[dict[str, Any]] = []
    for _, trials in groups(frames.rows, axes.besides(*of_optimizer)):
        cells = [(cell, _tokens(frames, part)) for cell, part in groups(trials, axes.besides())]
        for (cell, first), (of_other, second) in combinations_with_replacement(cells, 2):
            own = {name: of_other[name] for name in of_optimizer if pd.notna(of_other[name])}
            other = axes.label(own).removeprefix("optimizer=")
            rows += (cell | {"second": other} | row for row in _pair(first, second))
    keys = [*axes.names, "second", "measure"]
    pairs = pd.DataFrame(rows, columns=[*keys, "holds"])
    return statistics.shares(pairs, keys, "holds").drop(columns="count")


def _tokens(frames: LoadedSweep, trials: pd.DataFrame) -> Tokens:
    """Return the tokens of the instances of a cell."""
    tokens: Tokens = dict.fromkeys(trials["seed"].tolist())
    for run, rows in trials.groupby("run", sort=False):
        arrays = arrays_of(frames, run)
        if any(name not in arrays for name in NEEDED):
            continue
        final = set(rows.loc[rows["status"].isin(SETTLED), "seed"])
        optimal = np.where(arrays["mask"], arrays["scores"], -np.inf).argmax(-1)
        for k, seed in enumerate(arrays["seeds"].tolist()):
            if seed in final:
                drawn = arrays["X"][k], arrays["Z"][k], arrays["snapshots"][k, 0]
                tokens[seed] = *drawn, arrays["selected"][k], optimal[k]
    return tokens


def _pair(first: Tokens, second: Tokens) -> Iterator[dict[str, Any]]:
    """Yield a row for each instance of either run and each measure; NaN where it is excluded."""
    for seed in sorted({*first, *second}):
        measures: dict[str, object] = dict.fromkeys(("equal", "both_optimal"), np.nan)
        a, b = first.get(seed), second.get(seed)
        if a and b and all(map(np.array_equal, a[:3], b[:3])):
            measures["equal"] = np.array_equal(a[3], b[3])
            measures["both_optimal"] = np.array_equal([a[3], b[3]], [a[4], b[4]])
        for measure, holds in measures.items():
            yield {"measure": measure, "holds": holds}
