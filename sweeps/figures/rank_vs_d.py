"""Rank of the attention SVM's solutions versus the token dimension d (paper, section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from .. import statistics, style
from ..cells import CellAxes, number
from . import Drawing
from ._pages import drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

NORMS = {"frobenius": r"$W_{\mathrm{mm}}$", "nuclear": r"$W^{\star}_{\mathrm{mm}}$"}
DASHES: dict[str, Any] = {"frobenius": "-", "nuclear": (0, (4, 1.6))}
X = ("n", "T", "d")
APART = 0.14
"""Distance along d between the curves of a panel."""

NARROWEST, STEP = 1.3, 1.1
"""Width of the last curve of a panel, in points, and by how much each earlier one is wider."""

PANELS = 12
"""Largest number of rows of panels in a figure."""
METHODS = {
    "certified": "Certified solutions only",
    "published": "The published way: loose solver, threshold 1e-7, no solution = rank 1",
}
MATRIX_RETURNED = ("optimal", "optimal_inaccurate")


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the mean ranks with their spread and the shares of instances without a solution.

    One row per (other varying keys, n, T, d, method, norm). `used` instances enter the mean;
    `nothing` is the number without a solution: certified infeasible, or, for the published way,
    without a matrix from the solver (recorded as rank 1 and included in the mean).
    """
    trials = frames.trials
    by = [*frames.axes.besides(*X), *X]
    parts = [_certified(trials, by, norm) for norm in NORMS if f"{norm}_status" in trials]
    parts += [_published(trials, by, norm) for norm in NORMS if f"published_{norm}_rank" in trials]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*by, "method"])
    return {"rank_vs_d": table}


def _certified(trials: pd.DataFrame, by: list[str], norm: str) -> pd.DataFrame:
    verdict = trials[f"{norm}_status"].astype("object").where(trials[f"{norm}_status"].notna(), "")
    solved = verdict.isin(("solved", "unconstrained"))
    usable = trials["status"].isin(("ok", "infeasible", "undecided", "unconstrained"))
    rank = trials[f"{norm}_rank"].where(solved & usable)
    infeasible = pd.Series(pd.NA, index=trials.index, dtype="boolean")
    infeasible = infeasible.mask(solved & usable, False)
    infeasible = infeasible.mask((verdict == "infeasible") & usable, True)
    undecided = (verdict == "undecided") & usable
    tied = trials["status"] == "tie"
    frame = trials[by].assign(
        rank=rank,
        nothing=infeasible,
        undecided=undecided,
        tied=tied,
        unranked=solved & usable & rank.isna(),
        set_aside=~tied & ~(usable & (solved | undecided | (verdict == "infeasible"))),
    )
    return _row_per_cell(frame, by).assign(method="certified", norm=norm)


def _published(trials: pd.DataFrame, by: list[str], norm: str) -> pd.DataFrame:
    rank = trials[f"published_{norm}_rank"]
    status = trials[f"published_{norm}_status"]
    nothing = pd.Series(~status.isin(MATRIX_RETURNED), index=trials.index, dtype="boolean")
    nothing = nothing.where(rank.notna())
    frame = trials[by].assign(rank=rank, nothing=nothing, set_aside=rank.isna())
    frame[["undecided", "tied", "unranked"]] = False
    return _row_per_cell(frame, by).assign(method="published", norm=norm)


def _row_per_cell(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    ranks = statistics.summaries(frame, by, "rank")
    nothing = statistics.shares(frame, by, "nothing")
    extra = frame.groupby(by, dropna=False, sort=True)
    return pd.DataFrame(
        {key: nothing[key] for key in by}
        | {"trials": extra.size().to_numpy(), "used": ranks["used"]}
        | {
            f"rank_{name}": ranks[name]
            for name in ("mean", "low", "high", "std", "median", "q25", "q75")
        }
        | {"nothing": nothing["count"], "nothing_share": nothing["share"]}
        | {"nothing_low": nothing["low"], "nothing_high": nothing["high"]}
        | {
            key: extra[key].sum().to_numpy().astype(int)
            for key in ("undecided", "tied", "unranked", "set_aside")
        }
    )


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure per combination of the other axes (one figure in the plain sweep)."""
    return drawings("rank_vs_d", tables, axes, remarks, _figure, caption=_CAPTION, x=X)


def _figure(tables: Mapping[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str]) -> Figure:
    table = tables["rank_vs_d"]
    methods = [method for method in METHODS if (table["method"] == method).any()]
    panels = _panels(table)
    if len(panels) > PANELS:
        what = f"{len(panels) - PANELS} further panels are not drawn: see the table."
        remarks = [*remarks, what]
    panels = panels[:PANELS]
    fig = style.figure(4.6 * max(len(methods), 1) + 0.9, 3.55 * max(len(panels), 1) + 0.5)
    if not methods:
        style.empty(fig.subplots(), "no instance with a solved SVM on record")
        return fig
    heights = [3.0, 1.0] * len(panels)
    grid = fig.subplots(
        len(heights),
        len(methods),
        squeeze=False,
        sharex="row",
        gridspec_kw={"height_ratios": heights},
    )
    for row, (title, series, cells) in enumerate(panels):
        for column, method in enumerate(methods):
            ax, strip = grid[2 * row, column], grid[2 * row + 1, column]
            part = cells[cells["method"] == method]
            _draw_ranks(ax, part, series)
            _draw_strip(strip, part, series, method)
            style.heading(ax, f"{METHODS[method]}\n{title}" if row == 0 else title)
        _share_y(grid[2 * row])
        _legend(grid[2 * row, -1], cells, series)
    style.note(fig, [*_small_print(table), *remarks])
    return fig


def _panels(table: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """Return (title, key that varies, cells) such that every cell is in at least one panel."""
    panels, shown = [], pd.Series(False, index=table.index)
    for fixed, series in (("T", "n"), ("n", "T")):
        for value, cells in table.groupby(fixed, dropna=False, sort=True):
            if cells[series].nunique(dropna=False) > 1:
                panels.append((f"{fixed} = {number(value)}, {series} varies", series, cells))
                shown |= table.index.isin(cells.index)
    for (n, T), cells in table[~shown].groupby(["n", "T"], dropna=False, sort=True):
        panels.append((f"n = {number(n)}, T = {number(T)}", "n", cells))
    return panels


def _draw_ranks(ax: Axes, cells: pd.DataFrame, series: str) -> None:
    values = sorted(cells[series].unique())
    colours, markers = style.colours(values), style.markers(values)
    for k, value in enumerate(values):
        apart = APART * (k - (len(values) - 1) / 2)
        for norm in NORMS:
            curve = cells[(cells[series] == value) & (cells["norm"] == norm)].sort_values("d")
            drawn = curve[curve["used"] > 0]
            d = drawn["d"] + apart
            style.band(ax, d, drawn["rank_low"], drawn["rank_high"], colours[value])
            ax.plot(
                d,
                drawn["rank_mean"],
                color=colours[value],
                linestyle=DASHES[norm],
                linewidth=_width(k, len(values)) if norm == "frobenius" else 1.5,
                marker=markers[value],
                markersize=3.4 + _width(k, len(values)) - NARROWEST,
                markerfacecolor=colours[value] if norm == "frobenius" else "white",
                markeredgecolor=colours[value],
                markeredgewidth=1.0,
            )
            ax.vlines(
                d,
                drawn["rank_mean"] - drawn["rank_std"],
                drawn["rank_mean"] + drawn["rank_std"],
                color=colours[value],
                linewidth=0.7,
                alpha=0.7,
            )
    style.ticks_at(ax, cells["d"])
    ax.set_ylabel("mean rank")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    ax.tick_params(labelbottom=False)


def _width(k: int, count: int) -> float:
    """Return the width of the k-th of several curves: those drawn first are the widest."""
    return NARROWEST + STEP * min(count - 1 - k, 6)


def _draw_strip(ax: Axes, cells: pd.DataFrame, series: str, method: str) -> None:
    values = sorted(cells[series].unique())
    colours, markers = style.colours(values), style.markers(values)
    norm = cells["norm"].iloc[0] if len(cells) else "frobenius"
    for k, value in enumerate(values):
        curve = cells[(cells[series] == value) & (cells["norm"] == norm)].sort_values("d")
        d = curve["d"] + APART * (k - (len(values) - 1) / 2)
        style.band(ax, d, curve["nothing_low"], curve["nothing_high"], colours[value], alpha=0.1)
        ax.plot(
            d,
            curve["nothing_share"],
            color=colours[value],
            marker=markers[value],
            markersize=2.4 + _width(k, len(values)) - NARROWEST,
            linewidth=_width(k, len(values)) - 0.3,
        )
    for d, here in cells.groupby("d"):
        if here["nothing_share"].isna().all() and here["tied"].any():
            ax.text(float(str(d)), 0.5, "tied", rotation=90, ha="center", va="center", fontsize=7.5)
    style.share_axis(ax, "infeasible" if method == "certified" else "no matrix,\nrank := 1")
    style.ticks_at(ax, cells["d"])
    ax.set_xlabel("token dimension $d$")


def _share_y(row: np.ndarray) -> None:
    top = max(ax.get_ylim()[1] for ax in row)
    for ax in row:
        ax.set_ylim(0, top)


def _legend(ax: Axes, cells: pd.DataFrame, series: str) -> None:
    values = sorted(cells[series].unique())
    colours, markers = style.colours(values), style.markers(values)
    handles = [
        Line2D(
            [],
            [],
            color=colours[v],
            marker=markers[v],
            label=f"{series}={number(v)}",
            linewidth=_width(values.index(v), len(values)),
        )
        for v in style.spread(values, 8)
    ]
    handles += [
        Line2D([], [], color=style.INK, linestyle=DASHES[norm], label=name)
        for norm, name in NORMS.items()
        if (cells["norm"] == norm).any()
    ]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _small_print(table: pd.DataFrame) -> list[str]:
    certified = table[table["method"] == "certified"]
    lines = [
        "Shaded: 95 % bootstrap interval of the mean; bars: one standard deviation of the "
        "instances; below: share of instances, 95 % Wilson interval. Equal curves lie in each "
        "other, the first is the widest; curves are moved sideways a little."
    ]
    for norm, cells in certified.groupby("norm"):
        lines.append(
            f"{norm}: {cells['trials'].sum()} instances: {cells['used'].sum()} certified and "
            f"averaged, {cells['nothing'].sum()} certified infeasible (no point), "
            f"{cells['undecided'].sum()} undecided, {cells['unranked'].sum()} solved at a gap too "
            f"wide for a rank, {cells['tied'].sum()} with tied best scores, "
            f"{cells['set_aside'].sum()} rejected, diverged or failed."
        )
    published = table[table["method"] == "published"]
    if len(published):
        nothing, used = published["nothing"].sum(), published["used"].sum()
        lines.append(
            f"The published way: {nothing} of {used} ranks are the 1 of a solver without a "
            f"matrix; {published['set_aside'].sum()} instances have no value."
        )
    return lines


_CAPTION = (
    "Mean rank of the least Frobenius norm solution (solid, filled) and of the least nuclear norm "
    "solution (dashed, open) of the attention SVM at the optimal tokens, versus d. Left: only "
    "solutions whose optimality is certified by a duality bracket, with ranks relative to the "
    "largest singular value; cells without a feasible instance have no point (at d = 1 every token "
    "is 1 or -1, and equal tokens cannot be separated). Right: the same instances as the published "
    "scripts treat them, with the solver at its loose default tolerance, singular values above the "
    "absolute threshold 1e-7 counted, and the rank of an infeasible instance, which has no matrix, "
    "recorded as 1. Noise of the loose solver counts as rank, and infeasible instances shift the "
    "mean to 1 at small d."
)
