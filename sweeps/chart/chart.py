"""A chart: its numbers, its figure, and the count of what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from pandas.api.types import is_bool_dtype, is_integer_dtype

from .. import notation, statistics, style
from ..cells import CellAxes, groups, number, row_key, rows_of, word
from ..facets import WHISKERS, Panel, curves, heatmaps, labels, values_of
from .spec import ALL, STEP, ChartSpec, checked, named, rows_for

if TYPE_CHECKING:
    from ..loaded import LoadedSweep

WORDS, ENDS, LAWS = (notation.TABLES[name] for name in ("charts", "bands", "laws"))
"""Kind of a chart, interval and fit -> what it shows."""

BANDS = {"quartiles": ("q25", "q75"), "ci": ("low", "high"), "sd": ("less_std", "plus_std")}
"""Interval -> the columns with its ends."""

NOTEBOOK_DPI = 150
"""Resolution of a figure in a notebook."""

NUMBERED = 150
"""Largest number of fields of heatmaps whose numbers are written into them."""

BOXES = {("least", "largest"): 0.7, ("q25", "q75"): 6.0}
"""Ends of the whiskers and of the box -> width of their bars."""

SHOWN = [*dict.fromkeys(chain(*BANDS.values(), *BOXES, ["fitted"]))]
"""Columns of a table that are drawn besides its statistic."""

FIT = ["slope", "slope_low", "slope_high", "fitted"]
"""Columns of a fit: the exponent, or the rate, its 95 % interval, and the law at x."""


@dataclass(frozen=True)
class Chart:
    """The chart of a spec, which has the parts that axes have got by themselves.

    `table` has a row for each cell and x: used, excluded, statistics with interval; for a scatter
    one for each instance. Columns are named as on the command line. `counts` has the number of
    instances of each cell by status and reason, also of those left out; `notes` say why.
    `instances` are drawn as points.
    """

    spec: ChartSpec
    table: pd.DataFrame
    counts: pd.DataFrame
    notes: tuple[str, ...]
    instances: pd.DataFrame = field(default_factory=pd.DataFrame)
    laws: tuple[str, ...] = ()

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
        return f"{what}. {kind_in_words(self.table, spec)}"

    def figure(self, fig: Figure | None = None) -> Figure:
        """Return the figure, drawn into an empty one if it is given."""
        fig = figure_of(self.table, self.spec, fig, self.instances)
        if self.laws:
            style.note(fig, self.laws)
        return fig

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


def kind_in_words(table: pd.DataFrame, spec: ChartSpec) -> str:
    """Return what the marks of a chart are, and the ends of its bands."""
    if spec.kind == "heatmap" or "share" not in table:
        return WORDS[spec.kind].format(estimator=spec.estimator, band=ENDS[spec.band])
    return WORDS["share"].format(band=ENDS["none" if spec.band == "none" else "wilson"])


def chart_of(sweep: LoadedSweep, spec: ChartSpec, remarks: Sequence[str] = ()) -> Chart:
    """Return the chart of a spec.

    An axis of the sweep that the spec does not name gets the first free one of hue, col and row:
    cells are never pooled. ChartError: a column does not exist or is of the wrong type, or an axis
    is left without a part.
    """
    spec, notes = named(sweep, spec)
    rows = rows_for(sweep, spec)
    spec = checked(sweep, spec, rows)
    key, cells = row_key(rows), [name for name in spec.keys if name != STEP]
    why = _why_not(rows, spec)
    known = rows[why == ""]
    by = list(dict.fromkeys([*cells, "status", "reason"]))
    counts = statistics.counts(rows.drop_duplicates(key), by)
    points = known[[*dict.fromkeys([*spec.keys, spec.y, *key])]].reset_index(drop=True)
    table = points if spec.kind == "scatter" else _statistics(rows, why, spec)
    table, laws = _with_fits(table, points, spec) if spec.fit else (table, [])
    notes += [*laws, *_left_out(rows, why, spec), *filter(None, remarks)]
    shown = points if spec.points else pd.DataFrame()
    return Chart(spec, table, counts, tuple(notes), shown, tuple(laws))


def _why_not(rows: pd.DataFrame, spec: ChartSpec) -> pd.Series[str]:
    """Return why a row is not shown, "" for those that are."""
    every = ALL in spec.status or "status" in spec.keys
    reasons = {
        f"by status, shown are {', '.join(spec.status)}": ~(
            rows["status"].notna() if every else rows["status"].isin(spec.status)
        ),
        f"without a history of {spec.y}": rows[spec.x].isna() & spec.over_steps,
        f"without a value of {spec.y}": ~np.isfinite(floats(rows[spec.y])),
        f"without {spec.x}": rows[spec.x].isna(),
    }
    return pd.Series(np.select([*reasons.values()], [*reasons], ""), rows.index)


def _statistics(rows: pd.DataFrame, why: pd.Series[str], spec: ChartSpec) -> pd.DataFrame:
    """Return the statistics of the rows that are shown; a cell of which none is has a row too."""
    keys, y = spec.keys, spec.y
    shown = rows[y].astype("boolean" if is_bool_dtype(rows[y]) else float).where(why == "")
    # without a step: instances that have no history
    rows = rows.assign(**{y: shown})[rows[spec.x].notna() | (spec.x != STEP)]
    if is_bool_dtype(shown):
        table = statistics.shares(rows, keys, y)
    else:
        table = statistics.summaries(rows, keys, y, spec.estimator)
        if spec.kind == "box":
            ends = rows.groupby(keys, dropna=False)[y].agg(least="min", largest="max")
            table = table.merge(ends.reset_index(), on=keys)
    table.insert(len(keys), "quantity", y)
    return table


def _with_fits(
    table: pd.DataFrame, points: pd.DataFrame, spec: ChartSpec
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with the columns `FIT` of each curve, and a line on its law or why none."""
    table, lines = table.assign(**dict.fromkeys(FIT, np.nan)), list[str]()
    axes, power = CellAxes.of(table[spec.keys[:-1]]), spec.fit == "power"
    for cell, part in groups(table, spec.keys[:-1]):
        at = part[(part[spec.estimator] > 0) & (part[spec.x] > (0 if power else -np.inf))]
        law = f"no law, fewer than 3 values of x{' > 0' * power} with a {spec.estimator} > 0"
        if at[spec.x].nunique() >= 3:
            rows = rows_of(points, cell)
            values = rows.pivot_table(spec.y, row_key(points), spec.x)[at[spec.x]].to_numpy()
            x = np.log(floats(at[spec.x])) if power else floats(at[spec.x])
            *slope, start = statistics.slope(x, values, spec.estimator)
            table.loc[part.index, FIT[:3]] = slope
            table.loc[at.index, "fitted"] = np.exp(start + slope[0] * x)
            b, low, high = (number(value, 3) for value in slope)
            none = f"(no interval: one instance at an x, or a resampled {spec.estimator} <= 0)"
            interval = f"[{low}, {high}]" if np.isfinite(slope[1]) else none
            law = f"{LAWS[spec.fit].format(x=word(spec.x), slope=b)} {interval}"
        lines.append(f"{axes.label(cell) or 'all'}: {notation.heading(spec.y)} ~ {law}.")
    return table, lines


def _left_out(rows: pd.DataFrame, why: pd.Series[str], spec: ChartSpec) -> list[str]:
    """Return the lines on what is shown, and on what is not, counted in instances."""
    key, shown = row_key(rows), rows[why == ""]
    instances = rows.drop_duplicates(key)
    listed = ", ".join(f"{n} {name}" for name, n in instances["status"].value_counts().items())
    count = len(shown.drop_duplicates(key))
    lines = [f"Instances: {len(instances)} ({listed or 'none'}); {count} shown."]
    lines += [f"Only those with {', '.join(spec.chosen)}."] if spec.where else []
    lost = rows.assign(why=why)[why != ""].drop_duplicates([*key, "why"])
    lines += [f"Left out: {n} instances {name}." for name, n in lost["why"].value_counts().items()]
    by_status = lost[lost["why"].str.startswith("by status") & np.isfinite(floats(lost[spec.y]))]
    if hidden := len(by_status):
        ways = ",".join([*spec.status, *by_status["status"].unique()])
        lines.append(f"--status {ways} shows {hidden} more, which have a value of {spec.y}.")
    by = [name for name in spec.keys if name != STEP and (name != spec.x or spec.kind != "scatter")]
    every, having = (len(part[by].drop_duplicates()) if by else 0 for part in (rows, shown))
    if every > having:
        lines.append(f"Cells without an instance that is shown: {every - having} of {every}.")
    for axis in spec.log:
        below = int((floats(shown[spec.x if axis == "x" else spec.y]) <= 0).sum())
        drawn = notation.TABLES["logarithmic"][axis]
        lines += [f"{below} values of {axis} are not > 0: {drawn}."] if below else []
    return lines


def floats(column: pd.Series[Any]) -> np.ndarray:
    """Return a column of numbers or truth values as floats; NaN for missing ones."""
    return column.to_numpy(dtype=float, na_value=np.nan)


# --- the figure -----------------------------------------------------------------------------------


def figure_of(
    table: pd.DataFrame,
    spec: ChartSpec,
    fig: Figure | None = None,
    instances: pd.DataFrame | None = None,
) -> Figure:
    """Return the figure of the table of a chart, drawn into `fig` if it is given.

    The `instances`, if there are any, are drawn as points.
    """
    cells = CellAxes.of(table[[name for name in spec.keys if name in table]])
    table = table[table[spec.x].notna()]
    shares, words = "share" in table, spec.kind in ("box", "heatmap")
    y = spec.y if spec.kind == "scatter" else "share" if shares else str(spec.estimator)
    label = notation.column(spec.y)
    if shares or spec.kind in ("line", "heatmap"):
        label = f"{'share of' if shares else y} {label}"

    def points_of(rows: pd.DataFrame, y: str) -> pd.DataFrame:
        roles = [(role, name) for role, name in spec.parts if words or role != "x"]
        short = {"x", "hue" if spec.kind == "heatmap" else "x"}
        parts = {role: labels(cells, rows, [name], role in short) for role, name in roles}
        at = parts if words else parts | {"x": floats(rows[spec.x])}
        kept = rows[[name for name in SHOWN if name in rows]]
        return kept.assign(used=rows.get("used", 1), value=floats(rows[y]), **at)

    if "std" in table:
        mean, std = table["mean"], table["std"]
        table = table.assign(less_std=mean - std, plus_std=mean + std)
    points = points_of(table, y)
    if spec.kind == "heatmap":
        return _heatmaps(points, spec, label, fig)
    scale: Any = "log" if "y" in spec.log else "share" if shares else "linear"
    look: dict[str, Any] = {"panels": Panel(label, scale), "fig": fig, "bands": {}}
    look |= {"x_label": notation.column(spec.x), "log_x": "x" in spec.log}
    if instances is not None and len(instances):
        look["instances"] = points_of(instances, spec.y)
    if spec.kind == "box":
        look |= {"whiskers": BOXES if "least" in table else WHISKERS, "joined": False}
        look["offset"] = 0.8 / len(values_of(points, "hue"))
        names = points["x"].cat.categories
        for part in (points, look.get("instances", points.copy())):
            part["x"] = pd.Categorical(part["x"], names).codes
    elif spec.kind == "scatter":
        look |= {"joined": False, "ticks": None if is_integer_dtype(table[spec.x]) else ()}
    elif spec.band != "none":
        look["bands"] = {BANDS["ci" if shares else spec.band]: 0.18}
    fig = curves(points, "x", "value", **look)
    for ax in fig.axes if spec.kind == "box" else ():
        style.words_at(ax, [*names])
    return fig


def _heatmaps(points: pd.DataFrame, spec: ChartSpec, label: str, fig: Figure | None) -> Figure:
    """Return maps of the statistic over x and hue, of one scale of colours."""
    is_log = "y" in spec.log
    values = points.loc[(points["value"] > 0) | (not is_log), "value"]
    low, high = (0.0, 1.0) if values.dropna().empty else (values.min(), values.max())
    return heatmaps(
        points.assign(text=points["value"].map("{:.3g}".format)),
        "hue",
        "x",
        "value",
        norm=(LogNorm if is_log else Normalize)(low, high if high > low else low + 1.0),
        label=label,
        text="text" if len(points) <= NUMBERED else "",
        x_label=notation.column(spec.x),
        y_label=notation.column(str(spec.hue)),
        xticklabels="auto",
        yticklabels="auto",
        fig=fig,
    )
