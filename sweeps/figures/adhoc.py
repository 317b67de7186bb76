"""Sweeps without their own figure module: how training ended and which SVM W agrees with.

A numeric axis becomes x, the next axes colours, columns and rows of panels; few cells have bars
too.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.ticker import PercentFormatter

from .. import notation, statistics, style
from ..chart.answer import WORDS, figure
from ..chart.question import ROOM, Question
from ..facets import looks_of, stacked
from . import CAPTIONS, FIGURES, CellAxes, Drawing, Figure, Pages, SweepFrames, Tables
from ._numbers import ended

CURVES = {f"one_minus_corr_{svm}": name for svm, name in notation.SVMS.items()}
RANKS = ("frobenius_rank", "nuclear_rank")
"""Drawn where nothing is trained."""

BARS = 12
"""Largest number of bars in a figure."""


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return, per cell, the shares of outcomes and the median 1-correlations."""
    by, trials, ok = frames.axes.besides(), frames.trials, frames.trials["status"] == "ok"
    present = [q for q in (*CURVES, *RANKS) if q in trials and trials[q].notna().any()]
    quantities = [q for q in present if q in CURVES] or present
    trials = trials.assign(
        outcome=ended(trials) if "convergence" in trials else trials["status"],
        ok=ok,
        **{q: trials[q].where(ok) for q in quantities},
    )
    long = trials.melt([*by, "ok"], quantities, "quantity", "value")
    found = {
        "outcomes": statistics.counts(trials, [*by, "outcome"]),
        "agreement": statistics.summaries(long, [*by, "quantity"], "value", "median"),
        "usable": statistics.shares(trials, by, "ok"),
    }
    for table in found.values():
        cells: Any = table[by].to_dict("records")
        names = [frames.axes.label(cell) or "all" for cell in cells]
        table.insert(len(by), "cell", pd.Series(names, table.index, dtype=str))
    outcomes = found["outcomes"]
    total = outcomes.groupby("cell")["count"].transform("sum")
    low, high = statistics.wilson_interval(outcomes["count"].to_numpy(), total.to_numpy())
    found["outcomes"] = outcomes.assign(share=outcomes["count"] / total, low=low, high=high)
    return found


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return a chart of each quantity over a numeric axis, and bars where there are few cells."""
    cells = list(tables["outcomes"]["cell"].unique())
    numbers = tables["usable"][axes.besides()].select_dtypes("number")
    values = numbers.dropna(axis="columns").nunique()
    charts = _charts(tables, axes, str(values.idxmax()), remarks) if values.max() > 1 else []
    if charts and len(cells) > BARS:
        return charts
    pages = [cells[first : first + BARS] for first in range(0, len(cells), BARS)]
    hidden = sum(map(len, pages[FIGURES:]))
    remarks = [f"{hidden} further cells are in the table only." if hidden else "", *remarks]
    caption, note = CAPTIONS["adhoc"].values()
    bars = [
        Drawing(f"adhoc_{i}" if i else "adhoc", caption, partial(_bars, tables, axes, page),
                lambda: [note, *remarks])
        for i, page in enumerate(pages[:FIGURES])
    ]  # fmt: skip
    return [*bars, *charts]


def _charts(
    tables: dict[str, pd.DataFrame], axes: CellAxes, x: str, remarks: Sequence[str]
) -> list[Drawing]:
    """Return a chart of every quantity; pages for the axes that have no part in it."""
    table, parts = tables["usable"], dict[str, str]()
    for name in axes.besides(x):
        free = [role for role in ROOM if role not in parts]
        if free and table[name].nunique(dropna=False) <= ROOM[free[0]]:
            parts[free[0]] = name
    typed: dict[str, Any] = {role: axes.typed.get(name, name) for role, name in parts.items()}

    def chart(quantity: str, tables: Tables, axes: CellAxes) -> Figure:
        y = "instances with status ok" if quantity == "ok" else quantity
        log = ("y",) if quantity in CURVES else ()
        asked = Question(axes.typed.get(x, x), y, **typed, kind="line", estimator="median", log=log)
        return figure(tables["chart"].rename(columns=axes.typed), asked)[0]

    found = {"ok": table} | {str(q): part for q, part in tables["agreement"].groupby("quantity")}
    return [
        drawing
        for quantity, part in found.items()
        for drawing in Pages(
            f"adhoc_{quantity}", partial(chart, quantity), _shown_and_not, counts="",
            x=(x, *parts.values()), cells="chart",
        ).draw({"chart": part}, axes, remarks)
    ]  # fmt: skip


def _shown_and_not(tables: Tables, axes: CellAxes) -> list[str]:
    used, excluded = (int(tables["chart"][name].sum()) for name in ("used", "excluded"))
    kind = "share" if "share" in tables["chart"] else "line"
    return [
        WORDS[kind].format(estimator="median"),
        f"Instances: {used + excluded}, {used} shown; the others have another status or no value.",
    ]


def _bars(tables: Tables, axes: CellAxes, cells: list[str]) -> Figure:
    """Return stacked bars of outcomes beside the median 1-correlations, a row for each cell."""
    outcomes, agreement, usable = (
        tables[name][tables[name]["cell"].isin(cells)]
        for name in ("outcomes", "agreement", "usable")
    )
    fields = usable.drop_duplicates("cell").set_index("cell")[axes.besides()]
    names = [notation.label(axes, dict(fields.loc[cell])) or cell for cell in cells]
    fig = style.figure(style.PAGE, 0.8 + 0.2 * max(len(cells), 4))
    left, right = fig.subplots(1, 2, sharey=True)
    others = sorted(set(outcomes["outcome"]) - set(style.KINDS))
    looks = style.KINDS | dict.fromkeys(others, style.OTHER_KIND)
    outcomes = outcomes.assign(cell=pd.Categorical(outcomes["cell"], cells))
    stacked(left, outcomes, "cell", "outcome", looks, horizontal=True, least=0.09)
    left.set(xlim=(0, 1), xlabel="share of instances")
    left.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    for quantity, look in looks_of(list(CURVES)).items():
        rows = agreement[agreement["quantity"] == quantity].set_index("cell").reindex(cells)
        if (agreement["quantity"] == quantity).any():
            y = range(len(cells))
            right.hlines(y, rows["low"], rows["high"], color=look["color"], linewidth=1.2)
            right.plot(rows["median"], y, linestyle="", label=CURVES[quantity], **look)
    style.log_axis(right.xaxis)
    right.grid(True, axis="x")
    right.set_xlabel("median " + notation.DISTANCE(r"\cdot\,"))
    if not agreement["quantity"].isin(CURVES).any():
        style.empty(right, "no instance with a trained W and a solved SVM")
    left.set_yticks(range(len(cells)), [style.wrapped(name, 1.9) for name in names])
    left.set_ylim(len(cells) - 0.4, -0.6)
    style.legend(fig, [left, right], handlelength=1)
    return fig
