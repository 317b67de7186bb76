"""A tidy table as panels of curves, stacked bars or a map, drawn by seaborn in our style.

The table has a row for each point: x, a statistic, the ends `low` and `high` of its interval, and
`used`, the number of instances. Nothing is computed here.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice, product
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from . import notation, style
from .cells import CellAxes, groups, rows_of

BANDS = {("low", "high"): 0.18}
"""Columns with the ends of a band -> its opacity."""

QUARTILES = {("q25", "q75"): 0.09}

WHISKERS = {("low", "high"): 0.7}
"""Columns with the ends of a bar -> its width in points."""

ROLES = ("row", "col", "hue", "dash")
"""Columns of a table that say in which panel, colour and dashes a row is drawn."""

THEME = r"^(axes|figure|font|grid|hatch|legend|lines|mathtext|patch|xtick|ytick)\."
"""Settings of matplotlib that seaborn would replace by its own."""


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
    present = set(words)
    known = [name for name in dict.fromkeys(names.values()) if name in present]
    return words.astype(pd.CategoricalDtype([*known, *sorted(present - set(known))]))


def labels(
    axes: CellAxes, table: pd.DataFrame, keys: Sequence[str], short: bool = False
) -> "pd.Series[Any]":
    """Return the label of each row's combination of `keys`, as categories in their order.

    `short`: the values only. The number of steps is named only where it tells cells apart.
    """
    rest = [key for key in keys if key != "optimizer.steps"]
    if rest and len(table[rest].drop_duplicates()) == len(table[[*keys]].drop_duplicates()):
        keys = rest
    word = notation.values if short else notation.label
    words = pd.Series("", index=table.index, dtype=object)
    places: dict[str, tuple[int, ...]] = {"": (0,)} if table.empty else {}
    for cell, part in groups(table, keys):
        name = word(axes, cell)
        words[part.index] = name
        places[name] = tuple(notation.place(key, value) for key, value in cell.items())
    return words.astype(pd.CategoricalDtype(sorted(places, key=places.__getitem__)))


def values_of(table: pd.DataFrame, name: str) -> list[Any]:
    """Return the distinct values of a column, all its categories if it has any; [""] if none."""
    if name not in table:
        return [""]
    if isinstance(table[name].dtype, pd.CategoricalDtype):
        return list(table[name].cat.categories) or [""]
    return list(dict.fromkeys(table[name])) or [""]


def curves(
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    panels: Panel | Mapping[Any, Panel] | None = None,
    palette: Mapping[Any, str] | None = None,
    bands: Mapping[tuple[str, str], float] = BANDS,
    whiskers: Mapping[tuple[str, str], float] | None = None,
    joined: bool = True,
    widen: float = 0.3,
    x_label: str = "",
    log_x: bool = False,
    ticks: Iterable[float] | None = None,
    offset: float = 0.0,
    height: float = 1.7,
    extra: Mapping[str, Mapping[str, Any]] | None = None,
    instances: pd.DataFrame | None = None,
    fig: Figure | None = None,
) -> Figure:
    """Return a figure: a grid of panels (rows, columns), with curves in colours and dashes.

    The columns `row`, `col`, `hue` and `dash` of the table, if it has them, are words (see
    `labels`, `named`): categories are all shown, in their order, other values in that of the table.
    Rows with `used` = 0 and without y are not drawn. `panels` are the vertical axes: one for all,
    or one for each quantity, the values of `col`, in their order.

    `bands` and `whiskers` are the columns with the ends of intervals, with the opacity of a band
    and the width of a bar; points are `joined` by a line. Each curve is `widen` points wider than
    the next one, so that equal ones are seen, and `offset` beside it. The x axis is logarithmic
    with `log_x`, 0 at its left end, and has `ticks` at these values, by default at few values of x.
    `height` is that of a panel in inches: one panel fits a column of text, several the width of the
    page. `extra` are further entries of the legend as arguments of `Line2D`; `instances`
    is a table of the same columns with a small point for each row, jittered along x; `fig` is an
    empty figure. A column `fitted` is a dotted line.
    """
    import seaborn.objects as so  # takes a second

    rows, columns, hues, dashes = (values_of(table, role) for role in ROLES)
    by_column = isinstance(panels, Mapping) and {*columns} <= {*panels}
    if not isinstance(panels, Mapping):
        panels = dict.fromkeys(columns, panels or Panel())
    elif by_column:
        columns = [name for name in panels if name in columns]
    known = {"used", y} <= set(table)
    points = table[(table["used"] > 0) & table[y].notna()] if known else table.iloc[:0]
    if instances is not None:
        around = instances.rename(columns={y: "instance"}).drop(columns="used", errors="ignore")
        points = pd.concat([points, around], ignore_index=True)
    points = points.assign(**{role: points.get(role, "") for role in ROLES})
    numbers = {x, y, "instance", *chain(*bands, *(whiskers or {}))} & {*points}
    points = points.astype(dict.fromkeys(numbers, float))
    place = dict(zip(hues, offset * (np.arange(len(hues)) - (len(hues) - 1) / 2), strict=True))
    points[x] += points["hue"].map(place).astype(float)
    colours = palette or style.colours(hues)
    looks: dict[str, list[Any]] = {
        "color": [colours.get(value, style.INK) for value in hues],
        "marker": [*islice(cycle(style.MARKERS), len(hues))],
        "linewidth": [1.2 + widen * min(k, 4) for k in reversed(range(len(hues)))],
    }
    scales = {name: so.Nominal(of, order=hues) for name, of in looks.items()}
    fig = _grid(rows, columns, height, fig)
    plot = so.Plot(points, x, y, group="dash", **dict.fromkeys(looks, "hue"))
    plot = plot.facet("col", "row", order={"col": columns, "row": rows})
    marks: list[tuple[Any, dict[str, Any]]] = [
        (so.Band(alpha=opacity, edgewidth=0), {"ymin": low, "ymax": high})
        for (low, high), opacity in bands.items()
        if low in points
    ]
    for (low, high), width in (whiskers or {}).items():
        look = {"linewidth": width, "linestyle": "-", "alpha": 1 if width < 2 else 0.4}
        bar = so.Range(artist_kws={"capstyle": "butt"}, **look)  # others end beyond its values
        marks.append((bar, {"ymin": low, "ymax": high}))
    if joined:
        every = {"markevery": max(table[x].nunique() // 8, 1)}
        # a layer for each kind of dashes: seaborn tries all combinations of looks in a layer
        for dash, kind in zip(dashes, cycle(style.DASHES), strict=False):
            look = {} if dash == dashes[0] else {"fillcolor": "white", "linewidth": 1.2}
            line = so.Line(edgewidth=0.8, linestyle=kind, artist_kws=every, **look)
            marks.append((line, {"data": points[points["dash"] == dash]}))
    else:
        marks.append((so.Dot(pointsize=3, edgewidth=0, alpha=1 if whiskers else 0.6), {}))
    if "fitted" in points:
        marks.append((so.Line(linestyle=":", marker="", linewidth=1.0), {"y": "fitted"}))
    if "instance" in points:
        dot = so.Dot(pointsize=1.8, edgewidth=0, alpha=0.5, marker="o")
        plot = plot.add(dot, so.Jitter(seed=0), legend=False, y="instance")
    for mark, ends in marks if len(points) else ():
        plot = plot.add(mark, legend=False, **ends)
    with warnings.catch_warnings():
        # seaborn 0.13 passes an argument that pandas 3 deprecates
        warnings.simplefilter("ignore", pd.errors.Pandas4Warning)
        plot = plot.share(x=True, y="col" if by_column else True).scale(**scales)
        plot.theme(mpl.rcParams.find_all(THEME)).on(fig).plot()
    ticks = () if ticks is None and x == "step" else table[x] if ticks is None else ticks
    for (row, column), ax in zip(product(rows, columns), fig.axes, strict=True):
        panel = panels.get(column, Panel())
        if rows_of(points, {"row": row, "col": column}).empty:
            style.empty(ax, (len(points) and panel.nothing) or "no instance")
        style.heading(ax, ", ".join(filter(None, map(str, (row, "" if by_column else column)))))
        labelled = by_column or column == columns[0]
        ax.set_ylabel(panel.label if labelled else "", visible=True)
        ax.set_xlabel((x_label or notation.column(x)) if row == rows[-1] else "")
        style.y_axis(ax, panel.scale)
        if panel.line is not None:
            ax.axhline(panel.line, color=style.FAINT, linestyle=":", linewidth=0.9)
        style.x_axis(ax, points[x].to_numpy(), log_x, ticks)
    shown = zip(hues, *looks.values(), strict=True) if len(hues) > 1 else ()
    entries: dict[str, Mapping[str, Any]] = {
        str(hue): dict(zip(looks, look, strict=True)) | ({} if joined else {"linestyle": ""})
        for hue, *look in shown
        if hue
    }
    if len(dashes) > 1:
        ink = [{"color": style.INK, "linestyle": kind} for kind in style.DASHES]
        entries |= dict(zip(map(str, dashes), ink, strict=False))
    entries |= extra or {}
    style.legend(fig, {name: Line2D([], [], **look) for name, look in entries.items()})
    return fig


def _grid(rows: list[Any], columns: list[Any], height: float, fig: Figure | None) -> Figure:
    """Return the figure, or a new one, of the size for panels of this height."""
    fig = fig or style.figure(1, 1)
    fig.set_size_inches(style.width_of(len(columns)), height * len(rows) + 0.35)
    return fig


def bars(
    table: pd.DataFrame,
    at: str,
    kind: str,
    looks: Mapping[str, Mapping[str, str]],
    *,
    x_label: str = "",
    y_label: str = "share of instances",
    least: float = 0.06,
) -> Figure:
    """Return a figure: a panel for each value of the column `col`, a stacked bar for each of `at`.

    The column `share` of the kinds is stacked. `looks` are the kinds in order: color, hatch,
    `label`, and `ink`, the colour of numbers; further kinds look like `other`. Kinds that are not
    there are left out unless `always` is true. Shares from `least` on have their `count` written
    into them. Seaborn has no hatched bars.
    """
    columns, entries = values_of(table, "col"), dict[str, Artist]()
    others = sorted({*table[kind]} - {*looks})
    looks = {**looks, **dict.fromkeys(others, looks.get("other", {}))}
    fig = style.figure(style.width_of(len(columns)), 2.2)
    panels = fig.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for ax, column in zip(panels, columns, strict=True):
        part = rows_of(table, {"col": column})
        names = values_of(part, at)
        start = np.zeros(len(names))
        sums = part.groupby([kind, at], observed=True)[["share", "count"]].sum()
        for name, look in looks.items():
            rows = sums.reindex([(name, value) for value in names]).fillna(0.0)
            if not (rows["count"].any() or look.get("always")):
                continue
            fill = {"color": look["color"], "hatch": look.get("hatch", ""), "edgecolor": "white"}
            parts = ax.bar(range(len(names)), rows["share"], 0.8, start, linewidth=0.6, **fill)
            entries[look.get("label", name.replace("_", " "))] = parts
            counts = rows["count"].map("{:.0f}".format).where(rows["share"] >= least, "")
            ink = look.get("ink", "black")
            ax.bar_label(parts, counts, label_type="center", fontsize=6.5, color=ink)
            start += rows["share"].to_numpy()
        ax.grid(False)
        style.words_at(ax, names)
        style.y_axis(ax, "share")
        style.heading(ax, str(column))
        ax.set_xlabel(x_label)
    panels[0].set_ylabel(y_label)
    style.legend(fig, entries)
    return fig


def heatmap(
    ax: Axes, table: pd.DataFrame, row: str, col: str, value: str, text: str = "", **look: Any
) -> None:
    """Draw a column of a table as a map of colours over two others.

    The first row is at the top, NaN fields are empty, and `text` is a column of what is written
    into the fields. `look` are arguments of `seaborn.heatmap`.
    """
    import seaborn

    fields, texts = (
        table.pivot_table(name, row, col, aggfunc="first", dropna=False, observed=False)
        for name in (value, text or value)
    )
    usual: dict[str, Any] = {"cmap": "viridis", "cbar": False}
    usual |= {"xticklabels": [*fields.columns], "yticklabels": [*fields.index]}
    if text:
        usual |= {"annot": texts.to_numpy(), "fmt": "", "annot_kws": {"fontsize": 6}}
    seaborn.heatmap(fields.astype(float), ax=ax, **usual | look)
    ax.grid(False)
    ax.set(xlabel="", ylabel="")
    ax.tick_params(length=0, rotation=0, labelsize=7)


def heatmaps(
    table: pd.DataFrame,
    y: str,
    x: str,
    value: str,
    *,
    norm: Normalize,
    label: str,
    x_label: str = "",
    y_label: str = "",
    height: float = 1.7,
    fig: Figure | None = None,
    **look: Any,
) -> Figure:
    """Return a figure: a grid of panels, each a `heatmap` over x and y, the first row below.

    The columns `row` and `col` of the table, if it has them, are words. `norm` is the common scale
    of colours, and `label` names it; `height` is that of a panel in inches; `fig` is an empty
    figure.
    """
    rows, columns = values_of(table, "row"), values_of(table, "col")
    fig = _grid(rows, columns, height, fig)
    panels = fig.subplots(len(rows), len(columns), sharey=True, squeeze=False)
    for (row, column), ax in zip(product(rows, columns), panels.flat, strict=True):
        part = rows_of(table, {"row": row, "col": column})
        ax.set_facecolor("#efefef")  # a cell without an instance
        if part[value].isna().all():
            style.empty(ax, "no instance")
            continue
        heatmap(ax, part, y, x, value, norm=norm, **look)
        ax.invert_yaxis()
        style.heading(ax, ", ".join(filter(None, (row, column))))
        ax.set(xlabel=x_label, ylabel=y_label if column == columns[0] else "")
    fig.colorbar(ScalarMappable(norm, "viridis"), ax=fig.axes, label=label, aspect=25, pad=0.01)
    return fig
