"""Sweeps without their own figures: how training ended and which SVM W agrees with.

A numeric axis becomes x, the next axes colours, columns and rows of panels; few cells stand side by
side too.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from .. import notation, statistics, style
from ..chart.chart import WORDS, figure_of
from ..chart.spec import ROOM, ChartSpec
from ..facets import WHISKERS, Panel, bars, curves, named, values_of
from . import CAPTIONS, FIGURES, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import outcome_shares

RANKS = ("frobenius_rank", "nuclear_rank")
"""Drawn where nothing is trained."""

BARS = 12
"""Largest number of bars in a figure."""


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
    long = certified.melt(by, quantities, "quantity", "value")
    return {
        "outcomes": outcome_shares(rows, by),
        "agreement": statistics.summaries(long, [*by, "quantity"], "value", "median"),
        "usable": statistics.shares(rows.assign(ok=ok), by, "ok"),
    }


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return a chart of each quantity over a numeric axis, and cells side by side if few."""
    by, cells = axes.besides(), tables["usable"]
    values = cells[by].select_dtypes("number").dropna(axis="columns").nunique()
    charts = _charts(tables, axes, str(values.idxmax()), remarks) if values.max() > 1 else []
    if charts and len(cells) > BARS:
        return charts
    pages = [cells.iloc[first : first + BARS] for first in range(0, len(cells), BARS)]
    hidden = sum(map(len, pages[FIGURES:]))
    lines = [*remarks, *([f"{hidden} further cells are in the table only."] if hidden else [])]
    trained = tables["agreement"]["quantity"].isin(notation.SVM_QUANTITIES).any()
    figures = {"adhoc": _outcomes} | ({"adhoc_agreement": _agreement} if trained else {})
    return charts + [
        Drawing(
            f"{name}_{i}" if i else name,
            CAPTIONS[name]["caption"],
            partial(figure, {key: _of_cells(part, page, axes) for key, part in tables.items()}),
            partial(list, [CAPTIONS[name]["note"], *lines]),
        )
        for name, figure in figures.items()
        for i, page in enumerate(pages[:FIGURES])
    ]


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
    y = "instances with status ok" if quantity == "ok" else quantity
    log = ("y",) if quantity in notation.SVM_QUANTITIES else ()
    roles: Any = parts
    spec = ChartSpec(y=y, **roles, kind="line", log=log)
    return figure_of(tables["chart"], spec)


def _notes(tables: Tables, axes: CellAxes) -> list[str]:
    table = tables["chart"]
    used, excluded = (int(table[name].sum()) for name in ("used", "excluded"))
    return [
        WORDS["share" if "share" in table else "line"].format(estimator="median"),
        f"Instances: {used + excluded}, {used} shown; the others have another status or no value.",
    ]


def _of_cells(table: pd.DataFrame, cells: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the rows of some cells, with the words of each."""
    by = axes.besides()
    table = table.merge(cells[by]) if by else table
    names = [axes.label(cell) or "all" for cell in table[by].to_dict("records")]  # type: ignore[arg-type]
    return table.assign(words=[style.wrapped(style.plain(name), 1.2) for name in names])


def _outcomes(tables: Tables) -> Figure:
    """Return a stacked bar of the outcomes of each cell."""
    return bars(tables["outcomes"], "words", "kind", style.FILLS["kinds"])


def _agreement(tables: Tables) -> Figure:
    """Return the median 1-correlations of each cell with their intervals."""
    table = tables["agreement"]
    table = table[table["quantity"].isin(notation.SVM_QUANTITIES)]
    words = values_of(table, "words")
    fig = curves(
        table.assign(
            at=table["words"].map(words.index),
            hue=named(table["quantity"], notation.SVM_QUANTITIES),
        ),
        "at",
        "median",
        joined=False,
        bands={},
        whiskers=WHISKERS,
        offset=0.15,
        palette=notation.SVM_COLOURS,
        panels=Panel("median " + notation.DISTANCE(r"\cdot\,"), "log"),
    )
    style.words_at(fig.axes[0], words)
    fig.axes[0].set_xlabel("")
    return fig
