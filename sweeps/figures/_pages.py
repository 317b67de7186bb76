"""A figure for every combination of the axes that one figure has no room for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .. import style
from ..cells import CellAxes, rows_of
from . import Drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = 24
"""Largest number of figures of a kind that are drawn; the tables hold the rest."""

Tables = Mapping[str, pd.DataFrame]
Make = Callable[[Tables, CellAxes, Sequence[str]], "Figure"]


def drawings(
    name: str,
    tables: Tables,
    axes: CellAxes,
    remarks: Sequence[str],
    make: Make,
    *,
    caption: str,
    x: Sequence[str] = (),
    panels: Sequence[str] = (),
    room: int = 1,
    cells: str = "",
    animate: Callable[[Tables], tuple[np.ndarray, ...]] = lambda tables: (),
) -> list[Drawing]:
    """Return the figure `name`; NAME_1, NAME_2, ... are the next of several.

    Parameters
    ----------
    name, caption : str
        Name and caption of the figure.
    tables : mapping of str to DataFrame
        All tables of the sweep.
    axes : CellAxes
        The axes of the sweep.
    remarks : sequence of str
        Small print.
    make : callable
        Returns the figure of the tables of some cells, which differ in the axes that it is given.
    x, panels : sequence of str
        CellAxes that every figure shows; axes that get panels or curves of their own first.
    room : int
        Largest number of panels or curves of a figure, combinations of all axes besides `x`.
    cells : str
        The table that holds every cell, by default the one called `name`.
    animate : callable
        Returns the images of the animation of these tables.
    """
    table = tables[cells or name]
    within, apart = _divided(table, axes, x, panels, room)
    parts = list(table.groupby(apart, dropna=False, sort=True)) if apart and len(table) else []
    if not parts:
        made = partial(make, tables, axes, remarks), partial(animate, tables)
        return [Drawing(name, caption, *made)]
    hidden = len(parts) - FIGURES
    if hidden > 0:
        what = f"{hidden} further combinations of {', '.join(apart)} are in the tables only."
        remarks = [*remarks, what]
    drawn = []
    for i, (values, _) in enumerate(parts[:FIGURES]):
        cell = dict(zip(apart, values, strict=True))
        label = axes.label(cell)
        here = {key: rows_of(one, cell) for key, one in tables.items()}
        inside = replace(axes, names=tuple(n for n in axes.names if n in within))
        made = partial(_titled, label, make, here, inside, remarks), partial(animate, here)
        drawn.append(Drawing(f"{name}_{i}" if i else name, f"{label}: {caption}", *made))
    return drawn


def _divided(
    table: pd.DataFrame, axes: CellAxes, x: Sequence[str], panels: Sequence[str], room: int
) -> tuple[list[str], list[str]]:
    """Return the axes within a figure, and those with a figure for each of their values."""
    inner = [name for name in panels if name in axes.names]
    inner += axes.besides(*x, *panels)
    while inner and len(table[inner].drop_duplicates()) > room:
        inner.pop()
    return [*x, *inner], axes.besides(*x, *inner)


def _titled(
    label: str, make: Make, tables: Tables, axes: CellAxes, remarks: Sequence[str]
) -> Figure:
    figure = make(tables, axes, remarks)
    figure.suptitle(style.plain(label, limit=120), x=0.01, ha="left", fontsize=10.5)
    return figure
