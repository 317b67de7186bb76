"""Rank of the trained weights versus the token dimension d, beside that of the SVM solutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes, number
from . import Drawing, outcomes, status_counts
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

X = ("n", "T", "d", "parameterization")
RANKS = {
    "rank_effective": "effective rank of the trained weights",
    "rank_stable": "stable rank of the trained weights",
}
SVMS = {"frobenius_rank": r"$W_{\mathrm{mm}}$", "nuclear_rank": r"$W^{\star}_{\mathrm{mm}}$"}
TRAINED = {"w": "trained $W$", "kq": "trained $KQ^T$"}
BESIDE = {"frobenius_rank": "w", "nuclear_rank": "kq"}
"""The parameterization whose limit is the SVM of that norm: its tokens count."""

LINES = {"frobenius_rank": (0, (4, 1.6)), "nuclear_rank": (0, (1, 1.4))}
SHIFTS = {"frobenius_rank": -0.2, "nuclear_rank": 0.2, "w": -0.1, "kq": 0.1}
"""Distance along d by which a curve is moved, so that equal ones are seen."""

NOTE = (
    "Lines: mean over saturated instances whose SVMs are certified; band: its 95 % bootstrap "
    "interval. Effective rank: singular values above the probe's threshold of the largest. Stable "
    "rank: ||W||_F^2 / ||W||_2^2. W_mm is that of the tokens that the trained W selects, W_star_mm "
    "of those that the trained K Q^T selects. Curves are moved sideways a little."
)
CAPTION = (
    "Mean effective and stable rank of the trained W and K Q^T, and certified rank of the SVM "
    "solutions of least Frobenius norm and of least nuclear norm, versus d, for each n and T."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return mean ranks with their intervals, one row per cell and rank, and counts by status."""
    by = [*frames.axes.besides(*X), *X]
    certified = frames.trials[frames.trials["status"] == "ok"]
    parts = [
        statistics.summaries(certified, by, name).assign(rank=name)
        for name in (*RANKS, *SVMS)
        if name in certified
    ]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*by, "rank"])
    counted = outcomes(frames.trials, frames.axes)
    return {"rank_of_weights": table, "rank_of_weights_counts": counted}


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure per combination of the other axes (one figure in the plain sweep)."""
    return drawings(
        "rank_of_weights", tables, axes, remarks, _figure, caption=CAPTION, x=X,
        cells="rank_of_weights_counts",
    )  # fmt: skip


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    """Return a row of panels for each rank, a column for each (n, T)."""
    table = tables["rank_of_weights"]
    columns = list(table.groupby(["n", "T"], dropna=False, sort=True))
    fig = style.figure(3.0 * max(len(columns), 1) + 1.6, 5.6)
    grid = fig.subplots(2, max(len(columns), 1), squeeze=False, sharex="col", sharey="row")
    for line, quantity in zip(grid, RANKS, strict=True):
        for ax, ((n, T), cells) in zip(line, columns, strict=False):
            _curves(ax, cells, quantity)
            if quantity == "rank_effective":
                style.heading(ax, f"n = {number(n)}, T = {number(T)}")
        line[0].set_ylim(bottom=0)  # after all curves, because the panels of a row share it
        line[0].set_ylabel(RANKS[quantity].replace(" of the", "\nof the"))
    for ax, (_, cells) in zip(grid[-1], columns, strict=False):
        ax.set_xlabel("token dimension $d$")
        style.ticks_at(ax, cells["d"])
    if columns:
        style.legend(grid[0, -1], grid.flat)
    else:
        style.empty(grid[0, 0], "no certified instance")
    counted = status_counts(tables["rank_of_weights_counts"], axes)
    style.note(fig, [NOTE, counted, *remarks])
    return fig


def _curves(ax: Axes, cells: pd.DataFrame, quantity: str) -> None:
    colours, markers = style.colours(TRAINED), style.markers(TRAINED)
    for name, label in TRAINED.items():
        here = cells[(cells["rank"] == quantity) & (cells["parameterization"] == name)]
        _curve(ax, here, SHIFTS[name], label, color=colours[name], marker=markers[name])
    if quantity == "rank_effective":
        for name, label in SVMS.items():
            svm = cells[cells["rank"] == name]
            own = svm[svm["parameterization"] == BESIDE[name]]
            look = {"color": style.INK, "linestyle": LINES[name]}
            _curve(ax, own, SHIFTS[name], f"rank of {label}", **look)


def _curve(ax: Axes, cells: pd.DataFrame, shift: float, label: str, **look: object) -> None:
    drawn = cells[cells["used"] > 0].sort_values("d")
    d = drawn["d"] + shift
    style.band(ax, d, drawn["low"], drawn["high"], str(look["color"]))
    ax.plot(d, drawn["mean"], label=label, markersize=3.6, **look)  # type: ignore[arg-type]
