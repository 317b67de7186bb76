"""The answer to a question: numbers of a chart, its figure, and the count of what is left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from pandas.api.types import is_bool_dtype

from .. import notation, statistics, style
from ..cells import CellAxes, row_key
from ..facets import Look, Panel, curve, facets, labels, looks_of, matrix, points
from .question import ALL, STEP, Question, Tables, checked, rows_for

WORDS: dict[str, str] = notation.TABLES["charts"]
"""Kind of a chart -> what it shows."""

SHOWN_DPI = 150
"""Resolution of a figure in a notebook."""

NUMBERED = 150
"""Largest number of fields of a heatmap whose numbers are written into them."""

BOX = {"median": "med", "q25": "q1", "q75": "q3", "least": "whislo", "largest": "whishi"}
"""Statistics -> their names in matplotlib's boxes."""


@dataclass(frozen=True)
class Chart:
    """The answer to a question, which has the parts that axes have got by themselves.

    `table` has a row for each cell and x: used, excluded, statistics with interval; for a scatter
    one for each instance. Columns are named as on the command line. `counts` has the number of
    instances of each cell by status and reason, also of those left out; `notes` say why.
    """

    question: Question
    table: pd.DataFrame
    counts: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its files."""
        return self.question.name

    @property
    def caption(self) -> str:
        """What the figure shows."""
        asked = self.question
        by = ", ".join(name for part, name in asked.parts if part != "x")
        what = f"{asked.y} versus {asked.x}" + (f", by {by}" if by else "")
        shares = "share" in self.table
        kind = "share" if shares and asked.kind != "heatmap" else str(asked.kind)
        return f"{what}. {WORDS[kind].format(estimator='share' if shares else asked.estimator)}"

    def figure(self) -> Figure:
        """Return the figure."""
        return figure(self.table, self.question)[0]


def answer(tables: Tables, question: Question, remarks: Sequence[str] = ()) -> Chart:
    """Return the chart of a question.

    An axis of the sweep that the question does not name gets the first free one of hue, col and
    row: cells are never pooled. ChartError: a column does not exist or is of the wrong type, or an
    axis is left without a part.
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
    """Return the axes, (row, col), of a figure with small print; a notebook shows it by itself."""
    from matplotlib import pyplot  # takes a second to import

    empty = pyplot.figure(dpi=SHOWN_DPI, layout="constrained")  # turns on that notebooks show it

    def new(width: float, height: float) -> Figure:
        empty.set_size_inches(width, height)
        return empty

    with style.paper():
        made, grid = figure(chart.table, chart.question, new)
        style.note(made, [chart.caption, *chart.notes])
    return grid


def _statistics(rows: pd.DataFrame, kept: np.ndarray, question: Question) -> pd.DataFrame:
    """Return the statistics of the rows that are kept; a cell of which none is has a row too."""
    keys, y = question.keys, question.y
    values = rows[y].astype("boolean" if is_bool_dtype(rows[y]) else float)
    rows = rows.assign(**{y: values.where(kept)})
    if question.over_steps:
        rows = rows[rows[STEP].notna()]  # the others have no history
    if is_bool_dtype(rows[y]):
        table = statistics.shares(rows, keys, y)
    else:
        table = statistics.summaries(rows, keys, y, question.estimator)
        if question.kind == "box":
            finite = rows.assign(**{y: rows[y].where(np.isfinite(floats(rows[y])))})
            ends = finite.groupby(keys, dropna=False)[y].agg(least="min", largest="max")
            table = table.merge(ends.reset_index(), on=keys)
    table.insert(len(keys), "quantity", y)
    return table


def _left_out(
    instances: pd.DataFrame, kept: pd.DataFrame, known: pd.DataFrame, question: Question
) -> list[str]:
    statuses = instances["status"].value_counts()
    listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
    chosen, shown = (len(rows.drop_duplicates(row_key(rows))) for rows in (kept, known))
    others = len(instances) - chosen
    no_cell = (STEP, question.x) if question.kind == "scatter" else (STEP,)
    by = [name for name in question.keys if name not in no_cell]
    every, having = (len(rows[by].drop_duplicates()) if by else 0 for rows in (instances, known))
    without, what = 0, "instances"
    if question.over_steps:
        without, what = int(kept[STEP].isna().sum()), "points"
        kept = kept[kept[STEP].notna()]
    value, x = np.isfinite(floats(kept[question.y])), kept[question.x].notna()
    no_value, no_x = int((~value).sum()), int((~x & value).sum())
    lines = [
        (1, f"Instances: {len(instances)} ({listed or 'none'}); {shown} shown."),
        (len(question.where), f"Only those with {', '.join(question.chosen)}."),
        (others, f"Left out by status: {others}, shown are {', '.join(question.status)}."),
        (every - having, f"Cells without an instance that is shown: {every - having} of {every}."),
        (without, f"Left out: {without} instances without a history of {question.y}."),
        (no_value, f"Left out: {no_value} {what} without a value of {question.y}."),
        (no_x, f"Left out: {no_x} {what} without {question.x}."),
    ]
    for axis in question.log:
        numbers = floats(known[question.x if axis == "x" else question.y])
        below, shown_as = int((numbers <= 0).sum()), notation.TABLES["logarithmic"][axis]
        lines.append((below, f"{below} values of {axis} are not > 0: {shown_as}."))
    return [line for count, line in lines if count]


# --- the figure -----------------------------------------------------------------------------------


def figure(
    table: pd.DataFrame, question: Question, make: Callable[[float, float], Figure] = style.figure
) -> tuple[Figure, np.ndarray]:
    """Return the figure of the table of a chart, and the axes of its panels, (row, col).

    `make` returns an empty figure of a size in inches.
    """
    cells = CellAxes.of(table[[name for name in question.keys if name in table]])
    kind, y, statistic = question.kind, notation.column(question.y), str(question.estimator)
    if kind == "scatter":
        statistic = question.y
    elif "share" in table:
        statistic = "share"
    words = {"share": "share of ", "mean": "mean ", "median": "median "}
    before = "" if kind == "box" and statistic != "share" else words.get(statistic, "")
    scale: Any = "log" if "y" in question.log else "share" if statistic == "share" else "linear"
    given: dict[str, Any] = {
        "panels": Panel(before + y, scale), "share_x": True, "x_label": notation.column(question.x),
        "nothing": "no instance", "make": make, "title": "" if question.hue else None,
    }  # fmt: skip
    labelled = table.assign(used=table.get("used", 1), value=floats(table[statistic]))
    for role, name in question.parts:
        if role != "x":
            given[role] = f"({role})"
            short = (role, kind) == ("hue", "heatmap")
            labelled[given[role]] = labels(cells, table, [name], short)
    labelled = labelled[labelled[question.x].notna()]
    if kind == "heatmap":
        return _heatmaps(labelled, question, cells, given, before + y)
    if kind == "box":
        return _boxes(labelled, question, cells, given)
    x = floats(labelled[question.x])
    few = len(np.unique(x)) <= 8 and "x" not in question.log
    return facets(
        labelled.assign(**{question.x: x}), question.x, "value", **given, log_x="x" in question.log,
        mark=points if kind == "scatter" else curve, ticks=x if few else (),
    )  # fmt: skip


def _boxes(
    table: pd.DataFrame, question: Question, cells: CellAxes, given: dict[str, Any]
) -> tuple[Figure, np.ndarray]:
    """Return boxes at each value of x, side by side for the values of hue."""
    places = labels(cells, table, [question.x], short=True)
    count = table["(hue)"].nunique() if question.hue else 1
    share = 0.8 / count
    hues = list(table["(hue)"].cat.categories) if question.hue else [None]
    fig, grid = facets(
        table.assign(at=places.cat.codes.astype(float)), "at", "value", **given, apart=share,
        looks=looks_of(hues), mark=partial(_box, 0.9 * share),
    )  # fmt: skip
    for ax in grid.flat:
        ax.set_xticks(range(len(places.cat.categories)), places.cat.categories)
        ax.set_xlim(-0.6, len(places.cat.categories) - 0.4)
    return fig, grid


def _box(width: float, ax: Axes, rows: pd.DataFrame, x: str, statistic: str, look: Look) -> None:
    colour = look["color"]
    if "label" in look:
        ax.plot([], [], color=colour, linewidth=6, alpha=0.6, label=look["label"])
    if "share" in rows:
        ax.vlines(rows[x], rows["low"], rows["high"], color=colour, linewidth=0.9)
        ax.plot(rows[x], rows["share"], color=colour, marker=look["marker"], linestyle="")
        return
    boxes = [{str(name): value for name, value in row.items()}
             for row in rows.rename(columns=BOX).to_dict("records")]  # fmt: skip
    ax.bxp(
        boxes, positions=rows[x].tolist(), widths=width,
        showfliers=False, patch_artist=True, medianprops={"color": colour, "linewidth": 1.6},
        boxprops={"facecolor": colour, "alpha": 0.35, "linewidth": 0.8},
        whiskerprops={"color": colour}, capprops={"color": colour},
    )  # fmt: skip


def _heatmaps(
    table: pd.DataFrame, question: Question, cells: CellAxes, given: dict[str, Any], label: str
) -> tuple[Figure, np.ndarray]:
    """Return maps of the statistic over x and hue, of one scale of colours."""
    values = table.loc[table["value"] > 0, "value"] if "y" in question.log else table["value"]
    low, high = (0.0, 1.0) if values.dropna().empty else (values.min(), values.max())
    high = high if high > low else low + 1.0
    norm = LogNorm(low, high) if "y" in question.log else Normalize(low, high)
    across = labels(cells, table, [question.x], short=True)
    table = table.assign(across=across, at=0.0)
    given |= {"hue": "", "title": None, "panels": Panel()}

    def draw(ax: Axes, rows: pd.DataFrame, x: str, statistic: str, look: Look) -> None:
        ax.set_facecolor("#efefef")  # a cell without an instance
        sizes = [len(rows[name].cat.categories) for name in ("(hue)", "across")]
        every = [max(1, -(-size // 12)) for size in sizes]
        text = "text" if np.prod(sizes) <= NUMBERED else ""
        rows = rows.assign(text=rows["value"].map("{:.3g}".format))
        matrix(ax, rows, "(hue)", "across", "value", text, norm=norm,
               xticklabels=every[1], yticklabels=every[0], annot_kws={"fontsize": 6})  # fmt: skip
        ax.invert_yaxis()

    fig, grid = facets(table, "at", "value", **given, mark=draw)
    for ax in grid[:, 0]:
        ax.set_ylabel(notation.column(question.hue or ""))
    fig.colorbar(ScalarMappable(norm, "viridis"), ax=grid, label=label)
    return fig, grid


def floats(column: "pd.Series[Any]") -> np.ndarray:
    """Return a column of numbers or truth values as floats; NaN for missing ones."""
    return column.to_numpy(dtype=float, na_value=np.nan)
