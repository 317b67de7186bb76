"""Several heads of a layer: their tokens, their SVMs, and the risk that they reach together."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations, product

import numpy as np
import pandas as pd

from .. import statistics
from ..facets import curves, labels, named, panel_of, panels_of
from . import CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._curves import chance_line
from ._networks import with_layers
from ._numbers import OWN_NORM, arrays_of, of_own_norm, outcomes

X = ("parameterization", "model.layers", "layer", "model.heads")
OF_ROWS = [*X, "attention_head"]
FIGURES = {"heads": ("own", "equal"), "heads_risk": ("risk",)}


def tables(frames: LoadedSweep) -> Tables:
    """Return each measure by layer and number of heads, and the counts by status."""
    trials = with_layers(frames.rows)
    ok = trials[trials["status"] == "ok"]
    ok = ok.assign(own=of_own_norm(ok, "correlation"))
    keys = [*frames.cells.besides(*OF_ROWS, "data.T"), *X, "data.T"]
    each = [*dict.fromkeys([*keys, "run", "seed"])]
    layers = ok.groupby(each, observed=True, dropna=False)["own"].median().reset_index()
    pairs = pd.DataFrame(_pairs(frames, ok, keys), columns=[*keys, "equal", "other"])
    first = trials[(trials["layer"] == 0) & (trials["attention_head"] == 0)]
    measures: tuple[tuple[pd.DataFrame, str, statistics.Statistic], ...] = (
        (layers, "own", "median"),
        (pairs, "other", "median"),
        (pairs, "equal", "mean"),
        (first, "risk", "median"),
    )
    parts = [
        statistics.summaries(rows, keys, name, statistic).assign(measure=name)
        for rows, name, statistic in measures
    ]
    return {
        "heads": pd.concat(parts, ignore_index=True),
        "heads_counts": outcomes(frames.rows, frames.cells),
    }


def _pairs(
    frames: LoadedSweep, ok: pd.DataFrame, keys: Sequence[str]
) -> Iterator[dict[str, object]]:
    """Yield a row for each layer of an instance with several heads.

    `equal` is the share of samples on which a pair of heads selects the same token, `other` the
    median 1-correlation of a head with the SVM of another one: both over all pairs of the layer.
    """
    several = ok.groupby("run", observed=True)["model.heads"].transform("max") > 1
    for run, trials in ok[several].groupby("run", observed=True):
        arrays = arrays_of(frames, run)
        name = f"{OWN_NORM.get(str(trials['parameterization'].iloc[0]))}_W"
        if name not in arrays:
            continue
        columns = [arrays[key].tolist() for key in ("seeds", "layer", "attention_head")]
        place = {row: k for k, row in enumerate(zip(*columns, strict=True))}
        W, W_svm, selected = arrays["trained_W"], arrays[name], arrays["selected"]
        for (seed, layer), heads in trials.groupby(["seed", "layer"]):
            rows = [place[seed, layer, head] for head in heads["attention_head"]]
            if len(rows) < 2:
                continue
            a, b = np.array(list(permutations(rows, 2))).T
            seen = arrays["mask"][rows[0]].sum(-1) > 1
            inner = (W[a] * W_svm[b]).sum((1, 2))
            sizes = np.linalg.norm(W[a], axis=(1, 2)) * np.linalg.norm(W_svm[b], axis=(1, 2))
            equal = (selected[a] == selected[b])[:, seen]
            yield heads[list(keys)].iloc[0].to_dict() | {
                "equal": equal.mean() if seen.any() else np.nan,
                "other": np.median(1 - inner / sizes),
            }


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return the correlations with the tokens of two heads, and the risk."""
    figures = {name: partial(_figure, measures) for name, measures in FIGURES.items()}
    return paged(figures, tables, axes, remarks, inner=[*OF_ROWS, "data.T"])


def _figure(measures: Sequence[str], tables: Tables, axes: CellAxes) -> Figure:
    table = tables["heads"]
    equal, other = table["measure"] == "equal", table["measure"] == "other"
    table = table.assign(
        row=labels(axes, table, ["parameterization"]),
        value=table["median"].mask(equal, table["mean"]),
        col=table["measure"].mask(other, "own"),
        hue=labels(axes, table, ["model.layers", "layer"]),
        dash=named(other, {False: "its own SVM", True: "SVM of another head"}),
    )
    table = table[table["col"].isin(measures)]
    if "own" not in measures:
        table = table.drop(columns="dash")
    fig = curves(table, "model.heads", "value", panels=panels_of(*measures))
    chance = [ax for ax in fig.axes if ax.get_ylabel() == panel_of("equal").label]
    for ax, T in product(chance, table["data.T"].unique()):
        chance_line(ax, T)
    return fig
