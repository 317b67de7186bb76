"""A figure for every combination of the axes that one figure has no room for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .. import style
from ..cells import CellAxes, rows_of
from . import Drawing, status_counts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = 24
"""Largest number of figures of a kind that are drawn; the tables hold the rest."""

Tables = Mapping[str, pd.DataFrame]


def _no_frames(tables: Tables) -> tuple[np.ndarray, ...]:
    return ()


@dataclass(frozen=True)
class Pages:
    """The figure `name`; NAME_1, NAME_2, ... are the next of several.

    Attributes
    ----------
    name, caption : str
        Name and caption of the figure.
    figure : callable
        Returns the figure of the tables of some cells, which differ in the axes that it is given.
    note : str, or callable of tables and axes that returns lines
        Small print. The counts of instances by status and the remarks follow it.
    counts : str
        The table of these counts and of all cells; by default NAME_counts. "" for none.
    x, panels : sequence of str
        Axes that every figure shows; axes that get panels or curves of their own first.
    room : int
        Largest number of panels or curves of a figure, combinations of all axes besides `x`.
    cells : str
        The table that holds every cell, by default that of the counts.
    animate : callable
        Returns the images of the animation of these tables.
    """

    name: str
    caption: str
    figure: Callable[[Tables, CellAxes], Figure]
    note: str | Callable[[Tables, CellAxes], Sequence[str]] = ""
    counts: str | None = None
    x: Sequence[str] = ()
    panels: Sequence[str] = ()
    room: int = 1
    cells: str = ""
    animate: Callable[[Tables], tuple[np.ndarray, ...]] = _no_frames

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return the figures of these tables, with remarks in their small print."""
        table = tables[self.cells or self._counts]
        within, apart = self._divided(table, axes)
        parts = list(table.groupby(apart, dropna=False, sort=True)) if apart and len(table) else []
        if not parts:
            made = partial(self._page, "", tables, axes, remarks), partial(self.animate, tables)
            return [Drawing(self.name, self.caption, *made)]
        hidden = len(parts) - FIGURES
        if hidden > 0:
            what = f"{hidden} further combinations of {', '.join(apart)} are in the tables only."
            remarks = [*remarks, what]
        inside = replace(axes, names=tuple(n for n in axes.names if n in within))
        drawn = []
        for i, (values, _) in enumerate(parts[:FIGURES]):
            cell = dict(zip(apart, values, strict=True))
            label = axes.label(cell)
            here = {key: rows_of(one, cell) for key, one in tables.items()}
            made = partial(self._page, label, here, inside, remarks), partial(self.animate, here)
            name = f"{self.name}_{i}" if i else self.name
            drawn.append(Drawing(name, f"{label}: {self.caption}", *made))
        return drawn

    @property
    def _counts(self) -> str:
        return f"{self.name}_counts" if self.counts is None else self.counts

    def _divided(self, table: pd.DataFrame, axes: CellAxes) -> tuple[list[str], list[str]]:
        """Return the axes within a figure, and those with a figure for each of their values."""
        inner = [name for name in self.panels if name in axes.names]
        inner += axes.besides(*self.x, *self.panels)
        while inner and len(table[inner].drop_duplicates()) > self.room:
            inner.pop()
        return [*self.x, *inner], axes.besides(*self.x, *inner)

    def _page(self, label: str, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
        figure = self.figure(tables, axes)
        lines = [self.note] if isinstance(self.note, str) else list(self.note(tables, axes))
        if self._counts:
            lines.append(status_counts(tables[self._counts], axes))
        style.note(figure, [*filter(None, lines), *remarks])
        if label:
            figure.suptitle(style.plain(label, limit=120), x=0.01, ha="left", fontsize=10.5)
        return figure
