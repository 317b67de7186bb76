"""What trained attention selects in samples that it was not trained on, and the margin."""

from __future__ import annotations

import pandas as pd

from .. import statistics, style
from ..cells import number
from ..facets import Panel, facets, named
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._curves import TRAINED
from ._numbers import means_of, outcomes

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
    solved = trials[(trials["convergence"] == "global") & (trials["frobenius_status"] == "solved")]
    margins = solved.assign(margin=1 / solved["frobenius_objective"])
    margins = margins.reindex(columns=[*by, "seed", "margin", *MEASURED])
    ranks = []
    for key, part in margins.groupby(by, dropna=False, sort=True):
        used = part[["margin", "held_out_optimal"]].dropna()
        ranks.append([*key, len(used), *statistics.rank_correlation(*used.to_numpy(float).T)])
    columns = [*by, "used", "rank_correlation", "low", "high"]
    return {
        "generalisation": means_of(trained, by, MEASURED, "measured"),
        "generalisation_margins": margins,
        "generalisation_rank_correlation": pd.DataFrame(ranks, columns=columns),
        "generalisation_counts": outcomes(trials, frames.axes),
    }


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
        for n, part in margins[here].groupby("n"):
            bottom.scatter(
                part["margin"], part["held_out_optimal"], s=9, color=colours[n],
                label=f"n = {number(n)}",
            )  # fmt: skip
        if here.any():
            bottom.set_xscale("log", base=2)
            bottom.set_xlabel(r"margin $1/\|W_{\mathrm{mm}}\|_F$")
        else:
            style.empty(bottom, "no certified instance")
    style.share_axis(grid[1, 0], panel.label)
    style.legend(grid[1, -1], grid[1], fontsize=7)
    return fig


draw = Pages("generalisation", CAPTION, _figure, NOTE, x=X).draw
