"""Sweeps without their own figures: how training ended and which SVM W agrees with.

A numeric axis becomes x, the next axes colours, columns and rows of panels; few cells have bars
too.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from .. import notation, statistics, style
from ..chart.chart import WORDS, figure_of
from ..chart.spec import ROOM, ChartSpec
from ..facets import entries_of, stacked
from . import CAPTIONS, FIGURES, CellAxes, Drawing, Figure, SweepFrames, Tables, paged
from ._numbers import ended

RANKS = ("frobenius_rank", "nuclear_rank")
"""Drawn where nothing is trained."""

BARS = 12
"""Largest number of bars in a figure."""


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return, per cell, the shares of outcomes and the median 1-correlations."""
    by, trials, ok = frames.axes.besides(), frames.trials, frames.trials["status"] == "ok"
    present = [
        name
        for name in (*notation.SVM_QUANTITIES, *RANKS)
        if name in trials and trials[name].notna().any()
    ]
    quantities = [name for name in present if name not in RANKS] or present
    outcome = ended(trials) if "convergence" in trials else trials["status"]
    values = {name: trials[name].where(ok) for name in quantities}
    trials = trials.assign(outcome=outcome, ok=ok, **values)
    long = trials.melt([*by, "ok"], quantities, "quantity", "value")
    outcomes = statistics.counts(trials, [*by, "outcome"])
    total = outcomes.groupby(by, dropna=False)["count"].transform("sum") if by else len(trials)
    low, high = statistics.wilson_interval(outcomes["count"], 0 * outcomes["count"] + total)
    tables = {
        "outcomes": outcomes.assign(share=outcomes["count"] / total, low=low, high=high),
        "agreement": statistics.summaries(long, [*by, "quantity"], "value", "median"),
        "usable": statistics.shares(trials, by, "ok"),
    }
    for table in tables.values():
        names = [frames.axes.label(cell) or "all" for cell in table[by].to_dict("records")]  # type: ignore[arg-type]
        table.insert(len(by), "cell", pd.Series(names, table.index, dtype=str))
    return tables


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return a chart of each quantity over a numeric axis, and bars where there are few cells."""
    cells = list(tables["outcomes"]["cell"].unique())
    numbers = tables["usable"][axes.besides()].select_dtypes("number")
    values = numbers.dropna(axis="columns").nunique()
    charts = _charts(tables, axes, str(values.idxmax()), remarks) if values.max() > 1 else []
    if charts and len(cells) > BARS:
        return charts
    pages = [cells[first : first + BARS] for first in range(0, len(cells), BARS)]
    hidden = sum(map(len, pages[FIGURES:]))
    caption, note = CAPTIONS["adhoc"].values()
    lines = [note, f"{hidden} further cells are in the table only." if hidden else "", *remarks]
    bars = [
        Drawing(
            f"adhoc_{i}" if i else "adhoc",
            caption,
            partial(_bars, tables, axes, page),
            lambda: lines,
        )
        for i, page in enumerate(pages[:FIGURES])
    ]
    return [*bars, *charts]


def _charts(tables: Tables, axes: CellAxes, x: str, remarks: Sequence[str]) -> list[Drawing]:
    """Return a chart of every quantity; pages for the axes that have no part in it."""
    table, parts = tables["usable"], {"x": x}
    for name in axes.besides(x):
        role = next((role for role in ROOM if role not in parts), "")
        if role and table[name].nunique(dropna=False) <= ROOM[role]:
            parts[role] = name
    shown = {"ok": table} | {str(q): part for q, part in tables["agreement"].groupby("quantity")}
    return [
        drawing
        for quantity, part in shown.items()
        for drawing in paged(
            {f"adhoc_{quantity}": partial(_chart, quantity, parts)},
            {"chart": part},
            axes,
            remarks,
            notes=_notes,
            counts="",
            inner=list(parts.values()),
            cells="chart",
        )
    ]


def _chart(quantity: str, parts: dict[str, str], tables: Tables, axes: CellAxes) -> Figure:
    typed: Any = {role: axes.typed.get(name, name) for role, name in parts.items()}
    y = "instances with status ok" if quantity == "ok" else quantity
    log = ("y",) if quantity in notation.SVM_QUANTITIES else ()
    spec = ChartSpec(y=y, **typed, kind="line", log=log)
    return figure_of(tables["chart"].rename(columns=axes.typed), spec)


def _notes(tables: Tables, axes: CellAxes) -> list[str]:
    table = tables["chart"]
    used, excluded = (int(table[name].sum()) for name in ("used", "excluded"))
    return [
        WORDS["share" if "share" in table else "line"].format(estimator="median"),
        f"Instances: {used + excluded}, {used} shown; the others have another status or no value.",
    ]


def _bars(tables: Tables, axes: CellAxes, cells: list[str]) -> Figure:
    """Return stacked bars of outcomes beside the median 1-correlations, a row for each cell."""
    outcomes, agreement = (
        tables[name][tables[name]["cell"].isin(cells)].assign(
            cell=lambda table: pd.Categorical(table["cell"], cells)
        )
        for name in ("outcomes", "agreement")
    )
    fields = outcomes.drop_duplicates("cell").set_index("cell")[axes.besides()]
    names = [notation.label(axes, dict(fields.loc[cell])) or cell for cell in cells]
    fig = style.figure(style.PAGE, 0.8 + 0.2 * max(len(cells), 4))
    left, right = fig.subplots(1, 2, sharey=True)
    kinds = style.FILLS["kinds"]
    looks = kinds | dict.fromkeys(sorted({*outcomes["outcome"]} - {*kinds}), kinds["other"])
    stacked(left, outcomes, "cell", "outcome", looks, lying=True, least=0.09)
    left.set(xlim=(0, 1), xlabel="share of instances")
    style.percent(left.xaxis)
    rows = agreement[agreement["quantity"].isin(notation.SVM_QUANTITIES) & (agreement["used"] > 0)]
    for quantity, part in rows.groupby("quantity"):
        name = notation.SVM_QUANTITIES[str(quantity)]
        colour, y = notation.SVM_COLOURS[name], part["cell"].cat.codes
        right.hlines(y, part["low"], part["high"], color=colour, linewidth=1.2)
        right.plot(part["median"], y, "o", color=colour, label=name)
    style.log_axis(right.xaxis)
    right.grid(True, axis="x")
    right.set_xlabel("median " + notation.DISTANCE(r"\cdot\,"))
    if rows.empty:
        style.empty(right, "no instance with a trained W and a solved SVM")
    left.set_yticks(range(len(cells)), [style.wrapped(name, 1.9) for name in names])
    left.set_ylim(len(cells) - 0.4, -0.6)
    style.legend(fig, entries_of(left, right))
    return fig
