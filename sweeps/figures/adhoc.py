"""Sweeps without their own figures: how training ended and which SVM W agrees with.

A numeric axis becomes x, or else one of words; the next axes are colours, columns and rows of
panels. Few cells stand side by side too.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import pandas as pd

from .. import notation, statistics, style
from ..chart.chart import figure_of, kind_in_words
from ..chart.spec import ROOM, ChartSpec
from ..facets import bars
from . import CAPTIONS, FIGURES, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import outcome_shares

RANKS = ("frobenius_rank", "nuclear_rank")
"""Drawn where nothing is trained."""

BARS = 12
"""Largest number of bars in a figure."""

ALL = "all"
"""The axis x of a sweep that has none in which each cell has a value."""

Kind = Literal["line", "box"]


def tables(frames: LoadedSweep) -> Tables:
    """Return, per cell, the shares of outcomes and the median 1-correlations."""
    by, rows, ok = frames.cells.besides(), frames.rows, frames.rows["status"] == "ok"
    present = [
        name
        for name in (*notation.SVM_QUANTITIES, *RANKS)
        if name in rows and rows[name].notna().any()
    ]
    quantities = [name for name in present if name not in RANKS] or present
    certified = rows.assign(**{name: rows[name].where(ok) for name in quantities})
    long = certified.melt(["seed", *by], quantities, "quantity", "value")
    return {
        "outcomes": outcome_shares(rows, by),
        "agreement": statistics.summaries(long, [*by, "quantity"], "value", "median"),
        "usable": statistics.shares(rows.assign(ok=ok), by, "ok"),
    }


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return a chart of each quantity over an axis, and bars of the outcomes of the cells.

    Without bars, if there are many cells and the axis has numbers.
    """
    by, cells = axes.besides(), tables["usable"]
    numbers = cells[by].select_dtypes("number").dropna(axis="columns").nunique()
    over_numbers = bool(numbers.max() > 1)
    sizes = numbers if over_numbers else cells[by].dropna(axis="columns").nunique()
    kind: Kind = "line" if over_numbers else "box"
    whole = {key: part.assign(**{ALL: ""}) for key, part in tables.items()}
    charts = _charts(whole, axes, str(sizes.idxmax()) if len(sizes) else ALL, kind, remarks)
    if over_numbers and len(cells) > BARS:
        return charts
    pages = [cells.iloc[first : first + BARS] for first in range(0, len(cells), BARS)]
    hidden = sum(map(len, pages[FIGURES:]))
    lines = [*remarks, *([f"{hidden} further cells are in the table only."] if hidden else [])]
    return charts + [
        Drawing(
            f"adhoc_{i}" if i else "adhoc",
            CAPTIONS["adhoc"]["caption"],
            partial(_outcomes, tables["outcomes"], page, axes),
            partial(list, [CAPTIONS["adhoc"]["note"], *lines]),
        )
        for i, page in enumerate(pages[:FIGURES])
    ]


def _charts(
    tables: Tables, axes: CellAxes, x: str, kind: Kind, remarks: Sequence[str]
) -> list[Drawing]:
    """Return a chart of every quantity; pages for the axes that have no part in it."""
    table, parts = tables["usable"], {"x": x}
    for name in axes.besides(x):
        role = next((role for role in ROOM if role not in parts), "")
        if role and table[name].nunique(dropna=False) <= ROOM[role]:
            parts[role] = name
    shown = {str(q): part for q, part in tables["agreement"].groupby("quantity")}
    if (table["share"] < 1).any() or not shown:
        shown["ok"] = table
    return [
        drawing
        for quantity, part in shown.items()
        for drawing in paged(
            {f"adhoc_{quantity}": partial(_chart, quantity, kind, parts)},
            {"chart": part},
            axes,
            remarks,
            notes=partial(_notes, kind),
            counts="",
            inner=list(parts.values()),
            cells="chart",
        )
    ]


def _chart(quantity: str, kind: Kind, parts: Any, tables: Tables, axes: CellAxes) -> Figure:
    y = "instances with status ok" if quantity == "ok" else quantity
    log = ("y",) if quantity in notation.SVM_QUANTITIES else ()
    return figure_of(tables["chart"], ChartSpec(y=y, **parts, kind=kind, log=log))


def _notes(kind: Kind, tables: Tables, axes: CellAxes) -> list[str]:
    table = tables["chart"]
    used, excluded = (int(table[name].sum()) for name in ("used", "excluded"))
    others = (
        "the others have no value, or another status, which attnsvm-report --x --y --status shows"
    )
    counted = f"Instances: {used + excluded}, {used} shown{f'; {others}' if excluded else ''}."
    return [kind_in_words(table, ChartSpec("", "", kind=kind)), counted]


def _outcomes(table: pd.DataFrame, cells: pd.DataFrame, axes: CellAxes) -> Figure:
    """Return a stacked bar of the outcomes of each cell."""
    by = axes.besides()
    table = table.merge(cells[by]) if by else table
    names = [axes.label(cell) or "all" for cell in table[by].to_dict("records")]  # type: ignore[arg-type]
    words = [style.wrapped(style.plain(name), 1.2) for name in names]
    return bars(table.assign(words=words), "words", "kind", style.FILLS["kinds"])
