"""Where separation is possible, and where training finds it (paper, Theorem 1)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize

from .. import statistics, style
from ..cells import number, rows_of, word
from ..facets import curves, heatmaps, labels, named, panel_of
from ..notation import MEASURED, column
from . import CAPTIONS, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import UNTYPED, outcomes

X = ("data.n", "data.T", "data.d")
SHARES = MEASURED["phase_transition"]
DECIDED = ["optimum_feasible", "assumption_b1", "assumption_d"]
"""Columns of the instance alone."""

UNDECIDED = 0.1
"""Largest part of the instances without a verdict in a cell that has a share."""

MAPS = 4
"""Largest number of planes through the grid that are drawn."""

MAP = "phase_transition_maps"

AXES = {"data.T": "data.n", "data.n": "data.T"}
"""Horizontal axis of a plane through the grid -> what is fixed in it, besides d."""

PROMISED = r"$\max(T-1, n)$"


def tables(frames: LoadedSweep) -> Tables:
    """Return the four shares of every cell, the d of one half, and counts by status."""
    trials = frames.rows
    decided = trials["status"] != "tie"
    typed = trials["selection.tokens"].eq("top") & ~trials["status"].isin((*UNTYPED, "undecided"))
    flags = trials.reindex(columns=DECIDED).astype("boolean").where(decided)
    flags = flags.rename(columns={"optimum_feasible": "feasible"})
    flags["global"] = trials["convergence"].eq("global").where(typed)
    by = [*frames.cells.besides(*X), *X]
    ties = statistics.shares(trials.assign(flag=~decided), by, "flag")["count"]
    parts = []
    for name in SHARES:
        part = statistics.shares(trials.assign(flag=flags[name]), by, "flag").assign(share_of=name)
        undecided = part["excluded"] - ties
        if name != "global":  # often only one of the two verdicts can be found: no share of these
            unknown = undecided > UNDECIDED * (part["used"] + undecided)
            part.loc[unknown, ["share", "low", "high"]] = np.nan
        parts.append(part)
    shares = pd.concat(parts, ignore_index=True)
    of_most = shares["share"].notna() & (shares["used"] >= shares["excluded"])
    keys = [*by[:-1], "share_of"]
    return {
        "phase_transition": shares,
        "phase_transition_halfway": statistics.halfway_points(shares[of_most], keys, "data.d"),
        "phase_transition_counts": outcomes(frames),
    }


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
    """Return the d of one half and maps of the shares, over T at each n, and over n at each T."""
    table, figures, maps = tables["phase_transition"], dict[str, Any](), list[Drawing]()
    for axis, fixed in AXES.items():
        planes = _planes(table, axis)
        if len(planes) or not figures:
            figures["phase_transition" if axis == "data.T" else "phase_transition_n"] = partial(
                _halfway, axis
            )
        for value in planes[fixed].unique()[:MAPS]:
            place = {"axis": word(axis), "fixed": f"{word(fixed)} = {number(value)}"}
            caption = {key: text.format(**place) for key, text in CAPTIONS[MAP].items()}
            plane = {f"{MAP}_{word(fixed)}{number(value)}": partial(_maps, {fixed: value}, axis)}
            maps += paged(plane, tables, axes, remarks, inner=X, caption=caption)
    return paged(figures, tables, axes, remarks, inner=X) + maps


def _planes(table: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Return the cells with others that differ from them in `axis`."""
    return table[table.groupby(AXES[axis])[axis].transform("nunique") > 1]


def _promised(table: pd.DataFrame) -> "pd.Series[Any]":
    """Return max(T - 1, n), from which d on Theorem 1 promises a feasible SVM."""
    return table["data.n"].clip(lower=table["data.T"] - 1)


def _halfway(axis: str, tables: Tables, axes: CellAxes) -> Figure:
    """Return the d of one half over T, or n, with a colour for each share."""
    table = tables["phase_transition_halfway"].replace([np.inf, -np.inf], np.nan)
    if len(planes := _planes(table, axis)):
        table = planes[planes[AXES[axis]].isin(planes[AXES[axis]].unique()[:MAPS])]
    promised = table.drop_duplicates(["data.n", "data.T"])
    promised = promised.assign(share_of="promised", halfway=_promised(promised), used=1)
    points = pd.concat([table, promised.assign(low=np.nan, high=np.nan)], ignore_index=True)
    names = {**SHARES, "promised": PROMISED}
    return curves(
        points.assign(hue=named(points["share_of"], names), col=labels(axes, points, [AXES[axis]])),
        axis,
        "halfway",
        panels=panel_of("halfway"),
        height=2.2,
        log_x=True,
        palette=style.colours(SHARES.values()) | {PROMISED: style.INK},
    )


def _maps(plane: dict[str, Any], axis: str, tables: Tables, axes: CellAxes) -> Figure:
    """Return a map of each share over d and `axis`, with a line at d = max(T - 1, n)."""
    table = rows_of(tables["phase_transition"], plane)
    fig = heatmaps(
        table.assign(col=named(table["share_of"], SHARES)),
        axis,
        "data.d",
        "share",
        norm=Normalize(0, 1),
        label="share of instances",
        height=1.65,
        x_label="$d$",
        xticklabels="auto",
        y_label=column(axis),
    )
    first = np.searchsorted(np.unique(table["data.d"]), _promised(table.drop_duplicates(axis)))
    *panels, bar = fig.axes
    for ax in panels:
        ax.stairs(first, orientation="horizontal", baseline=None, color="#e31a1c", lw=1.2)
    style.percent(bar.yaxis)
    return fig
