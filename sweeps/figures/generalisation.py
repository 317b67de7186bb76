"""What trained attention selects in samples that it was not trained on, and the margin."""

from typing import Any

import pandas as pd

from .. import statistics, style
from ..cells import number
from ..facets import facets, named, panel_of, points
from ..notation import RULES
from . import CellAxes, Figure, Pages, SweepFrames, Tables, paged
from ._curves import TRAINED
from ._numbers import means_of, outcomes

X = ("n", "T", "d", "signal", "parameterization")
MEASURED = ("held_out_optimal", "held_out_excess")
PANEL = panel_of("held_out_optimal")


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


def _signals(column: "pd.Series[float]") -> "pd.Series[Any]":
    """Return the names of the strengths of the signal."""
    values = sorted(column.unique())
    return named(column, {v: f"signal {number(v)}" if v else "no signal" for v in values})


def _over_samples(tables: Tables, axes: CellAxes) -> Figure:
    table = tables["generalisation"]
    shares = table[table["measured"] == "held_out_optimal"] if len(table) else table
    shares = shares.assign(
        curve=named(shares["parameterization"], RULES), column=_signals(shares["signal"])
    )
    fig, (grid,) = facets(
        shares, "n", "mean", hue="curve", col="column", panels=PANEL, share_x=False,
        x_label="samples trained on, $n$", nothing="no trained instance",
    )  # fmt: skip
    for ax in grid:
        for T in shares["T"].unique():
            ax.axhline(1 / T, color="0.5", linestyle=":", linewidth=1)
            ax.text(1, 1 / T, "chance ", ha="right", va="top", fontsize=6.5, color="0.4",
                    transform=ax.get_yaxis_transform())  # fmt: skip
        ax.set_xscale("log", base=2)
        style.ticks_at(ax, shares["n"])
    return fig


def _over_margin(tables: Tables, axes: CellAxes) -> Figure:
    table = tables["generalisation_margins"]
    table = table[table["parameterization"] == "w"]
    names = {n: f"$n={number(n)}$" for n in sorted(table["n"].unique())}
    table = table.assign(used=1, curve=named(table["n"], names), column=_signals(table["signal"]))
    fig, (grid,) = facets(
        table, "margin", "held_out_optimal", hue="curve", col="column", panels=PANEL, mark=points,
        share_x=False, x_label=r"margin $1/\|W_{\mathrm{mm}}\|_F$",
    )  # fmt: skip
    for ax in grid:
        ax.set_xscale("log", base=2)
    return fig


draw = paged(
    Pages("generalisation", _over_samples, x=X), Pages("generalisation_margin", _over_margin, x=X)
)
