"""The numbers of a chart, and the count of what they leave out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from .. import statistics
from ..cells import row_key
from .question import ALL, STEP, Question, is_flag


@dataclass(frozen=True)
class Numbers:
    """What a chart shows.

    Attributes
    ----------
    table : DataFrame
        A row for each cell and x: used, excluded, statistics with interval; for a scatter a row for
        each instance. Columns are named as on the command line.
    counts : DataFrame
        The number of instances of each cell by status and reason, also of those left out.
    left_out : tuple of str
        What is not in the table, and why.
    """

    table: pd.DataFrame
    counts: pd.DataFrame
    left_out: tuple[str, ...]


def numbers(rows: pd.DataFrame, question: Question) -> Numbers:
    """Return the statistics of the rows that the question chooses."""
    instances = rows.drop_duplicates(row_key(rows))
    kept = _chosen(rows, question)
    known = kept[np.isfinite(_floats(kept[question.y])) & kept[question.x].notna()]
    cells = [name for name in question.keys if name != STEP]
    counts = statistics.counts(instances, list(dict.fromkeys([*cells, "status", "reason"])))
    if question.kind == "scatter":
        names = dict.fromkeys([*question.keys, question.y, *row_key(known)])
        table = known[list(names)].reset_index(drop=True)
    else:
        table = _statistics(rows, rows.index.isin(kept.index), question)
    return Numbers(table, counts, _left_out(instances, kept, known, question))


def _chosen(rows: pd.DataFrame, question: Question) -> pd.DataFrame:
    """Return the rows of the chosen statuses; all, where the status has a part of its own."""
    if ALL in question.status or "status" in question.keys:
        return rows
    return rows[rows["status"].isin(question.status)]


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
) -> tuple[str, ...]:
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
    value, x = np.isfinite(_floats(kept[question.y])), kept[question.x].notna()
    what = "points" if question.over_steps else "instances"
    if not value.all():
        lines.append(f"Left out: {int((~value).sum())} {what} without a value of {question.y}.")
    if (value & ~x).any():
        lines.append(f"Left out: {int((~x & value).sum())} {what} without {question.x}.")
    for axis in question.log:
        numbers = _floats(known[question.x if axis == "x" else question.y])
        if below := int((numbers <= 0).sum()):
            lines.append(f"{below} values of {axis} are not > 0: {LOGARITHMIC[axis]}.")
    return tuple(lines)


LOGARITHMIC = {
    "x": "those below are not drawn on the logarithmic axis, 0 is at its left end",
    "y": "a mean or median that is not > 0 is not drawn on the logarithmic axis",
}


def _floats(column: pd.Series[float]) -> np.ndarray:
    return column.to_numpy(dtype=float, na_value=np.nan)
