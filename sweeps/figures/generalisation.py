"""What trained attention selects in samples that it was not trained on, and the margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes, number
from ..facets import Panel, facets, named
from . import outcomes
from ._curves import TRAINED
from ._pages import Pages, Tables

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

X = ("n", "T", "d", "signal", "parameterization")
MEASURED = ("held_out_optimal", "held_out_excess")
NAMES = {"w": "$W$", "kq": "$(K, Q)$"}
NOTE = (
    "Top: share of the held-out samples that attend most to the relevant token, mean over the "
    "trained instances with its 95 % bootstrap interval; dotted: 1 / T, chance. Bottom: each "
    "instance whose training ends at the optimal tokens and whose SVM is certified, W only, "
    "against the margin 1 / ||W_mm||_F on the n samples; the table has the rank correlation at "
    "each n."
)
CAPTION = (
    "Share of held-out samples of the same instance in which the trained attention selects the "
    "relevant token, versus the number n of samples it was trained on, and versus the margin."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return means on held-out samples, the instances with their margin, and rank correlations."""
    by = [*frames.axes.besides(*X), *X]
    trials = frames.trials
    trained = trials[trials["status"].isin(TRAINED)]
    parts = [
        statistics.summaries(trained, by, name).assign(measured=name)
        for name in MEASURED
        if name in trained
    ]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=by)
    solved = trials[(trials["convergence"] == "global") & (trials["frobenius_status"] == "solved")]
    margins = solved.assign(margin=1 / solved["frobenius_objective"])
    margins = margins.reindex(columns=[*by, "seed", "margin", *MEASURED])
    return {
        "generalisation": table,
        "generalisation_margins": margins,
        "generalisation_rank_correlation": _rank_correlations(margins, by),
        "generalisation_counts": outcomes(trials, frames.axes),
    }


def _rank_correlations(margins: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return Spearman's correlation of margin and held-out share in each cell."""
    rows = []
    for key, part in margins.groupby(list(by), dropna=False, sort=True):
        used = part[["margin", "held_out_optimal"]].dropna()
        found = statistics.rank_correlation(*used.to_numpy(float).T)
        rows.append([*key, len(used), *found])
    return pd.DataFrame(rows, columns=[*by, "used", "rank_correlation", "low", "high"])


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    """Return a column of two panels for each signal."""
    table, margins = tables["generalisation"], tables["generalisation_margins"]
    shares = table[table["measured"] == "held_out_optimal"] if len(table) else table
    names = {
        value: f"signal {number(value)}" if value else "null: no signal"
        for value in sorted(shares["signal"].unique())
    }
    shares = shares.assign(
        curve=named(shares["parameterization"], NAMES), column=named(shares["signal"], names)
    )
    panel = Panel("held-out samples at\nthe relevant token", "share")
    fig, grid = facets(
        shares, "n", "mean", hue="curve", col="column", panels=panel, share_x=False,
        size=(3.1, 2.5), below=[2.5], x_label="samples trained on, $n$",
        nothing="no trained instance",
    )  # fmt: skip
    ns = sorted(margins["n"].unique())
    colours = style.colours(ns)
    for (top, bottom), signal in zip(grid.T, names, strict=False):
        for T in shares["T"].unique():
            top.axhline(1 / T, color="0.5", linestyle=":", linewidth=1)
        top.set_xscale("log", base=2)
        style.ticks_at(top, shares["n"])
        here = (margins["signal"] == signal) & (margins["parameterization"] == "w")
        _over_margin(bottom, margins[here], colours)
    style.share_axis(grid[1, 0], panel.label)
    style.legend(grid[1, -1], grid[1], fontsize=7)
    return fig


def _over_margin(ax: Axes, rows: pd.DataFrame, colours: dict[Any, str]) -> None:
    for n, part in rows.groupby("n"):
        label = f"n = {number(n)}"
        ax.scatter(part["margin"], part["held_out_optimal"], s=9, color=colours[n], label=label)
    if rows.empty:
        style.empty(ax, "no certified instance")
        return
    ax.set_xscale("log", base=2)
    ax.set_xlabel(r"margin $1/\|W_{\mathrm{mm}}\|_F$")


draw = Pages("generalisation", CAPTION, _figure, NOTE, x=X).draw
