"""Where separation is possible, and where training finds it (paper, Theorem 1)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from .. import statistics, style
from ..cells import number, rows_of
from ..facets import Panel, facets, looks_of, matrix, whiskers
from ..notation import MEASURED, column
from . import CAPTIONS, CellAxes, Drawing, Figure, Pages, SweepFrames, Tables, paged
from ._numbers import UNTYPED, outcomes

X = ("n", "T", "d")
SHARES = MEASURED["phase_transition"]
DECIDED = {"feasible": "optimum_feasible", "assumption_b1": "assumption_b1",
           "assumption_d": "assumption_d"}  # fmt: skip
"""Share -> column of the instance alone."""

UNDECIDED = 0.1
"""Largest part of the instances without a verdict in a cell that has a share."""

INTERVAL = ["share", "low", "high"]
PROMISED = r"$\max(T-1, n)$"
MAPS = 4
"""Largest number of planes through the grid with a figure of their own."""


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


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return the d of one half, and maps of the shares, a figure for each plane of the grid."""
    name, words = "phase_transition_maps", CAPTIONS["phase_transition_maps"]
    maps = [
        Pages(
            f"{name}_{fixed}{number(value)}", partial(_maps, fixed, value, axis),
            note=words["note"],
            caption=words["caption"].format(axis=axis, fixed=f"{fixed} = {number(value)}"), x=X,
        )
        for fixed, axis in (("n", "T"), ("T", "n"))
        for value, cells in tables["phase_transition"].groupby(fixed)
        if cells[axis].nunique() > 1
    ]  # fmt: skip
    pages = Pages("phase_transition", _halfway, x=X), *maps[:MAPS]
    return paged(*pages)(tables, axes, remarks)


def _halfway(tables: Tables, axes: CellAxes) -> Figure:
    """Return the d of one half over max(T - 1, n), a colour for each share."""
    table = tables["phase_transition_halfway"]
    shares = pd.Categorical(table["share_of"].map(SHARES), list(SHARES.values()))
    table = table.assign(curve=shares, at=_promised(table))
    line = {"color": "0.4", "linestyle": "--"}
    fig, ((ax,),) = facets(
        table, "at", "halfway", hue="curve", panels=Panel("$d$ at one half of the instances"),
        looks=looks_of([*SHARES.values()], linestyle="", capsize=2),
        x_label=PROMISED, height=2.4, mark=whiskers, share_x=False,
        nothing="one half is nowhere crossed", also={f"$d=${PROMISED}": line},
    )  # fmt: skip
    if table["halfway"].notna().any():
        ends = [table["at"].min(), table["at"].max()]
        ax.plot(ends, ends, **line)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(ScalarFormatter())
    return fig


def _maps(fixed: str, value: Any, axis: str, tables: Tables, axes: CellAxes) -> Figure:
    """Return a map of each share over d and `axis`."""
    table, halfway = tables["phase_transition"], tables["phase_transition_halfway"]
    fig = style.figure(style.PAGE, 2.0)
    (grid,) = fig.subplots(1, len(SHARES), squeeze=False, sharey=True)
    for ax, (name, words) in zip(grid, SHARES.items(), strict=True):
        style.heading(ax, words)
        cell = {"share_of": name, fixed: value}
        _map(ax, axis, rows_of(table, cell), rows_of(halfway, cell))
        ax.set_xlabel("$d$")
    grid[0].set_ylabel(column(axis))
    fig.colorbar(
        ScalarMappable(Normalize(0, 1), "viridis"), ax=grid, aspect=25, pad=0.01,
        label="share of instances", format=PercentFormatter(xmax=1, decimals=0),
    )  # fmt: skip
    return fig


def _promised(points: pd.DataFrame) -> np.ndarray:
    """Return max(T - 1, n), from which d on Theorem 1 promises a feasible SVM."""
    return np.asarray(np.maximum(points["T"].to_numpy(float) - 1, points["n"].to_numpy(float)))


def _map(ax: Axes, axis: str, cells: pd.DataFrame, points: pd.DataFrame) -> None:
    """Draw the shares of a plane, the line of the theorem, and the d of one half of each row."""
    if cells.empty:
        style.empty(ax, "no run on record")
        return
    rows, columns = (np.unique(cells[name]).astype(float) for name in (axis, "d"))
    every = -(-len(columns) // 7)
    ticks = [[number(v) if i % every == 0 else "" for i, v in enumerate(columns)],
             [number(v) for v in rows]]  # fmt: skip
    matrix(ax, cells, axis, "d", "share", vmin=0, vmax=1, xticklabels=ticks[0],
           yticklabels=ticks[1])  # fmt: skip
    ax.invert_yaxis()
    first = np.searchsorted(columns, _promised(cells.drop_duplicates(axis).sort_values(axis)))
    steps = np.repeat(np.arange(len(first) + 1), 2)[1:-1]
    ax.plot(np.repeat(first, 2), steps, color="#e31a1c", linewidth=1.2, clip_on=True)
    points = points[points["halfway"].between(columns[0], columns[-1])]
    d = np.log(points["halfway"].to_numpy(float))
    x = np.interp(d, np.log(columns), np.arange(len(columns)) + 0.5)
    y = np.searchsorted(rows, points[axis].to_numpy()) + 0.5
    ax.plot(x, y, linestyle="", marker="o", markersize=3, color="white", markeredgecolor="black")
