"""Networks: each layer against the SVM of its own input, and why a row is no data point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from .. import notation, statistics, style
from ..facets import Look, bars, facets, named, panels_of
from . import CellAxes, Drawing, Figure, Pages, SweepFrames, Tables, paged
from ._numbers import certified, history_of, outcomes

NORMS = {"w": "frobenius", "kq": "nuclear"}
"""Norm of the SVM that gradient descent of a parameterization goes to."""

CORRELATIONS = {"w": "one_minus_corr_frobenius", "kq": "one_minus_corr_nuclear"}
GAPS = {name: f"margin_gap_{norm}" for name, norm in NORMS.items()}

NEAR, SHARE = notation.PANELS["correlation"]["line"], 0.01
"""1-correlation up to which a layer counts as aligned; gradient of unseen positions above which
they count."""

OF_ONE_LAYER: dict[str, Any] = {
    "layer": 0, "attention_head": 0, "layers": 1, "heads": 1, "residual": False,
    "trained": "attention",
}  # fmt: skip
"""What a row of a run without layers has in these columns."""

PANELS = panels_of("correlation", "margin_gap")
"""Vertical axes of what is shown over the steps; W_svm is in the norm of what is trained."""

CAUSES = {name: style.fill(**look) for name, look in style.FILLS["causes"].items()}
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


def of_its_norm(table: pd.DataFrame, names: dict[str, str]) -> "pd.Series[float]":
    """Return for each row the column that `names` gives for its parameterization, NaN without."""
    values = pd.Series(np.nan, index=table.index)
    for rule, name in names.items():
        here = table["parameterization"] == rule
        if name in table:
            values[here] = table.loc[here, name]
    return values


def causes(trials: pd.DataFrame) -> "pd.Series[str]":
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
    """The figures NAME, correlation of each layer over the steps, NAME_gap and NAME_ends.

    `x` are the columns that every figure shows. `words` adds the names of a row's `column` of
    panels, `curve` and `bar`, and the `look` of a curve: the numbers of its colour and line. Rows
    that `shown` names are drawn over the steps. `bars` names the axis of bars of how rows ended, if
    there is a figure NAME_ends of these.
    `since`: whether there is a table of the step since which the selected tokens are the last ones.
    """

    name: str
    x: tuple[str, ...]
    words: Callable[[pd.DataFrame], pd.DataFrame]
    shown: str = "step > 0"
    log_x: bool = False
    bars: str = ""
    title: str | None = None
    since: bool = False

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the medians over the steps, how rows ended, and the counts by status."""
        keys = [*frames.axes.besides(*self.x), *self.x]
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
        """Return the figures, each for every combination of the other axes."""
        pages = [
            Pages(name, partial(self._curves, quantity), x=self.x)
            for name, quantity in zip([self.name, f"{self.name}_gap"], PANELS, strict=True)
        ]
        if self.bars:
            pages.append(Pages(f"{self.name}_ends", self._bars, x=self.x))
        return paged(*pages)(tables, axes, remarks)

    def _curves(self, quantity: str, tables: Tables, axes: CellAxes) -> Figure:
        table = tables[self.name]
        table = self.words(table[table["quantity"] == quantity].query(self.shown))
        numbers = dict(zip(table["curve"], table["look"], strict=True))
        looks: dict[Any, Look] = {
            name: {"color": style.PALETTE[colour % len(style.PALETTE)],
                   "linestyle": LINES[line % len(LINES)]}
            for name, (colour, line) in numbers.items()
        }  # fmt: skip
        return facets(
            table, "step", "median", hue="curve", row="quantity", col="column", title=self.title,
            panels={quantity: PANELS[quantity]}, looks=looks, x_label="step",
            log_x=self.log_x, nothing="no certified row",
        )[0]  # fmt: skip

    def _bars(self, tables: Tables, axes: CellAxes) -> Figure:
        table = self.words(tables[f"{self.name}_causes"])
        return bars(
            table, "bar", "cause", CAUSES, col="column", x_label=self.bars, least=2.0,
            y_label="share of the rows",
        )[0]  # fmt: skip


def layer_names(table: pd.DataFrame) -> "pd.Series[str]":
    """Return the name of each row's layer: layer 0 of 2."""
    return "layer " + table["layer"].astype(str) + " of " + table["layers"].astype(str)


LINES = ("-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (4, 1.2, 1, 1.2)))
"""Lines of networks of 1, 2, 3, ... layers."""


def _by_residual(table: pd.DataFrame) -> pd.DataFrame:
    table = table.sort_values(["layers", "layer"])
    rule = table["parameterization"].map(notation.RULES)
    column = rule + table["residual"].map({True: ", residual", False: ", no residual"})
    bar = table["layers"].astype(str) + "\n" + table["layer"].astype(str)
    order = sorted(set(column), key=lambda name: ("no" in name, "Q" in name))
    look: Any = [*zip(table["layer"], table["layers"] - 1, strict=True)]
    return table.assign(
        column=pd.Categorical(column, order), curve=layer_names(table), bar=bar, look=look
    )


GRADIENTS = {"direct": "ordinary gradient", "log_domain": "exact gradient"}


def _by_depth(table: pd.DataFrame) -> pd.DataFrame:
    table = table.sort_values(["layers", "layer", "gradient"])
    layer = "layer " + table["layer"].astype(str) + ", " + table["gradient"].map(GRADIENTS)
    depth = table["layers"].map(lambda n: "1 layer" if n == 1 else f"{n} layers")
    look: Any = [*zip(table["gradient"] == "direct", table["layer"], strict=True)]
    return table.assign(curve=layer, column=depth, look=look)


TRAINED = {
    "attention": ("nothing else", (6, 0)), "values": ("values", (0, 1)), "mlp": ("MLPs", (2, 2)),
    "head": ("head", (3, 3)), "all": ("all", (1, 0)),
}  # fmt: skip
"""What is trained, as on the command line -> what it is called, and the look of its curve."""


def _by_trained(table: pd.DataFrame) -> pd.DataFrame:
    rule = named(table["parameterization"], notation.RULES)
    table = table.assign(rule=rule).sort_values(["rule", "layer"])
    column = table["rule"].astype(str) + ", layer " + table["layer"].astype(str)
    trained = named(table["trained"], {kind: name for kind, (name, _) in TRAINED.items()})
    look = table["trained"].map({kind: look for kind, (_, look) in TRAINED.items()})
    columns = pd.Categorical(column, column.unique())
    return table.assign(column=columns, curve=trained, bar=trained, look=look)


SWEEPS = {
    "depth": Layers(
        "depth", ("parameterization", "residual", "layers", "layer"), _by_residual,
        shown="step > 0 and residual", bars="layers of the network, and layer",
    ),
    "depth_precision": Layers(
        "depth_precision", ("gradient", "layers", "layer"), _by_depth, log_x=True
    ),
    "joint": Layers(
        "joint", ("parameterization", "layer", "trained"), _by_trained,
        bars="trained with attention", title="trained with attention", since=True,
    ),
}  # fmt: skip
