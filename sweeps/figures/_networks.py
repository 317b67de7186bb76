"""Networks: each layer against the SVM of its own input, and why a row is no data point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from .. import statistics, style
from ..facets import Look, Panel, facets, named, stacked, values_of
from . import CellAxes, Drawing, Figure, Pages, SweepFrames, Tables
from ._numbers import certified, history_of, outcomes

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
    by_status = {"tie": "copies", "unsaturated": "mixing", "infeasible": "infeasible",
                 "ok": "turning"}  # fmt: skip
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

    Quantities: `correlation` (1-correlation) and `margin_gap`, in the norm of what is trained.
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


@dataclass(frozen=True)
class Layers:
    """The figure `name`: correlation and margin gap of each layer over the steps.

    `x` are the columns that every figure shows. `words` adds the names of a row's `column` of
    panels, `curve` and `bar`; `looks` says how the curves of such a table are drawn. `bars` names
    the bars below, which show how rows ended, if there are any; `ticks` is the look of their names.
    `since`: whether there is a table of the step since which the selected tokens are the last ones.
    """

    name: str
    caption: str
    note: str
    x: tuple[str, ...]
    words: Callable[[pd.DataFrame], pd.DataFrame]
    looks: Callable[[pd.DataFrame], Mapping[Any, Look]]
    size: tuple[float, float]
    bars: str = ""
    title: str | None = None
    ticks: Mapping[str, Any] = field(default_factory=dict)
    since: bool = False

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the medians over the steps, how rows ended, and the counts by status."""
        keys = keys_of(frames, *self.x)
        found = {self.name: over_steps(frames, keys)}
        if self.bars:
            found[f"{self.name}_causes"] = cause_counts(frames, keys)
        if self.since:
            trials = with_layers(frames.trials)
            ended = trials[trials["training"] != "diverged"]
            since = statistics.summaries(ended, keys, "selected_since", "median")
            found[f"{self.name}_selection"] = since
        return {**found, f"{self.name}_counts": outcomes(frames.trials, frames.axes)}

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return the figures, one for each combination of the other axes."""
        note = (
            "Curves: median of the saturated rows whose SVM is certified, band: its 95 % bootstrap "
            f"interval. {self.note} Dotted: 1e-3."
        )
        pages = Pages(self.name, self.caption, self._figure, note, x=self.x)
        return pages.draw(tables, axes, remarks)

    def _figure(self, tables: Tables, axes: CellAxes) -> Figure:
        curves = self.words(tables[self.name])
        looks, causes = self.looks(curves), None
        if self.bars:
            causes = self.words(tables[f"{self.name}_causes"])
            curves["column"] = curves["column"].astype(causes["column"].dtype)
        fig, grid = facets(
            curves[curves["step"] > 0], "step", "median", hue="curve", row="quantity", col="column",
            panels=PANELS, looks=looks, x_label="step", log_x=causes is None, size=self.size,
            below=[] if causes is None else [self.size[1]], title=self.title,
            share_x="col" if causes is None else False, nothing="no certified row",
        )  # fmt: skip
        if causes is not None:
            for ax, column in zip(grid[-1], values_of(causes, "column"), strict=True):
                names = stacked(ax, causes[causes["column"] == column], "bar", "cause", CAUSES)
                ax.set_xticks(range(len(names)), names, **self.ticks)
                ax.set_xlabel(self.bars)
            style.share_axis(grid[-1, 0], "share of the rows")
            style.legend(grid[-1, -1], grid[-1])
        return fig


def layer_names(table: pd.DataFrame) -> pd.Series[str]:
    """Return the name of each row's layer: layer 0 of 2."""
    return "layer " + table["layer"].astype(str) + " of " + table["layers"].astype(str)


LINES = ("-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (4, 1.2, 1, 1.2)))
"""Lines of networks of 1, 2, 3, ... layers."""


def _by_residual(table: pd.DataFrame) -> pd.DataFrame:
    table = table.sort_values(["layers", "layer"])
    columns = {
        (rule, residual): f"{words}, {'residual' if residual else 'no residual'}"
        for rule, words in RULES.items()
        for residual in (True, False)
    }
    pairs = list(zip(table["parameterization"], table["residual"], strict=True))
    bar = table["layers"].astype(str) + "\n" + table["layer"].astype(str)
    column = named(pd.Series(pairs, table.index, dtype=object), columns)
    return table.assign(column=column, curve=layer_names(table), bar=bar)


def _looks_of_layers(curves: pd.DataFrame) -> dict[str, Look]:
    return {
        str(one["curve"]): {
            "color": style.PALETTE[one["layer"] % len(style.PALETTE)],
            "linestyle": LINES[(one["layers"] - 1) % len(LINES)],
        }
        for _, one in curves.drop_duplicates("curve").iterrows()
    }


GRADIENTS = {"direct": "ordinary gradient", "log_domain": "exact gradient"}
OF_GRADIENTS: dict[str, Look] = {
    "ordinary gradient": {"color": "#D55E00", "linestyle": LINES[1]},
    "exact gradient": {"color": "#0072B2", "linestyle": "-"},
}


def _by_layer(table: pd.DataFrame) -> pd.DataFrame:
    table = table.sort_values(["layers", "layer"])
    return table.assign(curve=named(table["gradient"], GRADIENTS), column=layer_names(table))


OF_TRAINED: dict[str, Look] = {
    "attention": {"color": "#4d4d4d", "linestyle": "-"},
    "values": {"color": "#0072B2", "linestyle": LINES[1]},
    "mlp": {"color": "#009E73", "linestyle": LINES[2]},
    "head": {"color": "#CC79A7", "linestyle": LINES[3]},
    "all": {"color": "#D55E00", "linestyle": "-"},
}


def _by_trained(table: pd.DataFrame) -> pd.DataFrame:
    rule = named(table["parameterization"], RULES)
    table = table.assign(rule=rule).sort_values(["rule", "layer"])
    column = table["rule"].astype(str) + ", layer " + table["layer"].astype(str)
    trained = named(table["trained"], {name: name for name in OF_TRAINED})
    column = named(column, {name: name for name in column})
    return table.assign(column=column, curve=trained, bar=trained)


SWEEPS = {
    "depth": Layers(
        "depth",
        "Median 1-correlation of every layer with the SVM of its own input, and its margin gap, "
        "over the steps: least Frobenius norm for W, least nuclear norm for (K, Q). Below: how the "
        "layers ended. Left to right: W and (K, Q), with and without a residual connection.",
        "A row is one layer of one instance. Unseen positions pull: at least 1 % of the last "
        "gradient comes from positions that the readout does not see.",
        ("parameterization", "residual", "layers", "layer"), _by_residual, _looks_of_layers,
        (2.9, 2.4), bars="layers of the network, and layer",
    ),
    "depth_precision": Layers(
        "depth_precision",
        "Median 1-correlation of every layer with the SVM of its own input, and its margin gap, "
        "over the steps: with the ordinary gradient, and with the exact one.",
        "Each gradient has the SVMs of the tokens that it selects.",
        ("gradient", "layers", "layer"), _by_layer, lambda _: OF_GRADIENTS, (2.1, 2.2),
    ),
    "joint": Layers(
        "joint",
        "Median 1-correlation of every layer with the SVM of its own input at the end of training, "
        "and its margin gap, over the steps: attention is trained alone, or with values, MLPs, "
        "prediction head, or all of them. Below: how the layers ended.",
        "The SVM is that of the input and the selected tokens at the last step. A row is one layer "
        "of one instance. Not aligned: the curves say whether it comes nearer.",
        ("parameterization", "layer", "trained"), _by_trained, lambda _: OF_TRAINED, (2.6, 2.4),
        bars="trained with attention", title="trained", ticks={"rotation": 40, "ha": "right"},
        since=True,
    ),
}  # fmt: skip
