"""Where separation is possible, and where training finds it (paper, Theorem 1)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import PercentFormatter

from .. import statistics, style
from ..cells import number
from ..facets import matrix
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._numbers import UNTYPED, outcomes

X = ("n", "T", "d")
SHARES = {
    "feasible": "SVM at the optimal tokens feasible",
    "global": "training selects the optimal tokens",
    "assumption_b1": "Assumption B.1 holds",
    "assumption_d": "Assumption D holds",
}
DECIDED = {"feasible": "optimum_feasible", "assumption_b1": "assumption_b1",
           "assumption_d": "assumption_d"}  # fmt: skip
"""Share -> column of the instance alone."""

UNDECIDED = 0.1
"""Largest part of the instances without a verdict in a cell that has a share."""

INTERVAL = ["share", "low", "high"]
MEANINGS = {"T": "tokens", "n": "samples"}
NOTE = (
    "Red line: d = max(T - 1, n); at and above it Theorem 1 guarantees feasibility. Circles, and "
    "bottom row: the d of one half by logistic regression on log d, with Fieller's 95 % interval; "
    "dashed: d = max(T - 1, n); cells where most instances have a tie or no verdict are left out. "
    "White: more than a tenth has no verdict. The 95 % Wilson interval of a share of 100 instances "
    "is at most 19.2 % wide; the table has all of them."
)
CAPTION = (
    "Share of instances whose SVM at the optimal tokens is feasible (certified either way), on "
    "which training from zero ends at the optimal tokens, and which satisfy Assumptions B.1 and D, "
    "over (d, T) at fixed n and over (d, n) at fixed T; and the d at which a share is one half."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the four shares of every cell, the d of one half, and counts by status."""
    trials = frames.trials
    decided, none = trials["status"] != "tie", pd.Series(pd.NA, index=trials.index)
    typed = trials["tokens"].eq("top") & ~trials["status"].isin((*UNTYPED, "undecided"))
    flags = {share: trials.get(name, none).where(decided) for share, name in DECIDED.items()}
    flags["global"] = trials["convergence"].eq("global").where(typed)
    by = [*frames.axes.besides(*X), *X]
    ties = statistics.shares(trials.assign(flag=~decided), by, "flag")["count"]
    parts = []
    for name in SHARES:
        part = statistics.shares(trials.assign(flag=flags[name]), by, "flag").assign(share_of=name)
        undecided = part["excluded"] - ties
        if name in DECIDED:  # often only one of the two verdicts can be found: no share of these
            part.loc[undecided > UNDECIDED * (part["used"] + undecided), INTERVAL] = np.nan
        parts.append(part)
    shares = pd.concat(parts, ignore_index=True)
    keys = [*by[:-1], "share_of"]
    of_most = shares["share"].notna() & (shares["used"] >= shares["excluded"])
    return {
        "phase_transition": shares,
        "phase_transition_halfway": statistics.halfway_points(shares[of_most], keys, "d"),
        "phase_transition_counts": outcomes(trials, frames.axes),
    }


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    """Return a column of maps per share, a row per plane through the grid, and half-way points."""
    table, halfway = tables["phase_transition"], tables["phase_transition_halfway"]
    planes = [
        (f"{fixed} = {number(value)}", axis, fixed, cells)
        for fixed, axis in (("n", "T"), ("T", "n"))
        for value, cells in table.groupby(fixed)
        if cells[axis].nunique() > 1
    ]
    rows = max(len(planes), 1) + 1
    fig = style.figure(11.6, 2.6 * rows + 0.8)
    grid = fig.subplots(rows, len(SHARES), squeeze=False)
    colours = style.colours([title for title, *_ in planes])
    for column, (name, words) in zip(grid.T, SHARES.items(), strict=True):
        style.heading(column[0], words)
        points = halfway[halfway["share_of"] == name]
        for ax, (title, axis, fixed, cells) in zip(column, planes, strict=False):
            here = points[points[fixed] == cells[fixed].iloc[0]]
            _map(ax, axis, cells[cells["share_of"] == name], here)
            _whiskers(column[-1], axis, here[here["halfway"].notna()], title, colours[title])
        column[-2].set_xlabel("token dimension $d$")
        if points["halfway"].notna().any():
            promised = _promised(points)
            ends = [promised.min(), promised.max()]
            column[-1].plot(ends, ends, color="0.4", linestyle="--")
            column[-1].set_xscale("log", base=2)
            column[-1].set_yscale("log", base=2)
            column[-1].set_xlabel("$\\max(T-1, n)$")
            column[-1].legend(fontsize=7)
        else:
            style.empty(column[-1], "one half is nowhere crossed")
    for ax, (title, axis, *_) in zip(grid[:, 0], planes, strict=False):
        ax.set_ylabel(f"{MEANINGS[axis]} ${axis}$  ({title})")
    grid[-1, 0].set_ylabel("$d$ at one half")
    if not planes:
        style.empty(grid[0, 0], "a single n and T: nothing to map")
    fig.colorbar(
        ScalarMappable(Normalize(0, 1), "viridis"), ax=grid[:-1], shrink=0.6, aspect=30, pad=0.01,
        label="share of instances", format=PercentFormatter(xmax=1, decimals=0),
    )  # fmt: skip
    return fig


draw = Pages("phase_transition", CAPTION, _figure, NOTE, x=X).draw


def _whiskers(ax: Axes, axis: str, rows: pd.DataFrame, label: str, colour: str) -> None:
    """Draw the d of one half over max(T - 1, n)."""
    spread = np.abs(rows[["low", "high"]].to_numpy(float).T - rows["halfway"].to_numpy(float))
    ax.errorbar(
        _promised(rows) * (0.97 if axis == "T" else 1.03), rows["halfway"],
        yerr=np.where(np.isfinite(spread).all(axis=0), spread, 0.0), linestyle="", capsize=2,
        label=label, color=colour, marker="o" if axis == "T" else "s", markersize=4,
    )  # fmt: skip


def _promised(points: pd.DataFrame) -> np.ndarray:
    """Return max(T - 1, n), from which d on Theorem 1 promises a feasible SVM."""
    return np.asarray(np.maximum(points["T"].to_numpy(float) - 1, points["n"].to_numpy(float)))


def _map(ax: Axes, axis: str, cells: pd.DataFrame, points: pd.DataFrame) -> None:
    """Draw the shares of a plane, the line of the theorem, and the d of one half of each row."""
    if cells.empty:
        style.empty(ax, "no run on record")
        return
    rows, columns = (np.unique(cells[name]).astype(float) for name in (axis, "d"))
    ticks = [[number(value) for value in values] for values in (columns, rows)]
    matrix(ax, cells, axis, "d", "share", vmin=0, vmax=1, xticklabels=ticks[0],
           yticklabels=ticks[1])  # fmt: skip
    ax.invert_yaxis()
    ax.tick_params(axis="x", rotation=90 if len(columns) > 12 else 0)
    first = np.searchsorted(columns, _promised(cells.drop_duplicates(axis).sort_values(axis)))
    steps = np.repeat(np.arange(len(first) + 1), 2)[1:-1]
    ax.plot(np.repeat(first, 2), steps, color="#e31a1c", linewidth=1.6, clip_on=True)
    points = points[points["halfway"].between(columns[0], columns[-1])]
    d = np.log(points["halfway"].to_numpy(float))
    x = np.interp(d, np.log(columns), np.arange(len(columns)) + 0.5)
    y = np.searchsorted(rows, points[axis].to_numpy()) + 0.5
    ax.plot(x, y, linestyle="", marker="o", markersize=4, color="white", markeredgecolor="black")
