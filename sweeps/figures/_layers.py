"""What the figures of networks share: tables by layer and head, and why a row is no data point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .. import statistics, style
from ..facets import Look, Panel, facets, stacked, values_of
from . import Figure, SweepFrames
from ._numbers import certified, history_of

NORMS = {"w": "frobenius", "kq": "nuclear"}
"""Norm of the SVM that gradient descent of a parameterization goes to."""

CORRELATIONS = {"w": "one_minus_corr_frobenius", "kq": "one_minus_corr_nuclear"}
GAPS = {name: f"margin_gap_{norm}" for name, norm in NORMS.items()}

NEAR, SHARE = 1e-3, 0.01
"""1-correlation up to which a layer counts as aligned; gradient of unseen positions above which
they count."""

RULES = {"w": "W", "kq": "(K, Q)"}
"""What is trained, in a heading."""

OF_ONE_LAYER: dict[str, Any] = {
    "layer": 0, "attention_head": 0, "layers": 1, "heads": 1, "residual": False,
    "trained": "attention",
}  # fmt: skip
"""What a row of a run without layers has in these columns."""

PANELS = {
    "correlation": Panel("1 - correlation\nwith its SVM", "log", line=NEAR),
    "margin_gap": Panel("margin gap", "log"),
}
"""Vertical axes of what is shown over the steps."""

CAUSES: dict[str, Look] = {
    "aligned": {"label": "aligned to 1e-3", **style.fill("#0072B2")},
    "unseen": {"label": "unseen positions pull", **style.fill("#E69F00", "////")},
    "turning": {"label": "not aligned to 1e-3", **style.fill("#56B4E9", "....")},
    "copies": {"label": "tied copies", **style.fill("#F0E442", "----")},
    "mixing": {"label": "mixing rows", **style.fill("#CC79A7", "xxxx")},
    "infeasible": {"label": "infeasible", **style.fill("#8a8a8a")},
    "other": {"label": "other", **style.fill("#d9d9d9")},
}
"""How a row ended -> how its part of a bar is drawn."""


def with_layers(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with every column of `OF_ONE_LAYER`."""
    given = {
        name: table[name].astype(object).where(table[name].notna(), value).astype(type(value))
        if name in table
        else value
        for name, value in OF_ONE_LAYER.items()
    }
    return table.assign(**given)


def keys_of(frames: SweepFrames, *shown: str) -> list[str]:
    """Return the axes of the sweep, then the columns that a figure shows."""
    return [*frames.axes.besides(*shown), *shown]


def of_its_norm(table: pd.DataFrame, names: dict[str, str]) -> pd.Series[float]:
    """Return for each row the column that `names` gives for its parameterization, NaN without."""
    values = pd.Series(np.nan, index=table.index)
    for rule, name in names.items():
        here = table["parameterization"] == rule
        if name in table:
            values[here] = table.loc[here, name]
    return values


def causes(trials: pd.DataFrame) -> pd.Series[str]:
    """Return how each row ended: aligned with its own SVM, or the first cause why it is not.

    - `copies`: two tokens with the largest attention are equal to the last bit;
    - `mixing`: the attention of a row is not on one token;
    - `infeasible`: no W separates the selected tokens;
    - `unseen`: positions that the readout does not see have a share of the gradient;
    - `turning`: none of these, but the direction has not arrived.
    """
    by_status = {
        "tie": "copies",
        "unsaturated": "mixing",
        "infeasible": "infeasible",
        "ok": "turning",
    }
    found = trials["status"].astype(object).map(by_status).fillna("other")
    ok = trials["status"] == "ok"
    unseen = trials.get("unseen_gradient", pd.Series(0.0, index=trials.index)) >= SHARE
    found[ok & unseen] = "unseen"
    found[ok & (of_its_norm(trials, CORRELATIONS) <= NEAR)] = "aligned"
    return found


def cause_counts(frames: SweepFrames, keys: Sequence[str]) -> pd.DataFrame:
    """Return the number of rows of each cell and cause, with share and largest 1-correlation."""
    trials = with_layers(frames.trials)
    trials = trials.assign(cause=causes(trials), apart=of_its_norm(trials, CORRELATIONS))
    grouped = trials.groupby([*keys, "cause"], dropna=False, sort=True, observed=True)
    table = grouped["apart"].agg(count="size", median="median", largest="max").reset_index()
    whole = table.groupby(list(keys), dropna=False)["count"].transform("sum")
    return table.assign(share=table["count"] / whole)


def over_steps(frames: SweepFrames, keys: Sequence[str]) -> pd.DataFrame:
    """Return medians over the steps, of rows with status ok, by `keys`, quantity and step.

    The quantities are `correlation`, 1-correlation with the SVM in the norm of what is trained, and
    `margin_gap` in the same norm.
    """
    ok = certified(frames)
    needed = dict.fromkeys([*(name for name in keys if name in ok), "parameterization"])
    history = with_layers(history_of(frames, ok, list(needed)))
    parts = []
    for quantity, names in (("correlation", CORRELATIONS), ("margin_gap", GAPS)):
        mine = history["parameterization"].astype(str).map(names)
        parts.append(history[history["quantity"].astype(str) == mine].assign(quantity=quantity))
    rows = pd.concat(parts, ignore_index=True)
    for name in keys:
        if isinstance(rows[name].dtype, pd.CategoricalDtype):
            rows[name] = rows[name].astype(rows[name].cat.categories.dtype)
    return statistics.summaries(rows, [*keys, "quantity", "step"], "value", "median")


def over_steps_and_causes(
    curves: pd.DataFrame,
    causes: pd.DataFrame,
    looks: Mapping[Any, Look] | None,
    bars: str,
    size: tuple[float, float],
    title: str | None = None,
    **labels: Any,
) -> Figure:
    """Return a figure of each quantity over the steps, and below it how rows ended.

    `curve` of the medians of `over_steps` names the curve, `column` the column of panels; `bar` of
    `cause_counts` the bar, `bars` what these are; `labels` is the look of their labels.
    """
    curves = curves.assign(column=curves["column"].astype(causes["column"].dtype))
    fig, grid = facets(
        curves[curves["step"] > 0], "step", "median", hue="curve", row="quantity", col="column",
        panels=PANELS, looks=looks, x_label="step", size=size, below=[size[1]], title=title,
        share_x=False, nothing="no certified row",
    )  # fmt: skip
    for ax, column in zip(grid[-1], values_of(causes, "column"), strict=True):
        names = stacked(ax, causes[causes["column"] == column], "bar", "cause", CAUSES)
        ax.set_xticks(range(len(names)), names, **labels)
        ax.set_xlabel(bars)
    style.share_axis(grid[-1, 0], "share of the rows")
    style.legend(grid[-1, -1], grid[-1])
    return fig
