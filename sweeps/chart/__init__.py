"""Any column against any other: the question, its numbers, its figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .. import style
from .draw import figure, words
from .question import (
    ESTIMATORS,
    KINDS,
    ChartError,
    Parts,
    Question,
    Tables,
    asked,
    checked,
    rows_for,
)
from .table import numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "ESTIMATORS", "KINDS", "Chart", "ChartError", "Parts", "Question", "answer", "asked", "shown",
]  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """The answer to a question.

    Attributes
    ----------
    question : Question
        What is shown, with the parts that axes have got by themselves.
    table, counts : DataFrame
        The numbers, a row for each cell and x; the number of instances by cell, status and reason.
    notes : tuple of str
        What is left out, and why.
    """

    question: Question
    table: pd.DataFrame
    counts: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its files."""
        return self.question.name

    def figure(self) -> Figure:
        """Return the figure."""
        made, _ = figure(self.table, self.question)
        style.note(made, [words(self.table, self.question), *self.notes])
        return made


def answer(tables: Tables, question: Question, remarks: Sequence[str] = ()) -> Chart:
    """Return the chart of a question.

    An axis of the sweep that the question does not name gets the first free one of hue, col and
    row: cells are never pooled.

    Raises
    ------
    ChartError
        If a column does not exist or is of the wrong type, or if an axis is left without a part.
    """
    rows = rows_for(tables, question)
    question = checked(tables, question, rows)
    found = numbers(rows, question)
    notes = [*found.left_out, *(remark for remark in remarks if remark)]
    return Chart(question, found.table, found.counts, tuple(notes))


def shown(chart: Chart) -> np.ndarray:
    """Return the axes of a figure that a notebook shows by itself, (row, col)."""
    from matplotlib import pyplot  # takes a second to import

    empty = pyplot.figure(layout="constrained")  # the first one turns on that notebooks show them

    def new(width: float, height: float) -> Figure:
        empty.set_size_inches(width, height)
        return empty

    with style.paper():
        made, grid = figure(chart.table, chart.question, new)
        style.note(made, [words(chart.table, chart.question), *chart.notes])
        return grid
