"""What trained attention selects in samples that it was not trained on, and the margin."""

from typing import Any

import numpy as np
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


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return means on held-out samples, the instances with their margin, and rank correlations."""
    by = [*frames.axes.besides(*X), *X]
    trials = frames.trials
    trained = trials[trials["status"].isin(TRAINED)]
    solved = trials[(trials["convergence"] == "global") & (trials["frobenius_status"] == "solved")]
    margins = solved.assign(svm_margin=1 / solved["frobenius_objective"])
    margins = margins.reindex(columns=[*by, "seed", "svm_margin", *MEASURED])
    ranks = []
    for key, part in margins.groupby(by, dropna=False, sort=True):
        used = part[["svm_margin", "held_out_optimal"]].dropna()
        ranks.append([*key, len(used), *statistics.rank_correlation(*used.to_numpy(float).T)])
    columns = [*by, "used", "rank_correlation", "low", "high"]
    return {
        "generalisation": means_of(trained, by, MEASURED, "measured"),
        "generalisation_margins": margins,
        "generalisation_rank_correlation": pd.DataFrame(ranks, columns=columns),
        "generalisation_counts": outcomes(trials, frames.axes),
    }


def _by_signal(
    table: pd.DataFrame, x: str, statistic: str, **look: Any
) -> tuple[Figure, np.ndarray]:
    """Return a panel for each strength of the signal, x in powers of two."""
    values = sorted(table["signal"].unique())
    names = {v: f"signal {number(v)}" if v else "no signal" for v in values}
    fig, (grid,) = facets(
        table.assign(column=named(table["signal"], names)), x, statistic, hue="curve", col="column",
        panels=panel_of("held_out_optimal"), share_x=False, **look,
    )  # fmt: skip
    for ax in grid:
        ax.set_xscale("log", base=2)
    return fig, grid


def _over_samples(tables: Tables, axes: CellAxes) -> Figure:
    table = tables["generalisation"]
    shares = table[table["measured"] == "held_out_optimal"]
    shares = shares.assign(curve=named(shares["parameterization"], RULES))
    label = "samples trained on, $n$"
    fig, grid = _by_signal(shares, "n", "mean", x_label=label, nothing="no trained instance")
    for ax in grid:
        for T in shares["T"].unique():
            ax.axhline(1 / T, color="0.5", linestyle=":", linewidth=1)
            ax.text(1, 1 / T, "chance ", ha="right", va="top", fontsize=6.5, color="0.4",
                    transform=ax.get_yaxis_transform())  # fmt: skip
        style.ticks_at(ax, shares["n"])
    return fig


def _over_margin(tables: Tables, axes: CellAxes) -> Figure:
    table = tables["generalisation_margins"]
    table = table[table["parameterization"] == "w"]
    names = {n: f"$n={number(n)}$" for n in sorted(table["n"].unique())}
    return _by_signal(
        table.assign(used=1, curve=named(table["n"], names)), "svm_margin", "held_out_optimal",
        mark=points, x_label=r"margin $1/\|W_{\mathrm{mm}}\|_F$",
    )[0]  # fmt: skip


draw = paged(
    Pages("generalisation", _over_samples, x=X), Pages("generalisation_margin", _over_margin, x=X)
)
