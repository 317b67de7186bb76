"""What trained attention selects in samples that it was not trained on, and the margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from .. import statistics, style
from ..cells import CellAxes, number
from . import Drawing, outcomes, status_counts
from ._curves import TRAINED
from ._pages import Tables, drawings

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


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure per combination of the other axes (one figure in the plain sweep)."""
    return drawings(
        "generalisation", tables, axes, remarks, _figure, caption=CAPTION, x=X,
        cells="generalisation_counts",
    )  # fmt: skip


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    """Return a column of two panels for each signal."""
    table, margins = tables["generalisation"], tables["generalisation_margins"]
    shares = table[table["measured"] == "held_out_optimal"] if len(table) else table
    signals = sorted(shares["signal"].unique()) if len(shares) else []
    fig = style.figure(3.1 * max(len(signals), 1) + 1.6, 5.8)
    grid = fig.subplots(2, max(len(signals), 1), squeeze=False, sharey=True)
    for (top, bottom), signal in zip(grid.T, signals, strict=True):
        _over_n(top, shares[shares["signal"] == signal])
        style.heading(top, "null: no signal" if signal == 0 else f"signal {number(signal)}")
        of_W = margins["parameterization"] == "w"
        _over_margin(bottom, margins[(margins["signal"] == signal) & of_W])
    for ax in grid[:, 0]:
        ax.set_ylabel("held-out samples at\nthe relevant token")
        ax.set_ylim(-0.03, 1.03)
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    if signals:
        style.legend(grid[0, -1], grid[0])
        handles, names = grid[1, int(np.argmax([len(ax.collections) for ax in grid[1]]))
                              ].get_legend_handles_labels()  # fmt: skip
        if names:
            grid[1, -1].legend(handles, names, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    else:
        style.empty(grid[0, 0], "no trained instance")
    counted = status_counts(tables["generalisation_counts"], axes)
    style.note(fig, [NOTE, counted, *remarks])
    return fig


def _over_n(ax: Axes, cells: pd.DataFrame) -> None:
    colours, markers = style.colours(NAMES), style.markers(NAMES)
    for name, label in NAMES.items():
        drawn = cells[(cells["parameterization"] == name) & (cells["used"] > 0)].sort_values("n")
        style.band(ax, drawn["n"], drawn["low"], drawn["high"], colours[name])
        look = {"color": colours[name], "marker": markers[name]}
        ax.plot(drawn["n"], drawn["mean"], label=label, markersize=4, **look)  # type: ignore[arg-type]
    for T in cells["T"].unique():
        ax.axhline(1 / T, color="0.5", linestyle=":", linewidth=1)
    ax.set_xscale("log", base=2)
    style.ticks_at(ax, cells["n"])
    ax.set_xlabel("samples trained on, $n$")


def _over_margin(ax: Axes, rows: pd.DataFrame) -> None:
    if rows.empty:
        style.empty(ax, "no certified instance")
        return
    names = [f"n = {number(n)}" for n in sorted(rows["n"].unique())]
    colours = style.colours(names)
    for name, (_, part) in zip(names, rows.groupby("n", sort=True), strict=True):
        ax.scatter(part["margin"], part["held_out_optimal"], s=9, color=colours[name], label=name)
    ax.set_xscale("log", base=2)
    ax.set_xlabel(r"margin $1/\|W_{\mathrm{mm}}\|_F$")
