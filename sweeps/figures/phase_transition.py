"""Where separation is possible, and where training finds it (paper, Theorem 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from sweeps import statistics, style
from sweeps.cells import CellAxes, number
from sweeps.figures import UNTYPED, Drawing, outcomes, status_counts
from sweeps.figures._pages import Tables, drawings

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

X = ("n", "T", "d")
SHARES = {
    "feasible": "SVM at the optimal tokens feasible",
    "global": "training selects the optimal tokens",
    "assumption_b1": "Assumption B.1 holds",
}
COLOURS = "viridis"
NOTE = (
    "Red line: d = max(T - 1, n); at and above it Theorem 1 guarantees feasibility. Circles: the d "
    "of one half, by logistic regression on log d; the table has its interval. White: no "
    "instance with a verdict. The 95 % Wilson interval of a share of 100 instances is at most "
    "19.2 % wide; the table lists that of every cell."
)
CAPTION = (
    "Share of instances whose SVM at the optimal tokens is feasible (certified either way), on "
    "which training ends at the optimal tokens, and which satisfy Assumption B.1, over (d, T) at "
    "fixed n and over (d, n) at fixed T."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the three shares of every cell, the d of one half, and counts by status."""
    trials = frames.trials
    at_optimum, trained = trials["tokens"] == "optimal", trials["tokens"] == "top"
    verdict = trials["frobenius_status"]
    known = at_optimum & verdict.isin(("solved", "unconstrained", "infeasible"))
    typed = trained & ~trials["status"].isin((*UNTYPED, "undecided"))
    flags = {
        "feasible": (verdict != "infeasible").where(known),
        "global": (trials["convergence"] == "global").where(typed),
        "assumption_b1": trials["assumption_b1"].where(at_optimum & (trials["status"] != "tie")),
    }
    side = {"feasible": at_optimum, "global": trained, "assumption_b1": at_optimum}
    by = [*frames.axes.besides(*X, "tokens"), *X]
    parts = [
        statistics.shares(trials[side[name]].assign(flag=flag[side[name]]), by, "flag").assign(
            share_of=name
        )
        for name, flag in flags.items()
    ]
    shares = pd.concat(parts, ignore_index=True)
    keys = [*by[:-1], "share_of"]
    return {
        "phase_transition": shares,
        "phase_transition_halfway": statistics.halfway_points(shares, keys, "d"),
        "phase_transition_counts": outcomes(trials, frames.axes),
    }


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure per combination of the other axes (one figure in the plain sweep)."""
    return drawings(
        "phase_transition", tables, axes, remarks, _figure, caption=CAPTION, x=(*X, "tokens")
    )


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    """Return a column of maps per share, a row per plane through the grid."""
    table, halfway = tables["phase_transition"], tables["phase_transition_halfway"]
    planes = _planes(table)
    fig = style.figure(9.6, 2.95 * max(len(planes), 1) + 0.8)
    grid = fig.subplots(max(len(planes), 1), len(SHARES), squeeze=False)
    for i, (title, axis, cells) in enumerate(planes):
        row = grid[i]
        for ax, (name, words) in zip(row, SHARES.items(), strict=True):
            _heat_map(ax, cells[cells["share_of"] == name], axis)
            _mark_halfway(ax, halfway[halfway["share_of"] == name], cells, axis)
            style.heading(ax, "" if i else words)
        row[0].set_ylabel(f"{_meaning(axis)} ${axis}$  ({title})")
    if not planes:
        style.empty(grid[0, 0], "a single n and T: nothing to map")
    for ax in grid[-1]:
        ax.set_xlabel("token dimension $d$")
    shades = ScalarMappable(Normalize(0, 1), COLOURS)
    fig.colorbar(
        shades, ax=grid, shrink=0.6, aspect=30, pad=0.01, label="share of instances",
        format=PercentFormatter(xmax=1, decimals=0),
    )  # fmt: skip
    counted = status_counts(tables["phase_transition_counts"], axes)
    style.note(fig, [NOTE, counted, *remarks])
    return fig


def _planes(table: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """Return (fixed key, key on the y axis, cells) of each plane with several values on y."""
    planes = []
    for fixed, axis in (("n", "T"), ("T", "n")):
        for value, cells in table.groupby(fixed):
            if cells[axis].nunique() > 1:
                planes.append((f"{fixed} = {number(value)}", axis, cells))
    return planes


def _meaning(axis: str) -> str:
    return {"T": "tokens", "n": "samples"}[axis]


def _heat_map(ax: Axes, cells: pd.DataFrame, axis: str) -> None:
    if cells.empty:
        style.empty(ax, "no run on record")
        return
    shares = cells.pivot_table(index=axis, columns="d", values="share", dropna=False)
    rows, columns = shares.index.to_numpy(float), shares.columns.to_numpy(float)
    seaborn.heatmap(
        shares.astype(float), ax=ax, vmin=0, vmax=1, cmap=COLOURS, cbar=False,
        xticklabels=[number(d) for d in columns], yticklabels=[number(value) for value in rows],
    )  # fmt: skip
    ax.grid(False)
    ax.invert_yaxis()
    ax.set(xlabel="", ylabel="")
    ax.tick_params(labelsize=7.5, length=0, rotation=0)
    other = cells["n" if axis == "T" else "T"].iloc[0] if len(cells) else 0
    threshold = [max(v - 1, other) if axis == "T" else max(other - 1, v) for v in rows]
    _staircase(ax, [int(np.searchsorted(columns, d)) for d in threshold])


def _mark_halfway(ax: Axes, points: pd.DataFrame, cells: pd.DataFrame, axis: str) -> None:
    """Draw a circle in each row of the map at the d of one half, where that lies on it."""
    rows, columns = np.sort(cells[axis].unique()), np.sort(cells["d"].unique()).astype(float)
    fixed = "n" if axis == "T" else "T"
    inside = points["halfway"].between(columns[0], columns[-1])
    points = points[inside & (points[fixed] == cells[fixed].iloc[0])]
    x = np.interp(np.log(points["halfway"].to_numpy(float)), np.log(columns),
                  np.arange(len(columns)) + 0.5)  # fmt: skip
    y = np.searchsorted(rows, points[axis].to_numpy()) + 0.5
    ax.plot(x, y, linestyle="", marker="o", markersize=4, color="white", markeredgecolor="black")


def _staircase(ax: Axes, first: list[int]) -> None:
    """Draw the line to the left of column `first[i]` in each row i."""
    x = np.repeat(np.array(first), 2)
    y = np.repeat(np.arange(len(first) + 1), 2)[1:-1]
    ax.plot(x, y, color="#e31a1c", linewidth=1.6, clip_on=True)
