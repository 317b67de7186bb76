"""Several heads of a layer: their tokens, their SVMs, and the risk that they reach together."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from .. import notation, statistics, style
from ..facets import Panel, facets, looks_of, named, panels_of
from . import CellAxes, Figure, Pages, SweepFrames, Tables, _networks, paged
from ._numbers import arrays_of, outcomes

X = ("parameterization", "layers", "layer", "heads")
OF_ROWS = [*X, "attention_head"]


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return each measure by layer and number of heads, and the counts by status."""
    trials = _networks.with_layers(frames.trials)
    ok = trials[trials["status"] == "ok"]
    ok = ok.assign(own=_networks.of_its_norm(ok, _networks.CORRELATIONS))
    keys = [*frames.axes.besides(*OF_ROWS), *X]  # one SVM a head: all are measured
    first = trials[(trials["layer"] == 0) & (trials["attention_head"] == 0)]
    each = [*dict.fromkeys([*keys, "run", "seed"])]
    layers = ok.groupby(each, observed=True, dropna=False)["own"].median().reset_index()
    pairs = pd.DataFrame(_pairs(frames, ok, keys), columns=[*keys, "equal", "other"])
    measured = {"own": layers, "other": pairs, "equal": pairs, "risk": first}
    parts = [
        statistics.summaries(rows, keys, name, "mean" if name == "equal" else "median").assign(
            measure=name
        )
        for name, rows in measured.items()
    ]
    return {
        "heads": pd.concat(parts, ignore_index=True),
        "heads_counts": outcomes(frames.trials, frames.axes),
    }


def _pairs(
    frames: SweepFrames, ok: pd.DataFrame, keys: Sequence[str]
) -> Iterator[dict[str, object]]:
    """Yield a row for each layer of an instance with several heads.

    `equal` is the share of samples on which a pair of heads selects the same token, `other` the
    median 1-correlation of a head with the SVM of another one: both over all pairs of the layer.
    """
    several = ok.groupby("run", observed=True)["heads"].transform("max") > 1
    for run, trials in ok[several].groupby("run", observed=True):
        arrays = arrays_of(frames, run)
        name = f"{_networks.NORMS.get(str(trials['parameterization'].iloc[0]))}_W"
        if name not in arrays:
            continue
        key = [arrays[column].tolist() for column in ("seeds", "layer", "attention_head")]
        place = {row: k for k, row in enumerate(zip(*key, strict=True))}
        W, W_svm, selected = arrays["trained_W"], arrays[name], arrays["selected"]
        for (seed, layer), heads in trials.groupby(["seed", "layer"]):
            rows = [place[seed, layer, head] for head in heads["attention_head"]]
            if len(rows) < 2:
                continue
            a, b = np.array(list(permutations(rows, 2))).T
            seen = arrays["mask"][rows[0]].sum(-1) > 1
            equal = (selected[a] == selected[b])[:, seen]
            inner = (W[a] * W_svm[b]).sum((1, 2))
            sizes = np.linalg.norm(W[a], axis=(1, 2)) * np.linalg.norm(W_svm[b], axis=(1, 2))
            yield {column: heads[column].iloc[0] for column in keys} | {
                "equal": equal.mean() if seen.any() else np.nan,
                "other": np.median(1 - inner / sizes),
            }


def _figure(panels: Mapping[str, Panel], tables: Tables, axes: CellAxes) -> Figure:
    table = tables["heads"].sort_values(["layers", "layer"])
    name = _networks.layer_names(table)
    other = table["measure"] == "other"
    table = table.assign(
        rule=named(table["parameterization"], notation.RULES),
        value=table["median"].where(table["measure"] != "equal", table["mean"]),
        panel=table["measure"].mask(other, "own"),
        curve=name.mask(other, name + ", with the SVM of another head"),
    )
    table = table[table["panel"].isin(panels)]
    looks = looks_of(list(dict.fromkeys(name)))
    dashed: dict[str, Any] = {"linestyle": (0, (4, 1.6)), "label": "_dashed"}
    looks |= {
        f"{one}, with the SVM of another head": {**look, **dashed} for one, look in looks.items()
    }
    other_head = {"SVM of another head": {"color": style.INK, "linestyle": (0, (4, 1.6))}}
    row = "rule" if table["parameterization"].nunique() > 1 else ""
    return facets(
        table, "heads", "value", hue="curve", row=row, col="panel", panels=panels, looks=looks,
        x_label="heads of a layer", ticks=table["heads"], nothing="no certified row",
        also=other_head if "own" in panels else {},
    )[0]  # fmt: skip


draw = paged(
    Pages("heads", partial(_figure, panels_of("own", "equal")), x=OF_ROWS),
    Pages("heads_risk", partial(_figure, panels_of("risk")), x=OF_ROWS),
)
