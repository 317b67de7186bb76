"""Sweeps without their own figure module: how training ended and which SVM W agrees with.

A numeric axis becomes x, the next axes colours, columns and rows of panels; few cells have bars
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from .. import statistics, style
from ..cells import CellAxes
from ..chart.draw import WORDS, figure
from ..chart.question import ROOM, Question
from ..facets import stacked
from . import Drawing, ended
from ._pages import FIGURES, Pages, Tables

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

CURVES = {
    "one_minus_corr_frobenius": r"$W_{\mathrm{mm}}$",
    "one_minus_corr_nuclear": r"$W^{\star}_{\mathrm{mm}}$",
    "one_minus_corr_svmeq": r"$W_{\mathrm{svmeq}}$",
    "one_minus_corr_1token": r"$W_{\mathrm{1token}}$",
}
RANKS = ("frobenius_rank", "nuclear_rank")
"""Drawn where nothing is trained."""

BARS = 12
"""Largest number of bars in a figure."""

OK = "instances with status ok"

LONGEST = 160
"""Largest number of letters of a cell's name."""

CAPTION = (
    "How every instance of each cell ended (also the excluded ones), and the median "
    "1-correlation of the trained W with the solutions of the attention SVM."
)
CHARTS = {
    "ok": "Share of all instances with status ok",
    **{q: f"Median 1-correlation of W with {CURVES[q]}, instances with status ok" for q in CURVES},
    "frobenius_rank": r"Median rank of $W_{\mathrm{mm}}$, instances with status ok",
    "nuclear_rank": r"Median rank of $W^{\star}_{\mathrm{mm}}$, instances with status ok",
}
"""Caption of the chart of a quantity."""


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return, per cell, the shares of outcomes and the median 1-correlations."""
    trials, cells = _numbered(frames)
    outcomes = statistics.counts(trials, ["place", "outcome"])
    total = outcomes.groupby("place")["count"].transform("sum")
    low, high = statistics.wilson_interval(outcomes["count"].to_numpy(), total.to_numpy())
    outcomes = outcomes.assign(share=outcomes["count"] / total, low=low, high=high)
    present = [q for q in (*CURVES, *RANKS) if q in trials and trials[q].notna().any()]
    quantities = [q for q in present if q in CURVES] or present
    ok = trials["status"] == "ok"
    agreement = statistics.summaries(
        trials.assign(**{q: trials[q].where(ok) for q in quantities}).melt(
            ["place"], quantities, "quantity", "value"
        ),
        ["place", "quantity"],
        "value",
        "median",
    )
    usable = statistics.shares(trials.assign(ok=ok), ["place"], "ok")
    found = {"outcomes": outcomes, "agreement": agreement, "usable": usable}
    return {
        name: cells.merge(table, on="place").drop(columns="place") for name, table in found.items()
    }


def _numbered(frames: SweepFrames) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the instances with the place of their cell, and place, axes and label of each cell."""
    by = frames.axes.besides()
    typed = "convergence" in frames.trials
    outcome = ended(frames.trials) if typed else frames.trials["status"]
    trials = frames.trials.assign(outcome=outcome)
    place = trials.groupby(by, dropna=False, sort=True).ngroup() if by else 0
    trials = trials.assign(place=place)
    cells = trials[["place", *by]].drop_duplicates().sort_values("place")
    rows = cells[by].itertuples(index=False, name=None)
    labels = [frames.axes.label(dict(zip(by, row, strict=True))) for row in rows]
    return trials, cells.assign(cell=labels if by else "all")


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return a chart of each quantity over a numeric axis, and bars where there are few cells."""
    cells = list(tables["outcomes"]["cell"].unique())
    x = _numeric(tables["usable"], axes)
    charts = [] if x is None else _charts(tables, axes, x, remarks)
    if charts and len(cells) > BARS:
        return charts
    pages = [cells[first : first + BARS] for first in range(0, len(cells), BARS)]
    hidden = sum(map(len, pages[FIGURES:]))
    remarks = [f"{hidden} further cells are in the table only." if hidden else "", *remarks]
    bars = [
        Drawing(f"adhoc_{i}" if i else "adhoc", CAPTION, partial(_figure, tables, page, remarks))
        for i, page in enumerate(pages[:FIGURES])
    ]
    return [*bars, *charts]


def _numeric(table: pd.DataFrame, axes: CellAxes) -> str | None:
    """Return the axis of numbers with the most values, None if there is no such axis."""
    types = pd.api.types
    counts = {
        name: table[name].nunique()
        for name in axes.names
        if types.is_numeric_dtype(table[name]) and not types.is_bool_dtype(table[name])
        and table[name].notna().all()
    }  # fmt: skip
    most = max(counts.values(), default=0)
    return next((name for name, count in counts.items() if count == most > 1), None)


def _charts(
    tables: dict[str, pd.DataFrame], axes: CellAxes, x: str, remarks: Sequence[str]
) -> list[Drawing]:
    """Return a chart of every quantity; pages for the axes that have no part in it."""
    table, parts = tables["usable"], dict[str, str]()
    for name in axes.besides(x):
        free = [role for role in ROOM if role not in parts]
        if free and table[name].nunique(dropna=False) <= ROOM[free[0]]:
            parts[free[0]] = name
    found = {"ok": table} | {str(q): part for q, part in tables["agreement"].groupby("quantity")}
    drawn: list[Drawing] = []
    for quantity, part in found.items():
        pages = Pages(
            f"adhoc_{quantity}", CHARTS[quantity], partial(_chart, quantity, x, parts),
            _shown_and_not, counts="", x=(x, *parts.values()), cells="chart",
        )  # fmt: skip
        drawn += pages.draw({"chart": part}, axes, remarks)
    return drawn


def _shown_and_not(tables: Tables, axes: CellAxes) -> list[str]:
    used, excluded = (int(tables["chart"][name].sum()) for name in ("used", "excluded"))
    kind = "share" if "share" in tables["chart"] else "line"
    return [
        WORDS[kind].format(estimator="median"),
        f"Instances: {used + excluded}, {used} shown; the others have another status or no value.",
    ]


def _chart(quantity: str, x: str, parts: dict[str, str], tables: Tables, axes: CellAxes) -> Figure:
    typed: dict[str, Any] = {role: axes.typed.get(name, name) for role, name in parts.items()}
    log = ("y",) if quantity in CURVES else ()
    y = OK if quantity == "ok" else quantity
    x = axes.typed.get(x, x)
    question = Question(x, y, **typed, kind="line", estimator="median", log=log)
    return figure(tables["chart"].rename(columns=axes.typed), question)[0]


def _figure(tables: dict[str, pd.DataFrame], cells: list[str], remarks: Sequence[str]) -> Figure:
    """Return stacked bars of outcomes beside the median 1-correlations, a row for each cell."""
    outcomes, agreement = tables["outcomes"], tables["agreement"]
    outcomes = outcomes[outcomes["cell"].isin(cells)]
    agreement = agreement[agreement["cell"].isin(cells)]
    names = [style.plain(cell, limit=LONGEST) for cell in cells]
    extra = max(0, max(map(len, names)) - 48)  # letters beyond the room beside the bars
    fig = style.figure(8.6 + 0.07 * extra, 1.9 + 0.24 * max(len(cells), 4))
    left, right = fig.subplots(1, 2, sharey=True)
    _bars(left, outcomes, cells)
    _points(right, agreement, cells)
    left.set_yticks(range(len(cells)), names)
    left.set_ylim(len(cells) - 0.4, -0.6)
    lines = [
        "Left: numbers are instances. Right: median over the instances with status ok, 95 % "
        "bootstrap interval.",
        *remarks,
    ]
    style.note(fig, lines)
    return fig


def _bars(ax: Axes, outcomes: pd.DataFrame, cells: list[str]) -> None:
    others = sorted(set(outcomes["outcome"]) - set(style.KINDS))
    looks = style.KINDS | dict.fromkeys(others, style.OTHER_KIND)
    outcomes = outcomes.assign(cell=pd.Categorical(outcomes["cell"], cells))
    stacked(ax, outcomes, "cell", "outcome", looks, horizontal=True, least=0.09)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    ax.set_xlabel("share of instances")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, columnspacing=1.0, handlelength=1)


def _points(ax: Axes, agreement: pd.DataFrame, cells: list[str]) -> None:
    quantities = [q for q in CURVES if (agreement["quantity"] == q).any()]
    colours, markers = style.colours(CURVES), style.markers(CURVES)
    for quantity in quantities:
        rows = agreement[agreement["quantity"] == quantity].set_index("cell").reindex(cells)
        y = range(len(cells))
        ax.hlines(y, rows["low"], rows["high"], color=colours[quantity], linewidth=1.2)
        ax.plot(
            rows["median"], y, color=colours[quantity], marker=markers[quantity], linestyle="",
            label=CURVES[quantity],
        )  # fmt: skip
    style.log_axis(ax.xaxis)
    ax.grid(True, axis="x")
    ax.set_xlabel(r"median $1-\mathrm{corr}(W, \cdot\,)$")
    if not quantities:
        style.empty(ax, "no instance with a trained W and a solved SVM")
        return
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, columnspacing=1.0)
