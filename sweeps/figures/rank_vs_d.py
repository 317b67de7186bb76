"""Rank of the attention SVM's solutions versus the token dimension d (paper, section 3)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .. import statistics, style
from ..cells import number
from ..facets import Look, Panel, curve, facets, looks_of, named
from ..notation import SVMS, column
from . import CellAxes, Drawing, Figure, Pages, SweepFrames, Tables, drawn
from ._numbers import joined

DASHES: dict[str, Any] = {"frobenius": "-", "nuclear": (0, (4, 1.6))}
X = ("n", "T", "d")
APART = 0.14
"""Distance along d between the curves of a panel."""

NARROWEST, STEP = 1.0, 0.9
"""Width of the last curve of a panel, in points, and by how much each earlier one is wider."""

METHODS = {"certified": "certified", "published": "counted as published"}
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
        for norm in DASHES if column.format(norm) in trials
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


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return the ranks where n varies, where T does, and the shares without a solution."""
    varies = dict.fromkeys(series for _, series, _ in _panels(tables["rank_vs_d"]))
    names = ["rank_vs_d", "rank_vs_d_by_T"]
    pages = [
        *(Pages(name, partial(_ranks, series), _small_print)
          for name, series in zip(names, varies or ["n"], strict=False)),
        Pages("rank_vs_d_infeasible", _shares, _small_print),
    ]  # fmt: skip
    pages = [replace(one, x=X, cells="rank_vs_d", counts="") for one in pages]
    return drawn(pages, tables, axes, remarks)


def _ranks(series: str, tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each method, and a row for each T, or n, if n, or T, varies."""
    table = _curves(tables["rank_vs_d"]).query("varies == @series and kind == 'rank'")
    table = table.assign(method=named(table["method"], METHODS))
    keys = {SVMS[norm]: {"color": style.INK, "linestyle": dash} for norm, dash in DASHES.items()}
    fig, grid = facets(
        table, "at", "value", hue="curve", row="title", col="method", mark=_mark, also=keys,
        panels=Panel("mean rank", "from_zero"), looks=_looks(table), x_label=column("d"),
        ticks=table["d"], nothing="no instance with a solved SVM",
    )  # fmt: skip
    for ax in grid.flat:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return fig


def _shares(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each T and n, with a legend of its own."""
    table = _curves(tables["rank_vs_d"]).query("kind == 'nothing' and method == 'certified'")
    fig, grid = facets(
        table, "at", "value", hue="curve", col="title", panels=Panel("infeasible", "share"),
        looks=_looks(table), x_label=column("d"), ticks=table["d"],
    )  # fmt: skip
    fig.legends.clear()
    for ax in grid.flat:
        if ax.lines:
            ax.legend(loc="upper right")
    return fig


def _looks(curves: pd.DataFrame) -> dict[str, Look]:
    return dict(curves.drop_duplicates("curve").set_index("curve")["look"])


def _panels(table: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    """Return (title, key that varies, cells) such that every cell is in at least one panel."""
    panels, shown = [], pd.Series(False, index=table.index)
    for fixed, series in (("T", "n"), ("n", "T")):
        for value, cells in table.groupby(fixed, dropna=False, sort=True):
            if cells[series].nunique(dropna=False) > 1:
                panels.append((f"${fixed}={number(value)}$", series, cells))
                shown |= table.index.isin(cells.index)
    for (n, T), cells in table[~shown].groupby(["n", "T"], dropna=False, sort=True):
        panels.append((f"$T={number(T)}, n={number(n)}$", "n", cells))
    return panels


def _curves(table: pd.DataFrame) -> pd.DataFrame:
    """Return the points of all panels: mean ranks, and the shares without a solution."""
    parts = [_curves_of(*panel) for panel in _panels(table)]
    columns = [*table, "at", "value", "curve", "look", "title", "varies", "kind"]
    return joined(parts, columns)


def _curves_of(title: str, series: str, cells: pd.DataFrame) -> pd.DataFrame:
    values = sorted(cells[series].unique())
    looks = looks_of(values)
    parts: list[pd.DataFrame] = []
    for (k, value), (norm, dash) in product(enumerate(values), DASHES.items()):
        solid, colour = norm == "frobenius", looks[value]["color"]
        width = NARROWEST + STEP * min(len(values) - 1 - k, 6)  # the first are the widest
        look = {
            **looks[value], "linestyle": dash, "linewidth": width if solid else 1.2,
            "markersize": 1.6 + width, "markerfacecolor": colour if solid else "white",
            "markeredgecolor": colour, "markeredgewidth": 0.8,
            "label": f"${series}={number(value)}$" if solid else "_",
        }  # fmt: skip
        rows = cells[(cells[series] == value) & (cells["norm"] == norm)]
        rows = rows.assign(
            at=rows["d"] + APART * (k - (len(values) - 1) / 2), title=title, varies=series,
            curve=f"{title}|{value}|{norm}", look=[look] * len(rows),
        )  # fmt: skip
        ranks = {"value": "rank_mean", "low": "rank_low", "high": "rank_high"}
        shares = {"value": "nothing_share", "low": "nothing_low", "high": "nothing_high"}
        parts.append(rows.assign(kind="rank", **{k: rows[v] for k, v in ranks.items()}))
        if norm == cells["norm"].iloc[0]:
            rows = rows.assign(kind="nothing", rank_std=np.nan, used=rows["trials"])
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
    lines = []
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
