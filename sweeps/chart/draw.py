"""The figure of a chart: panels by col and row, colours by hue; nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from .. import style
from ..cells import CellAxes
from ..facets import Look, Panel, curve, facets, labels, looks_of, matrix, points
from .question import Question

WORDS = {
    "line": "Lines: {estimator} of the instances; band: its 95 % bootstrap interval.",
    "share": "Share of the instances, with its 95 % Wilson interval.",
    "scatter": "A point for each instance.",
    "box": "Boxes: quartiles and median; whiskers: least and largest value.",
    "heatmap": "Colour: {estimator} of the instances.",
}
NUMBERED = 150
"""Largest number of fields of a heatmap whose numbers are written into them."""


def words(table: pd.DataFrame, question: Question) -> str:
    """Return what the figure shows, for its small print."""
    shares = "share" in table
    kind = "share" if shares and question.kind != "heatmap" else str(question.kind)
    return WORDS[kind].format(estimator="share" if shares else question.estimator)


def figure(
    table: pd.DataFrame,
    question: Question,
    make: Callable[[float, float], Figure] = style.figure,
) -> tuple[Figure, np.ndarray]:
    """Return the figure of the table of a chart, and the axes of its panels, (row, col).

    `make` returns an empty figure of a size in inches.
    """
    names = {r: name for r in ("row", "col", "hue") if (name := getattr(question, r)) is not None}
    cells = CellAxes.of(table[[name for name in question.keys if name in table]])
    statistic: str = "share" if "share" in table else question.estimator
    y = question.y
    if question.kind == "scatter":
        statistic = y
    label = f"share of {y}" if statistic == "share" else f"{statistic} {y}"
    label = y if question.kind in ("scatter", "box") and statistic != "share" else label
    labelled = table.assign(
        used=table.get("used", 1),
        value=floats(table[statistic]),
        **{f"({r})": _words(cells, table, name, r == "hue") for r, name in names.items()},
    )
    labelled = labelled[labelled[question.x].notna()]
    scale: Any = "log" if "y" in question.log else "share" if statistic == "share" else "linear"
    given: dict[str, Any] = {
        **{role: f"({role})" for role in names}, "panels": Panel(style.plain(label), scale),
        "share_x": True, "x_label": style.plain(question.x), "nothing": "no instance", "make": make,
        "size": (3.3, 2.75), "title": style.plain(question.hue) if question.hue else None,
    }  # fmt: skip
    if question.kind == "heatmap":
        return _heatmaps(labelled, question, cells, given, style.plain(label))
    if question.kind == "box":
        return _boxes(labelled, question, cells, given)
    x = floats(labelled[question.x])
    few = len(np.unique(x)) <= 8 and "x" not in question.log
    return facets(
        labelled.assign(**{question.x: x}), question.x, "value", **given, log_x="x" in question.log,
        mark=points if question.kind == "scatter" else curve, ticks=x if few else (),
    )  # fmt: skip


def _words(cells: CellAxes, table: pd.DataFrame, name: str, short: bool) -> pd.Series[Any]:
    """Return the labels of a column's values, in their order, a missing one last."""
    words = labels(cells, table, [name])
    return words.cat.rename_categories(lambda text: text.partition("=")[2]) if short else words


def _boxes(
    table: pd.DataFrame, question: Question, cells: CellAxes, given: dict[str, Any]
) -> tuple[Figure, np.ndarray]:
    """Return boxes at each value of x, side by side for the values of hue."""
    places = _words(cells, table, question.x, short=True)
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
    for _, one in rows.iterrows():
        if "share" in one:
            ax.vlines(one[x], one["low"], one["high"], color=colour, linewidth=0.9)
            ax.plot(one[x], one["share"], color=colour, marker=look["marker"])
            continue
        box: dict[str, Any] = {"med": one["median"], "q1": one["q25"], "q3": one["q75"],
                               "whislo": one["least"], "whishi": one["largest"]}  # fmt: skip
        ax.bxp(
            [box], positions=[one[x]], widths=width, showfliers=False, patch_artist=True,
            boxprops={"facecolor": colour, "alpha": 0.35, "linewidth": 0.8},
            whiskerprops={"color": colour}, capprops={"color": colour},
            medianprops={"color": colour, "linewidth": 1.6},
        )  # fmt: skip


def _heatmaps(
    table: pd.DataFrame, question: Question, cells: CellAxes, given: dict[str, Any], label: str
) -> tuple[Figure, np.ndarray]:
    """Return maps of the statistic over x and hue, of one scale of colours."""
    values = table.loc[table["value"] > 0, "value"] if "y" in question.log else table["value"]
    low, high = (0.0, 1.0) if values.dropna().empty else (values.min(), values.max())
    high = high if high > low else low + 1.0
    norm = LogNorm(low, high) if "y" in question.log else Normalize(low, high)
    across = _words(cells, table, question.x, short=True)
    table = table.assign(across=across, at=0.0)
    given |= {"hue": "", "title": None, "panels": Panel()}

    def draw(ax: Axes, rows: pd.DataFrame, x: str, statistic: str, look: Look) -> None:
        field = rows.pivot_table(
            index="(hue)", columns="across", values="value", observed=False, dropna=False
        )
        texts = field.map(lambda value: f"{value:.3g}" if np.isfinite(value) else "")
        ax.set_facecolor("#efefef")  # a cell without an instance
        every = [max(1, -(-size // 12)) for size in field.shape]
        matrix(ax, field, texts if field.size <= NUMBERED else None, norm=norm,
               xticklabels=every[1], yticklabels=every[0], annot_kws={"fontsize": 7})  # fmt: skip
        ax.invert_yaxis()

    fig, grid = facets(table, "at", "value", **given, mark=draw)
    for ax in grid[:, 0]:
        ax.set_ylabel(style.plain(question.hue))
    fig.colorbar(ScalarMappable(norm, "viridis"), ax=grid, label=label)
    return fig, grid


def floats(column: pd.Series[Any]) -> np.ndarray:
    """Return a column of numbers or truth values as floats; NaN for missing ones."""
    return column.to_numpy(dtype=float, na_value=np.nan)
