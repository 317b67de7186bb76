"""A chart: its numbers, its figure, and the count of what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
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
        return figure_of(self.table, self.spec, fig, self.instances)

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
    every = ALL in spec.status or "status" in spec.keys
    status = rows["status"].notna() if every else rows["status"].isin(spec.status)
    known = rows[status & np.isfinite(floats(rows[spec.y])) & rows[spec.x].notna()]
    cells = [name for name in spec.keys if name != STEP]
    instances = rows.drop_duplicates(row_key(rows))
    counts = statistics.counts(instances, list(dict.fromkeys([*cells, "status", "reason"])))
    names = dict.fromkeys([*spec.keys, spec.y, *row_key(known)])
    points = known[[*names]].reset_index(drop=True)
    table = points if spec.kind == "scatter" else _statistics(rows, status, spec)
    if spec.fit:
        table = _with_fits(table, points, spec)
        axes, y = CellAxes.of(table[spec.keys[:-1]]), notation.heading(spec.y)
        for row, law in _laws(table, spec, LAWS[spec.fit], word(spec.x)):
            curve = axes.label(table.loc[row, [*axes.names]].to_dict())
            notes.append(f"{curve or 'all'}: {y} ~ {law}.")
        notes += _without_law(table, spec)
    notes += [*_left_out(rows, status, spec), *_below_zero(table, spec), *filter(None, remarks)]
    return Chart(spec, table, counts, tuple(notes), points if spec.points else pd.DataFrame())


def _statistics(rows: pd.DataFrame, kept: pd.Series[bool], spec: ChartSpec) -> pd.DataFrame:
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


def _with_fits(table: pd.DataFrame, points: pd.DataFrame, spec: ChartSpec) -> pd.DataFrame:
    """Return the table with the columns `FIT` of each curve, NaN where fewer than 3 points are."""
    table = table.assign(**dict.fromkeys(FIT, np.nan))
    for cell, part in groups(table, spec.keys[:-1]):
        at = part[(part[spec.estimator] > 0) & part[spec.x].notna()]
        at = at[at[spec.x] > 0] if spec.fit == "power" else at
        if at[spec.x].nunique() >= 3:
            rows = rows_of(points, cell)
            values = rows.pivot_table(spec.y, row_key(points), spec.x)[at[spec.x]]
            x = np.asarray(at[spec.x], dtype=float)
            x = np.log(x) if spec.fit == "power" else x
            slope, low, high, start = statistics.slope(x, values.to_numpy(), spec.estimator)
            table.loc[part.index, FIT[:3]] = slope, low, high
            table.loc[at.index, "fitted"] = np.exp(start + slope * x)
    return table


def _laws(table: pd.DataFrame, spec: ChartSpec, law: str, x: str) -> Iterator[tuple[Any, str]]:
    """Yield the first row of each curve that has a fit, and its law: `lr^-1.9 [-2, -1.8]`."""
    for _, part in groups(table.dropna(subset=FIT[:1]), spec.keys[:-1]):
        slope, *ends = (number(float(value), 3) for value in part[FIT[:3]].iloc[0])
        interval = f" [{', '.join(ends)}]" if part["slope_low"].notna().all() else ""
        yield part.index[0], f"{law.format(x=x, slope=slope)}{interval}"


def _without_law(table: pd.DataFrame, spec: ChartSpec) -> Iterator[str]:
    """Yield a line on the curves without a law, and one on the laws without an interval."""
    curves = [part for _, part in groups(table, spec.keys[:-1])]
    fits = [fit for part in curves if len(fit := part.dropna(subset="fitted"))]
    if lost := len(curves) - len(fits):
        x = f"{spec.x} > 0" if spec.fit == "power" else spec.x
        few = f"fewer than 3 values of {x} with a {spec.estimator} > 0"
        yield f"No law for {lost} of {len(curves)} curves: {few}."
    open_ends = [fit for fit in fits if fit["slope_low"].isna().any()]
    single = sum(fit["used"].min() < 2 for fit in open_ends)
    reasons = {
        f"a value of {spec.x} has one instance only": single,
        f"a {spec.estimator} of resampled instances is not > 0": len(open_ends) - single,
    }
    for reason, count in reasons.items():
        if count:
            yield f"No interval for {count} of {len(fits)} laws: {reason}."


def _left_out(rows: pd.DataFrame, status: pd.Series[bool], spec: ChartSpec) -> list[str]:
    """Return the lines on what is shown and what is not: rows without the `status`, or a value."""
    first = ~rows.duplicated(row_key(rows))
    value, x = pd.Series(np.isfinite(floats(rows[spec.y])), rows.index), rows[spec.x].notna()
    no_history = rows[STEP].isna() if spec.over_steps else ~first & False
    shown = rows[status & value & x]
    statuses = rows["status"][first].value_counts()
    listed = ", ".join(f"{count} {name}" for name, count in statuses.items())
    count = len(shown.drop_duplicates(row_key(rows)))
    lines = [f"Instances: {first.sum()} ({listed or 'none'}); {count} shown."]
    lines += [f"Only those with {', '.join(spec.chosen)}."] if spec.where else []
    hidden = rows["status"][first & ~status & value].value_counts()
    ways = ",".join([*spec.status, *hidden.index])
    option = f"; --status {ways} shows the {hidden.sum()} of them that have a value of {spec.y}"
    what = "points" if spec.over_steps else "instances"
    reasons = {
        f"by status, shown are {', '.join(spec.status)}{option if len(hidden) else ''}": (
            first & ~status
        ),
        f"instances without a history of {spec.y}": status & no_history,
        f"{what} without a value of {spec.y}": status & ~no_history & ~value,
        f"{what} without {spec.x}": status & ~no_history & value & ~x,
    }
    lines += [f"Left out: {lost.sum()} {why}." for why, lost in reasons.items() if lost.any()]
    by = [name for name in spec.keys if name != STEP and (name != spec.x or spec.kind != "scatter")]
    every, having = (len(part[by].drop_duplicates()) if by else 0 for part in (rows, shown))
    if every > having:
        lines.append(f"Cells without an instance that is shown: {every - having} of {every}.")
    for axis in spec.log:
        below = int((floats(shown[spec.x if axis == "x" else spec.y]) <= 0).sum())
        drawn = notation.TABLES["logarithmic"][axis]
        lines += [f"{below} values of {axis} are not > 0: {drawn}."] if below else []
    return lines


def _below_zero(table: pd.DataFrame, spec: ChartSpec) -> list[str]:
    """Return a line on bands that are cut on a logarithmic axis."""
    if "y" not in spec.log or spec.band != "sd":
        return []
    cut = int(((table["mean"] > 0) & (table["std"] >= table["mean"])).sum())
    what = "Points of bands that end at the mean, since mean - std is not > 0"
    return [f"{what}: {cut} of {len(table)}."] if cut else []


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
    shares, box = "share" in table, spec.kind == "box"
    statistic = spec.y if spec.kind == "scatter" else "share" if shares else str(spec.estimator)
    label = notation.column(spec.y)
    if shares or spec.kind in ("line", "heatmap"):
        label = f"{'share of' if shares else statistic} {label}"

    def points_of(rows: pd.DataFrame, y: str) -> pd.DataFrame:
        words: dict[str, Any] = {
            role: labels(cells, rows, [name], short=spec.kind == "heatmap" and role == "hue")
            for role, name in spec.parts
            if role != "x"
        }
        if box or spec.kind == "heatmap":
            words["x"] = labels(cells, rows, [spec.x], short=True)
        else:
            words["x"] = floats(rows[spec.x])
        ends = chain(*BANDS.values(), *BOXES, ["used", "fitted"])
        kept = rows[[name for name in dict.fromkeys(ends) if name in rows]]
        return kept.assign(used=rows.get("used", 1), value=floats(rows[y]), **words)

    if "std" in table:
        mean, less = table["mean"], table["mean"] - table["std"]
        if "y" in spec.log:
            less = less.where((less > 0) | less.isna(), mean)  # not a cliff down to 0
        table = table.assign(less_std=less, plus_std=mean + table["std"])
    points = points_of(table, statistic)
    if spec.kind == "heatmap":
        return _heatmaps(points, spec, label, fig)
    scale: Any = "log" if "y" in spec.log else "share" if shares else "linear"
    look: dict[str, Any] = {"panels": Panel(label, scale), "fig": fig, "bands": {}}
    look["x_label"] = notation.column(spec.x)
    if instances is not None and len(instances):
        look["instances"] = points_of(instances, spec.y)
    if box:
        look["whiskers"] = BOXES if "least" in table else WHISKERS
        look["offset"] = 0.8 / len(values_of(points, "hue"))
        names = points["x"].cat.categories
        points["x"] = points["x"].cat.codes
        if "instances" in look:
            look["instances"]["x"] = pd.Categorical(look["instances"]["x"], names).codes
        fig = curves(points, "x", "value", joined=False, **look)
        for ax in fig.axes:
            style.words_at(ax, [*names])
        return fig
    if spec.kind == "scatter":
        look |= {"joined": False, "ticks": None if is_integer_dtype(table[spec.x]) else ()}
    elif spec.band != "none":
        look["bands"] = {BANDS["ci" if shares else spec.band]: 0.18}
    fig = curves(points, "x", "value", log_x="x" in spec.log, **look)
    if spec.fit and len(table):
        _write_laws(fig, table, points, spec)
    return fig


def _write_laws(fig: Figure, table: pd.DataFrame, points: pd.DataFrame, spec: ChartSpec) -> None:
    """Write the law of each curve into its panel, in its colour, where there is most room."""
    colours = style.colours(values_of(points, "hue"))
    panels = product(*(values_of(points, role) for role in ("row", "col")))
    axes = dict(zip(panels, fig.axes, strict=True))
    x = word(spec.x)
    x = f"${notation.SYMBOLS[x]}$" if x in notation.SYMBOLS else style.plain(x)
    for row, law in _laws(table, spec, notation.TABLES["laws_in_panels"][spec.fit], x):
        row_word, col_word, hue = (
            points[role][row] if role in points else "" for role in ("row", "col", "hue")
        )
        axes[row_word, col_word].plot([], [], ":", color=colours[hue], label=law)
    for ax in axes.values():
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="best", labelcolor="linecolor", fontsize=6.5)


def _heatmaps(points: pd.DataFrame, spec: ChartSpec, label: str, fig: Figure | None) -> Figure:
    """Return maps of the statistic over x and hue, of one scale of colours."""
    is_log = "y" in spec.log
    values = points.loc[points["value"] > 0, "value"] if is_log else points["value"]
    low, high = (0.0, 1.0) if values.dropna().empty else (values.min(), values.max())
    norm = (LogNorm if is_log else Normalize)(low, high if high > low else low + 1.0)
    return heatmaps(
        points.assign(text=points["value"].map("{:.3g}".format)),
        "hue",
        "x",
        "value",
        norm=norm,
        label=label,
        text="text" if len(points) <= NUMBERED else "",
        x_label=notation.column(spec.x),
        y_label=notation.column(str(spec.hue)),
        xticklabels="auto",
        yticklabels="auto",
        fig=fig,
    )
