"""A table of statistics as a grid of panels: curves, points, stacked bars and maps.

The table has a row for each point: x, a statistic, the ends `low` and `high` of its interval, and
`used`, the number of instances. Nothing is computed here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import notation, style
from .cells import CellAxes, groups, rows_of

Look = Mapping[str, Any]
"""How a curve or a part of a bar is drawn, as arguments of matplotlib."""

Mark = Callable[[Axes, pd.DataFrame, str, str, Look], None]
"""Draws the rows of a curve: axes, rows in the order of x, names of x and statistic, look."""


@dataclass(frozen=True)
class Panel:
    """The vertical axis of a panel.

    Of scales, share goes from 0 to 100 %, from_zero is linear with 0 at the bottom. `line` is the
    height of a dotted line, `nothing` what the panel says if it alone is empty.
    """

    label: str = ""
    scale: Literal["linear", "log", "share", "from_zero"] = "linear"
    line: float | None = None
    nothing: str = ""


def panel_of(quantity: str) -> Panel:
    """Return the vertical axis of a quantity: `columns` and `panels` of `notation.yaml`."""
    fields = {"scale": "log", **notation.PANELS.get(quantity, {})}
    return Panel(notation.column(quantity), **fields)


def panels_of(*quantities: str) -> dict[str, Panel]:
    """Return the vertical axes of several quantities, in their order."""
    return {quantity: panel_of(quantity) for quantity in quantities}


def named(column: "pd.Series[Any]", names: Mapping[Any, str]) -> "pd.Series[Any]":
    """Return the names of a column's values, in the order of `names`; others follow unchanged."""
    words = column.astype(object).map(lambda value: names.get(value, style.plain(value)))
    found = set(words)
    known = [name for name in dict.fromkeys(names.values()) if name in found]
    return words.astype(pd.CategoricalDtype([*known, *sorted(found - set(known))]))


def labels(
    axes: CellAxes, table: pd.DataFrame, keys: Sequence[str], short: bool = False
) -> "pd.Series[Any]":
    """Return the label of each row's combination of `keys`, as categories in their order, W first.

    `short`: the values only. The number of steps is named only where it tells cells apart.
    """
    rest = [key for key in keys if key != "steps"]
    if rest and len(table[rest].drop_duplicates()) == len(table[[*keys]].drop_duplicates()):
        keys = rest
    words = pd.Series("", index=table.index, dtype=object)
    order = {"": None} if table.empty else dict[str, None]()
    for cell, part in groups(table, keys):
        word = (notation.values if short else notation.label)(axes, cell)
        words[part.index] = word
        order[word] = None
    of_factors = notation.RULES["kq"]
    return words.astype(pd.CategoricalDtype(sorted(order, key=lambda name: of_factors in name)))


def values_of(table: pd.DataFrame, name: str) -> list[Any]:
    """Return the distinct values of a column, all its categories if it has any; [None] if none."""
    if not name or name not in table:
        return [None]
    if isinstance(table[name].dtype, pd.CategoricalDtype):
        return list(table[name].cat.categories) or [None]
    return list(dict.fromkeys(table[name])) or [None]


def looks_of(names: Sequence[Any], **more: Any) -> dict[Any, Look]:
    """Return the colour and marker of each of the names in order, and `more` of all of them.

    Markers repeat after seven.
    """
    markers = dict(zip(names, cycle(style.MARKERS), strict=False))
    return {name: {"color": colour, "marker": markers[name], **more}
            for name, colour in style.colours(names).items()}  # fmt: skip


def looks_of_pairs(axes: CellAxes, table: pd.DataFrame, keys: Sequence[str]) -> dict[str, Look]:
    """Return the look of each label of `keys`: dashed in the published arithmetic.

    Both arithmetics of a cell have one colour.
    """
    names, others = labels(axes, table, keys), [key for key in keys if key != "gradient"]
    looks = looks_of(list(names.cat.categories))
    if others and len(others) < len(keys):
        colours = labels(axes, table, others)
        of = looks_of(list(colours.cat.categories))
        for name, rows in table.groupby(names, observed=True):
            line = "--" if rows["gradient"].iloc[0] == "direct" else "-"
            looks[str(name)] = {**of[colours[rows.index[0]]], "linestyle": line}
    return looks


def facets(
    table: pd.DataFrame,
    x: str,
    statistic: str,
    *,
    hue: str = "",
    row: str = "",
    col: str = "",
    panels: Panel | Mapping[Any, Panel] | None = None,
    looks: Mapping[Any, Look] | None = None,
    x_label: str = "",
    log_x: bool = False,
    ticks: Iterable[float] = (),
    apart: float = 0.0,
    height: float = 1.7,
    share_x: bool | Literal["row", "col"] = "col",
    mark: Mark | None = None,
    nothing: str = "no certified instance",
    title: str | None = None,
    also: Mapping[str, Look] | None = None,
    make: Callable[[float, float], Figure] = style.figure,
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its grid of panels (rows, columns), with a curve for each value of `hue`.

    `hue`, `row` and `col` are columns of words (see `labels`, `named`): categories are all shown,
    in their order, other values in that of the table. Rows with `used` = 0 and without the
    statistic are not drawn. `panels` are the vertical axes: one for all, or one for each quantity,
    the values of `row` or `col`, in their order; those of a quantity are the same.

    The x axis is logarithmic with `log_x`, with 0 at its left end, or has `ticks` at these values;
    along it, curves are `apart` by so much that equal ones are seen. `height` is that of a panel in
    inches: one panel fits a column of text, several the width of the page. `mark` draws a curve, as
    in `looks`; by default `curve` in colours of the palette. `nothing` is what an empty panel says,
    `title` that of the legend, `also` are its further entries; `make` returns an empty figure of a
    width and height.
    """
    quantities = panels if isinstance(panels, Mapping) else {}
    mark = mark or curve
    rows, columns = (values_of(table, name) for name in (row, col))
    by_row, by_col = (bool(quantities) and set(v) <= set(quantities) for v in (rows, columns))
    rows = [name for name in quantities if name in rows] if by_row else rows
    columns = [name for name in quantities if name in columns] if by_col else columns
    hues = values_of(table, hue)
    looks = looks or looks_of(hues)
    names = [str(name) for name in hues] if len(hues) > 1 or title is not None else []
    fig = make(style.width_of(len(columns)), height * len(rows) + 0.35)
    grid = fig.subplots(
        len(rows), len(columns), squeeze=False, sharex=share_x,
        sharey="row" if by_row else "col" if by_col else True,
    )  # fmt: skip
    known = {"used", statistic} <= set(table)
    shown = table[(table["used"] > 0) & table[statistic].notna()] if known else table.iloc[:0]
    for (i, j), ax in np.ndenumerate(grid):
        here = {row: rows[i], col: columns[j]}
        part = rows_of(shown, {name: value for name, value in here.items() if value is not None})
        for k, value in enumerate(hues):
            points = part if value is None else part[part[hue] == value]
            points = points.assign(**{x: points[x] + apart * (k - (len(hues) - 1) / 2)})
            label = {"label": value} if names else {}
            if len(points):
                mark(ax, points.sort_values(x), x, statistic, label | dict(looks[value]))
        if part.empty:
            axis = quantities.get(rows[i] if by_row else columns[j], Panel())
            style.empty(ax, (len(shown) and axis.nothing) or nothing)
        words = [None if by_row else rows[i], None if by_col else columns[j]]
        if all(words) or (words[0] and j == 0) or (words[1] and i == 0):
            style.heading(ax, ", ".join(map(str, filter(None, words))))
    for (i, j), ax in np.ndenumerate(grid):  # after all curves: panels share axes
        one = quantities.get(rows[i] if by_row else columns[j], panels)
        _scale(ax, one if isinstance(one, Panel) else Panel(), labelled=by_col or j == 0)
        _x_scale(ax, shown[x], log_x, ticks)
        if i == len(rows) - 1:
            ax.set_xlabel(x_label)
    if names:
        for name, look in (also or {}).items():
            grid[-1, -1].plot([], [], label=name, **look)
        style.legend(fig, grid.flat, title)
    return fig, grid


def _scale(ax: Axes, panel: Panel, labelled: bool) -> None:
    if labelled:
        ax.set_ylabel(panel.label)
    if panel.scale == "log":
        style.log_axis(ax.yaxis)
    elif panel.scale == "share":
        style.share_axis(ax, ax.get_ylabel())
    elif panel.scale == "from_zero":
        ax.set_ylim(bottom=0)
    if panel.line is not None:
        ax.axhline(panel.line, color=style.FAINT, linestyle=":", linewidth=0.9)


def _x_scale(ax: Axes, x: "pd.Series[float]", log: bool, ticks: Iterable[float]) -> None:
    if log and (x > 0).any():
        if (x == 0).any():
            style.log_axis_from_zero(ax, x)
        else:
            ax.set_xscale("log")
    elif not log:
        style.ticks_at(ax, ticks)


# --- marks ----------------------------------------------------------------------------------------


def curve(ax: Axes, rows: pd.DataFrame, x: str, statistic: str, look: Look) -> None:
    """Draw a line with the band of its interval; a light band of quartiles if look says so."""
    look = dict(look)
    bands = {("q25", "q75"): 0.09} if look.pop("quartiles", False) else {}
    bands |= {("low", "high"): 0.18} if "low" in rows else {}
    for ends, alpha in bands.items():  # no band at points without an interval
        across, low, high = rows[[x, *ends]].to_numpy(float).T
        ax.fill_between(across, low, high, color=look["color"], alpha=alpha, linewidth=0)
    ax.plot(rows[x], rows[statistic], markevery=max(len(rows) // 8, 1), **look)


def whiskers(ax: Axes, rows: pd.DataFrame, x: str, statistic: str, look: Look) -> None:
    """Draw points, joined by a line, with their intervals as bars: finite ones."""
    ends = np.abs(rows[["low", "high"]].to_numpy(float).T - rows[statistic].to_numpy(float))
    ends = np.where(np.isfinite(ends).all(axis=0), ends, 0.0)
    ax.errorbar(rows[x], rows[statistic], ends, **{"capsize": 2, **look})


def points(ax: Axes, rows: pd.DataFrame, x: str, statistic: str, look: Look) -> None:
    """Draw a point for each row, the paler the more there are."""
    alpha = float(np.clip(8 / np.sqrt(len(rows)), 0.2, 0.8))
    ax.plot(rows[x], rows[statistic], alpha=alpha, rasterized=True, **{**look, "linestyle": ""})


# --- bars and maps --------------------------------------------------------------------------------


def stacked(
    ax: Axes,
    table: pd.DataFrame,
    at: str,
    kind: str,
    looks: Mapping[str, Look],
    *,
    horizontal: bool = False,
    least: float = 2.0,
) -> list[Any]:
    """Stack the column `share` of the kinds, a bar for each value of the column `at`.

    `looks` are the kinds in order; a look may name them by `label` and the colour of numbers by
    `ink`. Bars lie if `horizontal`. Shares from `least` on have their `count` written into them.
    Returns the values of `at` in the order of the bars.
    """
    values = values_of(table, at)
    places, start = np.arange(len(values), dtype=float), np.zeros(len(values))
    for name, given in looks.items():
        rows = table[table[kind] == name].groupby(at, observed=True)[["share", "count"]].sum()
        rows = rows.reindex(values).fillna(0.0)
        if not rows["count"].any() and not given.get("always"):
            continue
        look = {"label": name.replace("_", " ")} | dict(given)
        ink = look.pop("ink", "black")
        look.pop("always", None)
        share = rows["share"].to_numpy(float)
        drawn = (ax.barh if horizontal else ax.bar)(places, share, 0.8, start, **look)
        counts = rows["count"].map("{:.0f}".format).where(share >= least, "")
        ax.bar_label(drawn, counts, label_type="center", fontsize=6.5, color=ink)
        start = start + share
    ax.grid(False)
    return values


def bars(
    table: pd.DataFrame,
    at: str,
    kind: str,
    looks: Mapping[str, Look],
    *,
    col: str = "",
    x_label: str = "",
    y_label: str = "share of instances",
    least: float = 0.06,
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its row of panels, one for each value of `col`, with `stacked` bars."""
    columns = values_of(table, col)
    fig = style.figure(style.width_of(len(columns)), 2.2)
    (grid,) = fig.subplots(1, len(columns), squeeze=False, sharey=True)
    for ax, column in zip(grid, columns, strict=True):
        here = table if column is None else table[table[col] == column]
        names = stacked(ax, here, at, kind, looks, least=least)
        long = max((len(line) for name in names for line in str(name).split("\n")), default=0) > 7
        ax.set_xticks(range(len(names)), names, **({"rotation": 40, "ha": "right"} if long else {}))
        ax.set_xlabel(x_label)
        if column is not None:
            style.heading(ax, str(column))
    style.share_axis(grid[0], y_label)
    style.legend(fig, grid, handlelength=1.3)
    return fig, grid


def matrix(
    ax: Axes, table: pd.DataFrame, row: str, col: str, value: str, text: str = "", **look: Any
) -> None:
    """Draw a column of a table as a map of colours over two others.

    The first row is at the top, NaN fields are empty, and `text` is a column of what is written
    into the fields. `look` are arguments of `seaborn.heatmap`.
    """
    import seaborn  # takes a second

    fields, texts = (
        table.pivot_table(name, row, col, aggfunc="first", dropna=False, observed=False)
        for name in (value, text or value)
    )
    given: dict[str, Any] = {"cmap": "viridis", "cbar": False}
    if text:
        given |= {"annot": texts.to_numpy(), "fmt": "", "annot_kws": {"fontsize": 6}}
    ticks = {"xticklabels": [*fields.columns], "yticklabels": [*fields.index]}
    seaborn.heatmap(fields.astype(float), ax=ax, **given | ticks | look)
    ax.grid(False)
    ax.set(xlabel="", ylabel="")
    ax.tick_params(length=0, rotation=0, labelsize=7)
