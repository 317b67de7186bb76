"""A chart: its numbers, its figure, and the count of what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from pandas.api.types import is_bool_dtype

from .. import notation, statistics, style
from ..cells import CellAxes, row_key
from ..facets import WHISKERS, Panel, curves, heatmaps, labels, values_of
from .spec import ALL, STEP, ChartSpec, checked, rows_for

if TYPE_CHECKING:
    from ..loaded import LoadedSweep

WORDS: dict[str, str] = notation.TABLES["charts"]
"""Kind of a chart -> what it shows."""

NOTEBOOK_DPI = 150
"""Resolution of a figure in a notebook."""

NUMBERED = 150
"""Largest number of fields of a heatmap whose numbers are written into them."""

BOXES = {("least", "largest"): 0.7, ("q25", "q75"): 6.0}
"""Ends of the whiskers and of the box -> width of their bars."""


@dataclass(frozen=True)
class Chart:
    """The chart of a spec, which has the parts that axes have got by themselves.

    `table` has a row for each cell and x: used, excluded, statistics with interval; for a scatter
    one for each instance. Columns are named as on the command line. `counts` has the number of
    instances of each cell by status and reason, also of those left out; `notes` say why.
    """

    spec: ChartSpec
    table: pd.DataFrame
    counts: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its files."""
        return self.spec.name

    @property
    def caption(self) -> str:
        """What the figure shows."""
        spec = self.spec
        by = ", ".join(name for part, name in spec.parts if part != "x")
        what = f"{spec.y} versus {spec.x}" + (f", by {by}" if by else "")
        shares = "share" in self.table
        kind = "share" if shares and spec.kind != "heatmap" else str(spec.kind)
        return f"{what}. {WORDS[kind].format(estimator='share' if shares else spec.estimator)}"

    def figure(self, fig: Figure | None = None) -> Figure:
        """Return the figure, drawn into an empty one if it is given."""
        return figure_of(self.table, self.spec, fig)

    def show(self) -> np.ndarray:
        """Return the axes, (row, col), of a figure with small print; a notebook shows it."""
        from matplotlib import pyplot  # takes a second to import

        # Outside of the style: the first figure lets a notebook's backend set its own parameters.
        fig = pyplot.figure(dpi=NOTEBOOK_DPI, layout="constrained", facecolor="white")
        with style.paper():
            self.figure(fig)
            style.note(fig, [self.caption, *self.notes])
        panels = [ax for ax in fig.axes if ax.get_label() != "<colorbar>"]
        columns = panels[0].get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
        return np.array(panels, dtype=object).reshape(-1, columns)


def chart_of(sweep: LoadedSweep, spec: ChartSpec, remarks: Sequence[str] = ()) -> Chart:
    """Return the chart of a spec.

    An axis of the sweep that the spec does not name gets the first free one of hue, col and row:
    cells are never pooled. ChartError: a column does not exist or is of the wrong type, or an axis
    is left without a part.
    """
    rows = rows_for(sweep, spec)
    spec = checked(sweep, spec, rows)
    instances = rows.drop_duplicates(row_key(rows))
    kept = rows
    if ALL not in spec.status and "status" not in spec.keys:
        kept = rows[rows["status"].isin(spec.status)]
    known = kept[np.isfinite(floats(kept[spec.y])) & kept[spec.x].notna()]
    cells = [name for name in spec.keys if name != STEP]
    counts = statistics.counts(instances, list(dict.fromkeys([*cells, "status", "reason"])))
    if spec.kind == "scatter":
        names = dict.fromkeys([*spec.keys, spec.y, *row_key(known)])
        table = known[list(names)].reset_index(drop=True)
    else:
        table = _statistics(rows, rows.index.isin(kept.index), spec)
    notes = [*_left_out(instances, kept, known, spec), *filter(None, remarks)]
    return Chart(spec, table, counts, tuple(notes))


def _statistics(rows: pd.DataFrame, kept: np.ndarray, spec: ChartSpec) -> pd.DataFrame:
    """Return the statistics of the rows that are kept; a cell of which none is has a row too."""
    keys, y = spec.keys, spec.y
    values = rows[y].astype("boolean" if is_bool_dtype(rows[y]) else float)
    rows = rows.assign(**{y: values.where(kept)})
    if spec.over_steps:
        rows = rows[rows[STEP].notna()]  # the others have no history
    if is_bool_dtype(rows[y]):
        table = statistics.shares(rows, keys, y)
    else:
        table = statistics.summaries(rows, keys, y, spec.estimator)
        if spec.kind == "box":
            finite = rows.assign(**{y: rows[y].where(np.isfinite(floats(rows[y])))})
            ends = finite.groupby(keys, dropna=False)[y].agg(least="min", largest="max")
            table = table.merge(ends.reset_index(), on=keys)
    table.insert(len(keys), "quantity", y)
    return table


def _left_out(
    instances: pd.DataFrame, kept: pd.DataFrame, known: pd.DataFrame, spec: ChartSpec
) -> list[str]:
    statuses = instances["status"].value_counts()
    listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
    chosen, shown = (len(rows.drop_duplicates(row_key(rows))) for rows in (kept, known))
    others = len(instances) - chosen
    by = [name for name in spec.keys if name != STEP and (name != spec.x or spec.kind != "scatter")]
    every, having = (len(rows[by].drop_duplicates()) if by else 0 for rows in (instances, known))
    without, what = 0, "instances"
    if spec.over_steps:
        without, what = int(kept[STEP].isna().sum()), "points"
        kept = kept[kept[STEP].notna()]
    value, x = np.isfinite(floats(kept[spec.y])), kept[spec.x].notna()
    no_value, no_x = int((~value).sum()), int((~x & value).sum())
    lines = [
        (1, f"Instances: {len(instances)} ({listed or 'none'}); {shown} shown."),
        (len(spec.where), f"Only those with {', '.join(spec.chosen)}."),
        (others, f"Left out by status: {others}, shown are {', '.join(spec.status)}."),
        (every - having, f"Cells without an instance that is shown: {every - having} of {every}."),
        (without, f"Left out: {without} instances without a history of {spec.y}."),
        (no_value, f"Left out: {no_value} {what} without a value of {spec.y}."),
        (no_x, f"Left out: {no_x} {what} without {spec.x}."),
    ]
    for axis in spec.log:
        below = int((floats(known[spec.x if axis == "x" else spec.y]) <= 0).sum())
        drawn = notation.TABLES["logarithmic"][axis]
        lines.append((below, f"{below} values of {axis} are not > 0: {drawn}."))
    return [line for count, line in lines if count]


def floats(column: pd.Series[Any]) -> np.ndarray:
    """Return a column of numbers or truth values as floats; NaN for missing ones."""
    return column.to_numpy(dtype=float, na_value=np.nan)


# --- the figure -----------------------------------------------------------------------------------


def figure_of(table: pd.DataFrame, spec: ChartSpec, fig: Figure | None = None) -> Figure:
    """Return the figure of the table of a chart, drawn into `fig` if it is given."""
    cells = CellAxes.of(table[[name for name in spec.keys if name in table]])
    table = table[table[spec.x].notna()]
    shares = "share" in table
    statistic = spec.y if spec.kind == "scatter" else "share" if shares else str(spec.estimator)
    words = {
        role: labels(cells, table, [name], short=spec.kind == "heatmap" and role == "hue")
        for role, name in spec.parts
        if role != "x"
    }
    kept = table[[name for name in ("used", "low", "high", *chain(*BOXES)) if name in table]]
    points = kept.assign(used=table.get("used", 1), value=floats(table[statistic]), **words)
    label = notation.column(spec.y)
    if shares or spec.kind in ("line", "heatmap"):
        label = f"{'share of' if shares else statistic} {label}"
    if spec.kind == "heatmap":
        points["x"] = labels(cells, table, [spec.x], short=True)
        return _heatmaps(points, spec, label, fig)
    scale: Any = "log" if "y" in spec.log else "share" if shares else "linear"
    look: dict[str, Any] = {"panels": Panel(label, scale), "fig": fig}
    look["x_label"] = notation.column(spec.x)
    if spec.kind == "box":
        look |= {"bands": {}, "whiskers": BOXES if "least" in table else WHISKERS}
        look["offset"] = 0.8 / len(values_of(points, "hue"))
        at = labels(cells, table, [spec.x], short=True)
        fig = curves(points.assign(x=at.cat.codes), "x", "value", joined=False, **look)
        for ax in fig.axes:
            style.words_at(ax, [*at.cat.categories])
        return fig
    if spec.kind == "scatter":
        look |= {"bands": {}, "joined": False}
    points = points.assign(x=floats(table[spec.x]))
    return curves(points, "x", "value", log_x="x" in spec.log, **look)


def _heatmaps(points: pd.DataFrame, spec: ChartSpec, label: str, fig: Figure | None) -> Figure:
    """Return maps of the statistic over x and hue, of one scale of colours."""
    is_log = "y" in spec.log
    values = points.loc[points["value"] > 0, "value"] if is_log else points["value"]
    low, high = (0.0, 1.0) if values.dropna().empty else (values.min(), values.max())
    norm = (LogNorm if is_log else Normalize)(low, high if high > low else low + 1.0)
    sizes = [len(values_of(points, name)) for name in ("x", "hue")]
    ticks = [max(1, -(-size // 12)) for size in sizes]
    return heatmaps(
        points.assign(text=points["value"].map("{:.3g}".format)),
        "hue",
        "x",
        "value",
        norm=norm,
        label=label,
        text="text" if np.prod(sizes) <= NUMBERED else "",
        x_label=notation.column(spec.x),
        y_label=notation.column(str(spec.hue)),
        xticklabels=ticks[0],
        yticklabels=ticks[1],
        fig=fig,
    )
