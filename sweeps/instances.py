"""Every instance once: what several runs of a cell have drawn, and what has no record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.record.columns import key_columns

from .cells import SEED, rows_of

Interval = tuple[int, int]

BEGIN, ROWS = "first seed of the run", "rows of an instance"
"""Columns beside those of the cell."""

SEEDED = (
    "sphere", "sphere_in_span", "orthonormal", "paths_far", "paths_near", "digits", "pretrained",
    "prompt", "planted",
)  # fmt: skip
"""Options of `data` of which a seed alone gives the instance, whatever run it is in."""

LARGEST = 2**53
"""Seeds and counts above this are no numbers of instances: the record is damaged."""


def first_rows(trials: pd.DataFrame, runs: pd.DataFrame, cell: Sequence[str]) -> pd.Series[Any]:
    """Return for every row the index of the first row that holds the same instance.

    A seed is an instance of its cell, if the source is SEEDED. With data=file, and perhaps with
    plug-ins, it gives the head and the initial weights, and the distance from the first seed of the
    run tells which tokens.
    """
    keys = trials[list(dict.fromkeys([*cell, *key_columns(trials)]))]
    keys = keys.assign(**{BEGIN: _begin(trials, runs)})
    instance = keys.groupby(list(keys), dropna=False, sort=False).ngroup()
    return pd.Series(trials.index, index=trials.index).groupby(instance).transform("first")


def _begin(rows: pd.DataFrame, runs: pd.DataFrame) -> pd.Series[float]:
    """Return the first seed of a row's run where it belongs to the instance, else NaN."""
    begin = pd.Series(np.nan, index=rows.index)
    own = ~rows["data"].isin(SEEDED)
    if own.any():
        names = rows.loc[own, "run"].astype(object)
        begin[own] = names.map(runs.set_index("run")[SEED]).astype(float)
    return begin


def disagreements(trials: pd.DataFrame, first: pd.Series[Any]) -> int:
    """Return how many rows hold other results than the first row of the same instance."""
    again = trials.index != first
    results = [name for name in trials if name != "run"]
    here = trials.loc[again, results].reset_index(drop=True)
    there = trials.loc[first[again], results].reset_index(drop=True)
    same = (here == there).fillna(False) | (here.isna() & there.isna())
    return int((~same.all(axis=1)).sum())


def unrecorded(runs: pd.DataFrame, trials: pd.DataFrame, cell: Sequence[str]) -> Counter[str]:
    """Return state -> number of rows of the runs that are not done, each instance once.

    Instances on record do not count, nor do those of an earlier run of the same cell.
    """
    counted: Counter[str] = Counter()
    lacking = runs[runs["state"] != "done"]
    sizes = [pd.to_numeric(lacking[name], errors="coerce") for name in (SEED, "trials")]
    lacking = lacking[sizes[0].between(0, LARGEST) & sizes[1].between(0, LARGEST)]
    if lacking.empty:
        return counted
    keys = [*cell, BEGIN]
    lacking = lacking.assign(**{BEGIN: _begin(lacking, runs), ROWS: _rows_of_an_instance(lacking)})
    if len(trials):
        trials = trials.assign(**{BEGIN: _begin(trials, runs)})
    for values, part in lacking.groupby(keys, dropna=False, sort=False):
        known = _seeds(trials, dict(zip(keys, values, strict=True)))
        seen: list[Interval] = []
        columns = part[["state", SEED, "trials", ROWS]]
        for state, seed, count, rows in columns.itertuples(index=False):
            new = list(_uncovered((int(seed), int(seed) + int(count)), seen))
            seen = sorted([*seen, *new])
            ends = np.searchsorted(known, np.array(new).reshape(-1, 2))
            missing = sum(b - a for a, b in new) - int((ends[:, 1] - ends[:, 0]).sum())
            counted[state] += int(rows) * missing
    return counted


def _rows_of_an_instance(runs: pd.DataFrame) -> pd.Series[float]:
    """Return how many rows an instance of each run has: with a transformer, layers times heads."""
    rows = pd.Series(1.0, index=runs.index)
    if {"model", "layers", "heads"} <= set(runs):
        sizes = [pd.to_numeric(runs[name], errors="coerce") for name in ("layers", "heads")]
        rows = (sizes[0] * sizes[1]).where(runs["model"] == "transformer").fillna(1.0)
    return rows


def _seeds(trials: pd.DataFrame, cell: dict[str, Any]) -> np.ndarray:
    """Return the sorted seeds of a cell's instances on record."""
    return np.unique(rows_of(trials, cell)[SEED]) if len(trials) else np.array([], dtype=int)


def _uncovered(interval: Interval, covered: Sequence[Interval]) -> Iterator[Interval]:
    """Yield the parts of an interval that none of the sorted intervals `covered` holds."""
    start, stop = interval
    for first, last in covered:
        if last > start and first < stop:
            if first > start:
                yield start, first
            start = max(start, last)
    if start < stop:
        yield start, stop
