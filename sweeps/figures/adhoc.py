"""Sweeps without their own figures: how training ended and which SVM W agrees with.

A numeric axis becomes x, or else one of words; the next axes are colours, columns and rows of
panels. Bars show how the instances of few cells ended.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from .. import notation, statistics, style
from ..chart.chart import figure_of, kind_in_words
from ..chart.spec import ROOM, ChartSpec
from ..facets import bars
from . import CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import outcome_shares

RANKS = ("frobenius_rank", "nuclear_rank")
"""Drawn where nothing is trained."""

BARS = 12
"""Largest number of cells with bars."""

ALL = "all"
"""The axis x of a sweep that has none in which each cell has a value."""


def tables(frames: LoadedSweep) -> Tables:
    """Return, per cell, the shares of outcomes and the median 1-correlations."""
    by, rows, ok = frames.cells.besides(), frames.rows, frames.rows["status"] == "ok"
    known = [*rows.dropna(axis="columns", how="all")]
    quantities = [name for name in notation.SVM_QUANTITIES if name in known]
    quantities = quantities or [name for name in RANKS if name in known]
    long = rows.melt(["status", *by], quantities, "quantity", "value")
    long["value"] = long["value"].where(long["status"] == "ok")
    return {
        "outcomes": outcome_shares(rows, by),
        "agreement": statistics.summaries(long, [*by, "quantity"], "value", "median"),
        "usable": statistics.shares(rows.assign(ok=ok), by, "ok"),
    }


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
    """Return a chart of each quantity over an axis, and bars of the outcomes of few cells."""
    by, cells = axes.besides(), tables["usable"]
    sizes = cells[by].dropna(axis="columns").nunique()
    numbers = sizes[cells[sizes.index].select_dtypes("number").columns]
    kind: Any = "line" if numbers.max() > 1 else "box"
    sizes = numbers if kind == "line" else sizes
    parts: dict[str, Any] = {"x": str(sizes.idxmax()) if len(sizes) else ALL}
    for name in axes.besides(parts["x"]):
        role = next((role for role in ROOM if role not in parts), "")
        if role and cells[name].nunique(dropna=False) <= ROOM[role]:
            parts[role] = name
    shown = {str(quantity): part for quantity, part in tables["agreement"].groupby("quantity")}
    if (cells["share"] < 1).any() or not shown:
        shown["ok"] = cells
    drawings = []
    for quantity, part in shown.items():
        y = "instances with status ok" if quantity == "ok" else quantity
        log = ("y",) if quantity in notation.SVM_QUANTITIES else ()
        drawings += paged(
            {f"adhoc_{quantity}": partial(_chart, ChartSpec(y=y, **parts, kind=kind, log=log))},
            {"chart": part.assign(**{ALL: ""})},
            axes,
            remarks,
            notes=partial(_notes, kind),
            inner=list(parts.values()),
            cells="chart",
        )
    outcomes = {"chart": tables["outcomes"]}
    if len(cells) <= BARS:
        drawings += paged({"adhoc": _outcomes}, outcomes, axes, remarks, inner=by, cells="chart")
    return drawings


def _chart(spec: ChartSpec, tables: Tables, axes: CellAxes) -> Figure:
    return figure_of(tables["chart"], spec)


def _notes(kind: Any, tables: Tables, axes: CellAxes) -> list[str]:
    used, excluded = (int(tables["chart"][name].sum()) for name in ("used", "excluded"))
    others = (
        "the others have no value, or another status, which attnsvm-report --x --y --status shows"
    )
    counted = f"Instances: {used + excluded}, {used} shown{f'; {others}' if excluded else ''}."
    return [kind_in_words(tables["chart"], ChartSpec("", "", kind=kind)), counted]


def _outcomes(tables: Tables, axes: CellAxes) -> Figure:
    """Return a stacked bar of the outcomes of each cell."""
    table, by = tables["chart"], axes.besides()
    words = [
        style.wrapped(style.plain(axes.label(dict(zip(by, cell, strict=True))) or "all"), 1.2)
        for cell in table[by].to_numpy()
    ]
    return bars(table.assign(words=words), "words", "kind", style.FILLS["kinds"])
