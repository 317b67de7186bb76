"""Rank of the attention SVM's solutions versus the token dimension d (paper, section 3)."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .. import statistics, style
from ..cells import number
from ..facets import Look, Panel, curve, facets, looks_of
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._numbers import joined

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
SPREAD = ["mean", "low", "high", "std", "median", "q25", "q75"]
COUNTED = ["undecided", "tied", "unranked", "set_aside"]


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the mean ranks with their spread and the shares of instances without a solution.

    One row per (other varying keys, n, T, d, method, norm). `used` instances enter the mean;
    `nothing` is the number without a solution: certified infeasible, or, for the published way,
    without a matrix from the solver (recorded as rank 1 and included in the mean).
    """
    trials = frames.trials
    by = [*frames.axes.besides(*X), *X]
    parts = [
        _row_per_cell(instances(trials, norm), by).assign(method=method, norm=norm)
        for method, instances, column in (
            ("certified", _certified, "{}_status"), ("published", _published, "published_{}_rank")
        )
        for norm in NORMS if column.format(norm) in trials
    ]  # fmt: skip
    return {"rank_vs_d": joined(parts, [*by, "method"])}


def _certified(trials: pd.DataFrame, norm: str) -> pd.DataFrame:
    usable = trials["status"].isin(("ok", "infeasible", "undecided", "unconstrained"))
    verdict = trials[f"{norm}_status"].where(usable)
    solved = verdict.isin(("solved", "unconstrained"))
    infeasible, undecided = verdict.isin(("infeasible",)), verdict.isin(("undecided",))
    rank, tied = trials[f"{norm}_rank"].where(solved), trials["status"] == "tie"
    return trials.assign(
        rank=rank,
        nothing=infeasible.astype("boolean").where(solved | infeasible),
        undecided=undecided,
        tied=tied,
        unranked=solved & rank.isna(),
        set_aside=~tied & ~(solved | undecided | infeasible),
    )


def _published(trials: pd.DataFrame, norm: str) -> pd.DataFrame:
    rank, status = trials[f"published_{norm}_rank"], trials[f"published_{norm}_status"]
    nothing = pd.Series(~status.isin(MATRIX_RETURNED), index=trials.index, dtype="boolean")
    found = trials.assign(rank=rank, nothing=nothing.where(rank.notna()), set_aside=rank.isna())
    return found.assign(undecided=False, tied=False, unranked=False)


def _row_per_cell(trials: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    ranks = statistics.summaries(trials, by, "rank")
    nothing = statistics.shares(trials, by, "nothing")[["count", "share", "low", "high"]]
    counts = trials.groupby(by, dropna=False, sort=True)[COUNTED].sum().astype(int)
    return pd.concat(
        [
            ranks[by].assign(trials=ranks["used"] + ranks["excluded"], used=ranks["used"]),
            ranks[SPREAD].add_prefix("rank_"),
            nothing.add_prefix("nothing_").rename(columns={"nothing_count": "nothing"}),
            counts.reset_index(drop=True),
        ],
        axis=1,
    )


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    table = tables["rank_vs_d"]
    methods = [name for method, name in METHODS.items() if (table["method"] == method).any()]
    if not methods:
        fig = style.figure(6, 3)
        style.empty(fig.subplots(), "no instance with a solved SVM on record")
        return fig
    shown = _panels(table)[:PANELS]
    curves = pd.concat([_curves(*panel) for panel in shown], ignore_index=True)
    curves["method"] = pd.Categorical(curves["method"].map(METHODS), methods)
    nothing = "infeasible, or\nno matrix: rank := 1" if len(methods) > 1 else "no solution"
    kinds = {"rank": Panel("mean rank", "from_zero", height=1.3),
             "nothing": Panel(nothing, "share", height=0.5)}  # fmt: skip
    fig, grid = facets(
        curves, "at", "value", hue="curve", row="row", col="method", mark=_mark, size=(4.6, 2.3),
        panels={f"{title}|{kind}": kinds[kind] for title, *_ in shown for kind in kinds},
        looks=curves.drop_duplicates("curve").set_index("curve")["look"].to_dict(),
        x_label="token dimension $d$", ticks=table["d"],
    )  # fmt: skip
    for ranks, strips, (title, _, cells) in zip(grid[::2], grid[1::2], shown, strict=True):
        for ax, strip, method in zip(ranks, strips, methods, strict=True):
            style.heading(ax, f"{method}\n{title}" if ax in grid[0] else title)
            ax.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
            for d, here in cells[cells["method"].map(METHODS) == method].groupby("d"):
                if here["nothing_share"].isna().all() and here["tied"].any():
                    strip.text(float(str(d)), 0.5, "tied", rotation=90, ha="center", va="center",
                               fontsize=7.5)  # fmt: skip
        for norm in dict.fromkeys(cells["norm"]):
            ranks[-1].plot([], [], color=style.INK, linestyle=DASHES[norm], label=NORMS[norm])
        style.legend(ranks[-1], [])
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


def _curves(title: str, series: str, cells: pd.DataFrame) -> pd.DataFrame:
    """Return the points of a panel: mean ranks, and below them the shares without a solution."""
    values = sorted(cells[series].unique())
    looks = looks_of(values)
    parts: list[pd.DataFrame] = []
    spread = np.linspace(0, len(values) - 1, min(len(values), 8))
    named = {values[int(i)] for i in spread.round()}  # at most eight, evenly spread
    for (k, value), (norm, dash) in product(enumerate(values), DASHES.items()):
        solid, colour = norm == "frobenius", looks[value]["color"]
        width = NARROWEST + STEP * min(len(values) - 1 - k, 6)  # the first are the widest
        look = {
            **looks[value], "linestyle": dash, "linewidth": width if solid else 1.5,
            "markersize": 2.1 + width, "markerfacecolor": colour if solid else "white",
            "markeredgecolor": colour, "markeredgewidth": 1.0,
            "label": f"{series}={number(value)}" if solid and value in named else "_",
        }  # fmt: skip
        rows = cells[(cells[series] == value) & (cells["norm"] == norm)]
        rows = rows.assign(at=rows["d"] + APART * (k - (len(values) - 1) / 2))
        rows = rows.assign(curve=f"{title}|{value}|{norm}", look=[look] * len(rows))
        ranks = {"value": "rank_mean", "low": "rank_low", "high": "rank_high"}
        shares = {"value": "nothing_share", "low": "nothing_low", "high": "nothing_high"}
        parts.append(rows.assign(row=f"{title}|rank", **{k: rows[v] for k, v in ranks.items()}))
        if norm == cells["norm"].iloc[0]:
            rows = rows.assign(row=f"{title}|nothing", rank_std=np.nan, used=rows["trials"])
            parts.append(rows.assign(**{k: rows[v] for k, v in shares.items()}))
    return pd.concat(parts, ignore_index=True)


def _mark(ax: Axes, rows: pd.DataFrame, x: str, statistic: str, look: Look) -> None:
    """Draw a curve, and bars of one standard deviation of the instances."""
    curve(ax, rows, x, statistic, look)
    ends = rows[statistic] - rows["rank_std"], rows[statistic] + rows["rank_std"]
    ax.vlines(rows[x], *ends, color=look["color"], linewidth=0.7, alpha=0.7)


def _small_print(tables: Tables, axes: CellAxes) -> list[str]:
    table = tables["rank_vs_d"]
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
    if (hidden := len(_panels(table)) - PANELS) > 0:
        lines.append(f"{hidden} further panels are not drawn: see the table.")
    return lines


CAPTION = (
    "Mean rank of the least Frobenius norm solution (solid, filled) and of the least nuclear norm "
    "solution (dashed, open) of the attention SVM at the optimal tokens, versus d. Left: certified "
    "solutions, ranks relative to the largest singular value; cells without a feasible instance "
    "have no point. Right: the same instances as the published scripts treat them: loose solver, "
    "singular values above 1e-7, infeasible instances, which have no matrix, as rank 1."
)

draw = Pages("rank_vs_d", CAPTION, _figure, _small_print, "", X, cells="rank_vs_d").draw
