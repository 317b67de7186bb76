"""Every instance once: what several runs of a cell have drawn, and what has no record."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.record.columns import key_columns

from .cells import SEED, rows_of

BEGIN, ROWS = "first seed of the run", "rows of an instance"
"""Columns beside those of the cell."""

SEEDED = (
    "sphere", "sphere_in_span", "orthonormal", "paths_far", "paths_near", "digits", "pretrained",
    "prompt", "planted", "token_graph", "classes", "contexts",
)  # fmt: skip
"""Options of `data` of which a seed alone gives the instance, whatever run it is in."""

LARGEST = 2**53
"""Seeds and counts above this are no numbers of instances: the record is damaged."""


def first_rows(trials: pd.DataFrame, runs: pd.DataFrame, cell: Sequence[str]) -> "pd.Series[Any]":
    """Return for every row the index of the first row that holds the same instance.

    A seed is an instance of its cell, if the source is SEEDED. With data=file, and perhaps with
    plug-ins, it gives the head and the initial weights, and the distance from the first seed of the
    run tells which tokens.
    """
    keys = trials[list(dict.fromkeys([*cell, *key_columns(trials)]))]
    keys = keys.assign(**{BEGIN: _begin(trials, runs)})
    instance = keys.groupby(list(keys), dropna=False, sort=False).ngroup()
    return pd.Series(trials.index, index=trials.index).groupby(instance).transform("first")


def _begin(rows: pd.DataFrame, runs: pd.DataFrame) -> "pd.Series[float]":
    """Return the first seed of a row's run where it belongs to the instance, else NaN."""
    begin = pd.Series(np.nan, index=rows.index)
    own = ~rows["data"].isin(SEEDED)
    if own.any():
        names = rows.loc[own, "run"].astype(object)
        begin[own] = names.map(runs.set_index("run")[SEED]).astype(float)
    return begin


def disagreements(trials: pd.DataFrame, first: "pd.Series[Any]") -> int:
    """Return how many rows hold other results than the first row of the same instance."""
    again = trials.index != first
    results = [name for name in trials if name != "run"]
    here = trials.loc[again, results].reset_index(drop=True)
    there = trials.loc[first[again], results].reset_index(drop=True)
    return len(here.compare(there))


def unrecorded(runs: pd.DataFrame, trials: pd.DataFrame, cell: Sequence[str]) -> Counter[str]:
    """Return state -> number of rows of the runs that are not done, each instance once.

    Instances on record do not count, nor do those of an earlier run of the same cell.
    """
    counted: Counter[str] = Counter()
    lacking = runs[runs["state"] != "done"]
    sizes = lacking.reindex(columns=[SEED, "trials", "layers", "heads"])
    sizes = sizes.apply(pd.to_numeric, errors="coerce")
    known = sizes[SEED].between(0, LARGEST) & sizes["trials"].between(0, LARGEST)
    if not known.any():
        return counted
    lacking, sizes = lacking[known], sizes[known]
    # an instance has one row; with a transformer layers times heads
    model = lacking.get("model", pd.Series("", lacking.index))
    rows = (sizes["layers"] * sizes["heads"]).where(model == "transformer")
    lacking = lacking.assign(**{BEGIN: _begin(lacking, runs), ROWS: rows.fillna(1.0)})
    if len(trials):
        trials = trials.assign(**{BEGIN: _begin(trials, runs)})
    keys = [*cell, BEGIN]
    for values, part in lacking.groupby(keys, dropna=False, sort=False):
        same = rows_of(trials, dict(zip(keys, values, strict=True)))
        seeds = np.unique(same[SEED]) if len(same) else np.array([], dtype=int)
        begin, count = part[[SEED, "trials"]].to_numpy(np.int64).T
        states, rows_each = part["state"].tolist(), part[ROWS].tolist()
        for low, high in pairwise(np.unique([begin, begin + count]).tolist()):
            drawn = np.flatnonzero((begin <= low) & (begin + count >= high))
            if drawn.size:  # the first of these runs counts
                first, last = np.searchsorted(seeds, [low, high])
                missing = high - low - int(last - first)
                counted[states[drawn[0]]] += int(rows_each[drawn[0]]) * missing
    return counted
