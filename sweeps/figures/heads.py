"""Several heads of a layer: their tokens, their SVMs, and the risk that they reach together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnsvm.record import read_solutions

from .. import statistics
from ..cells import CellAxes
from ..facets import Panel, facets, looks_of, named
from . import outcomes
from ._layers import CORRELATIONS, NEAR, NORMS, RULES, keys_of, of_its_norm, with_layers
from ._pages import Pages, Tables

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

X = ("parameterization", "layers", "layer", "heads")
PANELS = {
    "own": Panel("1 - correlation\nwith the SVM", "log", line=NEAR),
    "equal": Panel("share of the samples with\nequal tokens, pairs of heads", "share"),
    "risk": Panel("risk"),
}
CAPTION = (
    "1-correlation of each head with its own SVM, and with that of another head of its layer; how "
    "often two heads of a layer select the same token; and the risk at the end of training, each "
    "versus the number of heads of a layer."
)
NOTE = (
    "Points: median (shares: mean), band: its 95 % bootstrap interval. Samples of a layer count "
    "if the readout sees them. A head counts if its status is ok, a pair if both are; a layer of "
    "an instance is one point: the median of its heads or pairs (tokens: the mean). Dashed: "
    "with the SVM of another head. Risk: of the network, colour of its layer 0. Dotted: 1e-3."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return each measure by layer and number of heads, and the counts by status."""
    trials = with_layers(frames.trials)
    ok = trials[trials["status"] == "ok"]
    ok = ok.assign(own=of_its_norm(ok, CORRELATIONS))
    keys = keys_of(frames, *X)
    keys = [name for name in keys if name != "attention_head"]  # one SVM a head: all are measured
    first = trials[(trials["layer"] == 0) & (trials["attention_head"] == 0)]
    each = [*dict.fromkeys([*keys, "run", "seed"])]
    layers = ok.groupby(each, observed=True, dropna=False)["own"].median().reset_index()
    pairs = _pairs(frames, ok, keys)
    parts = [
        statistics.summaries(layers, keys, "own", "median").assign(measure="own"),
        statistics.summaries(pairs, keys, "other", "median").assign(measure="other"),
        statistics.summaries(pairs, keys, "equal").assign(measure="equal"),
        statistics.summaries(first, keys, "risk", "median").assign(measure="risk"),
    ]
    return {
        "heads": pd.concat(parts, ignore_index=True),
        "heads_counts": outcomes(frames.trials, frames.axes),
    }


def _pairs(frames: SweepFrames, ok: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return a row for each layer of an instance with several heads.

    `equal` is the share of samples on which a pair of heads selects the same token, `other` the
    median 1-correlation of a head with the SVM of another one: both over all pairs of the layer.
    """
    rows: list[dict[str, Any]] = []
    for run, trials in ok.groupby("run", observed=True):
        if (trials["heads"] > 1).any():
            arrays = read_solutions(frames.folders[str(run)])
            norm = NORMS.get(str(trials["parameterization"].iloc[0]))
            if f"{norm}_W" in arrays:
                rows += _of_run(arrays, str(norm), trials, keys)
    return pd.DataFrame(rows, columns=[*keys, "equal", "other"])


def _of_run(
    arrays: Mapping[str, np.ndarray], norm: str, trials: pd.DataFrame, keys: Sequence[str]
) -> Iterator[dict[str, Any]]:
    key = [arrays[name].tolist() for name in ("seeds", "layer", "attention_head")]
    place = {row: k for k, row in enumerate(zip(*key, strict=True))}
    W, W_svm, selected = arrays["trained_W"], arrays[f"{norm}_W"], arrays["selected"]
    for (seed, layer), heads in trials.groupby(["seed", "layer"]):
        rows = [place[seed, layer, head] for head in heads["attention_head"]]
        if len(rows) < 2:
            continue
        seen = arrays["mask"][rows[0]].sum(-1) > 1
        pairs = list(itertools.permutations(rows, 2))
        yield {name: heads[name].iloc[0] for name in keys} | {
            "equal": np.mean([(selected[a] == selected[b])[seen] for a, b in pairs])
            if seen.any()
            else np.nan,
            "other": np.median([_one_minus_correlation(W[a], W_svm[b]) for a, b in pairs]),
        }


def _one_minus_correlation(A: np.ndarray, B: np.ndarray) -> float:
    return float(1 - (A * B).sum() / (np.linalg.norm(A) * np.linalg.norm(B)))


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    table = tables["heads"].sort_values(["layers", "layer"])
    name = "layer " + table["layer"].astype(str) + " of " + table["layers"].astype(str)
    other = table["measure"] == "other"
    table = table.assign(
        rule=named(table["parameterization"], RULES),
        value=table["median"].where(table["measure"] != "equal", table["mean"]),
        panel=table["measure"].mask(other, "own"),
        curve=name.mask(other, name + ", with the SVM of another head"),
    )
    looks = looks_of(list(dict.fromkeys(name)))
    dashed: dict[str, Any] = {"linestyle": (0, (4, 1.6)), "label": "_dashed"}
    looks |= {
        f"{one}, with the SVM of another head": {**look, **dashed} for one, look in looks.items()
    }
    return facets(
        table, "heads", "value", hue="curve", row="rule", col="panel", panels=PANELS, looks=looks,
        x_label="heads of a layer", ticks=table["heads"], nothing="no certified row",
    )[0]  # fmt: skip


draw = Pages("heads", CAPTION, _figure, NOTE, x=[*X, "attention_head"]).draw
