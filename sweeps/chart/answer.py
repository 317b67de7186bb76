"""The answer to a question: numbers of a chart, its figure, and the count of what is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import row_key
from .draw import figure, floats, words
from .question import ALL, STEP, Question, Tables, checked, is_flag, rows_for


@dataclass(frozen=True)
class Chart:
    """The answer to a question.

    Attributes
    ----------
    question : Question
        What is shown, with the parts that axes have got by themselves.
    table : DataFrame
        A row for each cell and x: used, excluded, statistics with interval; for a scatter a row for
        each instance. Columns are named as on the command line.
    counts : DataFrame
        The number of instances of each cell by status and reason, also of those left out.
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
        return self.drawn(style.figure)[0]

    def drawn(self, make: Callable[[float, float], Figure]) -> tuple[Figure, np.ndarray]:
        """Return the figure and its axes, (row, col); `make` returns an empty figure of a size."""
        made, grid = figure(self.table, self.question, make)
        style.note(made, [words(self.table, self.question), *self.notes])
        return made, grid


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
    instances = rows.drop_duplicates(row_key(rows))
    kept = rows
    if ALL not in question.status and "status" not in question.keys:
        kept = rows[rows["status"].isin(question.status)]
    known = kept[np.isfinite(floats(kept[question.y])) & kept[question.x].notna()]
    cells = [name for name in question.keys if name != STEP]
    counts = statistics.counts(instances, list(dict.fromkeys([*cells, "status", "reason"])))
    if question.kind == "scatter":
        names = dict.fromkeys([*question.keys, question.y, *row_key(known)])
        table = known[list(names)].reset_index(drop=True)
    else:
        table = _statistics(rows, rows.index.isin(kept.index), question)
    notes = [*_left_out(instances, kept, known, question), *filter(None, remarks)]
    return Chart(question, table, counts, tuple(notes))


def shown(chart: Chart) -> np.ndarray:
    """Return the axes of a figure that a notebook shows by itself, (row, col)."""
    from matplotlib import pyplot  # takes a second to import

    empty = pyplot.figure(layout="constrained")  # the first one turns on that notebooks show them

    def new(width: float, height: float) -> Figure:
        empty.set_size_inches(width, height)
        return empty

    with style.paper():
        return chart.drawn(new)[1]


def _statistics(rows: pd.DataFrame, kept: np.ndarray, question: Question) -> pd.DataFrame:
    """Return the statistics of the rows that are kept; a cell of which none is has a row too."""
    keys, y = question.keys, question.y
    values = rows[y].astype("boolean" if is_flag(rows[y]) else float)
    rows = rows.assign(**{y: values.where(kept)})
    if question.over_steps:
        rows = rows[rows[STEP].notna()]  # the others have no history
    if is_flag(rows[y]):
        table = statistics.shares(rows, keys, y)
    else:
        table = statistics.summaries(rows, keys, y, question.estimator)
        if question.kind == "box":
            table = table.merge(statistics.extremes(rows, keys, y), on=keys)
    table.insert(len(keys), "quantity", y)
    return table


def _left_out(
    instances: pd.DataFrame, kept: pd.DataFrame, known: pd.DataFrame, question: Question
) -> list[str]:
    statuses = instances["status"].value_counts()
    listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
    chosen = len(kept.drop_duplicates(row_key(kept)))
    shown = len(known.drop_duplicates(row_key(known)))
    lines = [f"Instances: {len(instances)} ({listed or 'none'}); {shown} shown."]
    if question.chosen:
        lines.append(f"Only those with {', '.join(question.chosen)}.")
    if chosen < len(instances):
        others = len(instances) - chosen
        lines.append(f"Left out by status: {others}, shown are {', '.join(question.status)}.")
    cells = [name for name in question.keys if name != question.x or question.kind != "scatter"]
    cells = [name for name in cells if name != STEP]
    if cells:
        every, having = (len(rows[cells].drop_duplicates()) for rows in (instances, known))
        if having < every:
            lines.append(f"Cells without an instance that is shown: {every - having} of {every}.")
    if question.over_steps:
        if without := int(kept[STEP].isna().sum()):
            lines.append(f"Left out: {without} instances without a history of {question.y}.")
        kept = kept[kept[STEP].notna()]
    value, x = np.isfinite(floats(kept[question.y])), kept[question.x].notna()
    what = "points" if question.over_steps else "instances"
    if not value.all():
        lines.append(f"Left out: {int((~value).sum())} {what} without a value of {question.y}.")
    if (value & ~x).any():
        lines.append(f"Left out: {int((~x & value).sum())} {what} without {question.x}.")
    for axis in question.log:
        numbers = floats(known[question.x if axis == "x" else question.y])
        if below := int((numbers <= 0).sum()):
            lines.append(f"{below} values of {axis} are not > 0: {LOGARITHMIC[axis]}.")
    return lines


LOGARITHMIC = {
    "x": "those below are not drawn on the logarithmic axis, 0 is at its left end",
    "y": "a mean or median that is not > 0 is not drawn on the logarithmic axis",
}
