"""What the figures of networks share: tables by layer and head, and why a row is no data point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import statistics, style
from . import history_of

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

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

QUANTITIES = {
    "correlation": "1 - correlation\nwith its SVM",
    "margin_gap": "margin gap",
}
"""Axis labels of what is shown over the steps."""

CAUSES = {
    "aligned": "aligned to 1e-3",
    "unseen": "unseen positions pull",
    "turning": "not aligned to 1e-3",
    "copies": "tied copies",
    "mixing": "mixing rows",
    "infeasible": "infeasible",
    "other": "other",
}
COLOURS = {
    "aligned": "#0072B2",
    "unseen": "#E69F00",
    "turning": "#56B4E9",
    "copies": "#F0E442",
    "mixing": "#CC79A7",
    "infeasible": "#8a8a8a",
    "other": "#d9d9d9",
}
HATCHES = {"unseen": "////", "turning": "....", "mixing": "xxxx", "copies": "----"}


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


def own(table: pd.DataFrame, names: dict[str, str]) -> pd.Series[float]:
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
    status, found = trials["status"], pd.Series("other", index=trials.index)
    found[status == "tie"] = "copies"
    found[status == "unsaturated"] = "mixing"
    found[status == "infeasible"] = "infeasible"
    ok = status == "ok"
    unseen = trials.get("unseen_gradient", pd.Series(0.0, index=trials.index)) >= SHARE
    found[ok] = "turning"
    found[ok & unseen] = "unseen"
    found[ok & (own(trials, CORRELATIONS) <= NEAR)] = "aligned"
    return found


def cause_counts(frames: SweepFrames, keys: Sequence[str]) -> pd.DataFrame:
    """Return the number of rows of each cell and cause, with share and largest 1-correlation."""
    trials = with_layers(frames.trials)
    trials = trials.assign(cause=causes(trials), apart=own(trials, CORRELATIONS))
    grouped = trials.groupby([*keys, "cause"], dropna=False, sort=True, observed=True)
    table = grouped["apart"].agg(count="size", median="median", largest="max").reset_index()
    whole = table.groupby(list(keys), dropna=False)["count"].transform("sum")
    return table.assign(share=table["count"] / whole)


def over_steps(frames: SweepFrames, keys: Sequence[str]) -> pd.DataFrame:
    """Return medians over the steps, of rows with status ok, by `keys`, quantity and step.

    The quantities are `correlation`, 1-correlation with the SVM in the norm of what is trained, and
    `margin_gap` in the same norm.
    """
    ok = frames.trials[frames.trials["status"] == "ok"]
    given = [name for name in keys if name in ok]
    needed = dict.fromkeys([*given, "parameterization"])
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


def stacked(ax: Axes, cells: Sequence[tuple[str, pd.DataFrame]]) -> None:
    """Stack the shares of causes, a bar for each cell."""
    for place, (_, cell) in enumerate(cells):
        bottom = 0.0
        for cause, colour in COLOURS.items():
            share = float(cell.loc[cell["cause"] == cause, "share"].sum())
            fill = style.fill(colour, HATCHES.get(cause, ""))
            ax.bar(place, share, 0.8, bottom, label=CAUSES[cause] if share else None, **fill)
            bottom += share


@dataclass(frozen=True)
class Column:
    """A column of panels: its heading, medians of `over_steps`, and cells of `cause_counts`."""

    heading: str
    curves: pd.DataFrame
    bars: Sequence[tuple[str, pd.DataFrame]]


def columns_of_panels(
    columns: Sequence[Column],
    draw: Callable[[Axes, pd.DataFrame], None],
    bars: str,
    size: tuple[float, float],
    legend: str | None = None,
    **labels: Any,
) -> Figure:
    """Return a figure of each quantity over the steps, and below it how rows ended.

    Parameters
    ----------
    columns : sequence of Column
        Left to right.
    draw : callable
        Draws the curves of one quantity.
    bars : str
        What the bars are.
    size : tuple of float
        Width of a column and height of the figure (inches).
    legend : str, optional
        Title of the legend of the curves.
    **labels
        Look of the labels of bars.
    """
    count = max(len(columns), 1)
    fig = style.figure(size[0] * count + 2.0, size[1])
    grid = fig.subplots(len(QUANTITIES) + 1, count, squeeze=False, sharey="row")
    below = grid[-1]
    for column, axes in zip(columns, grid.T, strict=False):  # without columns one stays empty
        style.heading(axes[0], column.heading)
        for ax, quantity in zip(axes[:-1], QUANTITIES, strict=True):
            draw(ax, column.curves[column.curves["quantity"] == quantity])
            ax.set_xlabel("step")
        stacked(axes[-1], column.bars)
        axes[-1].set_xticks(range(len(column.bars)), [name for name, _ in column.bars], **labels)
        axes[-1].set_xlabel(bars)
    for row, (quantity, label) in zip(grid[:-1], QUANTITIES.items(), strict=True):
        row[0].set_ylabel(label)
        for ax in row:
            style.log_axis(ax.yaxis)
            if quantity == "correlation":
                ax.axhline(NEAR, color=style.FAINT, linestyle=":", linewidth=0.9)
    style.share_axis(below[0], "share of the rows")
    style.legend(grid[0, -1], grid[0], title=legend)
    style.legend(below[-1], below)
    return fig
