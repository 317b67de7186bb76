"""The figure of a chart: panels by col and row, colours by hue; nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from .. import style
from ..cells import CellAxes, rows_of
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


def figure(
    table: pd.DataFrame,
    question: Question,
    notes: Sequence[str],
    make: Callable[[float, float], Figure] = style.figure,
) -> tuple[Figure, np.ndarray]:
    """Return the figure of the table of a chart, and the axes of its panels, (row, col).

    `make` returns an empty figure of a size in inches.
    """
    labels = CellAxes.of(table[[name for name in question.keys if name in table]])
    rows, columns = (_values(table, name) for name in (question.row, question.col))
    hues = _values(table, question.hue)
    width = 3.3 * len(columns) + 1.0
    if question.hue and question.kind != "heatmap":
        width += style.legend_width([_label(labels, question.hue, hue) for hue in hues])
    fig = make(max(width, 5.2), 2.75 * len(rows) + 0.9)
    grid = fig.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
    shades = _shades(table, question) if question.kind == "heatmap" else None
    for line, row in zip(grid, rows, strict=True):
        for ax, column in zip(line, columns, strict=True):
            cell = {name: value for name, value in ((question.row, row), (question.col, column))
                    if name}  # fmt: skip
            part = rows_of(table, cell)
            _panel(ax, part, table, question, hues, labels, shades)
            style.heading(ax, style.wrapped(labels.label(cell)))
            if part.empty or not len(_shown(part, question)):
                style.empty(ax, "no instance")
    for ax in grid[-1]:
        ax.set_xlabel(style.plain(question.x))
    for line in grid:
        line[0].set_ylabel(style.plain(question.hue if shades else _y_label(table, question)))
    _scales(grid, table, question)
    if shades:
        fig.colorbar(shades, ax=grid, label=style.plain(_y_label(table, question)))
    elif question.hue:
        style.legend(grid[0, -1], grid.flat, title=style.plain(question.hue))
    shares = "share" in table
    kind = "share" if shares and question.kind != "heatmap" else question.kind
    statistic = "share" if shares else question.estimator
    style.note(fig, [WORDS[str(kind)].format(estimator=statistic), *notes])
    return fig, grid


def _values(table: pd.DataFrame, name: str | None) -> list[Any]:
    """Return the values of a column in order, a missing one last; one of None without a column."""
    if name is None or table.empty:
        return [None]
    return list(table[name].drop_duplicates().sort_values())


def _label(labels: CellAxes, name: str, value: Any) -> str:
    return style.plain(labels.label({name: value}).partition("=")[2])


def _statistic(table: pd.DataFrame, question: Question) -> str:
    if question.kind == "scatter":
        return question.y
    return "share" if "share" in table else question.estimator


def _y_label(table: pd.DataFrame, question: Question) -> str:
    statistic = _statistic(table, question)
    if question.kind in ("scatter", "box") and statistic != "share":
        return question.y
    return f"share of {question.y}" if statistic == "share" else f"{statistic} {question.y}"


def _shown(part: pd.DataFrame, question: Question) -> pd.DataFrame:
    """Return the rows that have a value and a place on x."""
    return part[part[_statistic(part, question)].notna() & part[question.x].notna()]


def _panel(
    ax: Axes,
    part: pd.DataFrame,
    table: pd.DataFrame,
    question: Question,
    hues: list[Any],
    labels: CellAxes,
    shades: Any,
) -> None:
    part = _shown(part, question)
    if shades is not None:
        _heatmap(ax, part, table, question, labels, shades)
        return
    colours, markers = style.colours(range(len(hues))), style.markers(range(len(hues)))
    for k, hue in enumerate(hues):
        here = rows_of(part, {question.hue: hue}) if question.hue else part
        look: dict[str, Any] = {"color": colours[k], "marker": markers[k]}
        if question.hue:
            look["label"] = _label(labels, question.hue, hue)
        if question.kind == "box":
            _boxes(ax, here, _values(table, question.x), question, (k, len(hues)), look)
        elif question.kind == "scatter":
            few = max(0.15, min(0.8, 40 / max(len(here), 1) ** 0.5 / 4))
            ax.plot(_floats(here[question.x]), _floats(here[question.y]), linestyle="", alpha=few,
                    **look)  # fmt: skip
        else:
            _line(ax, here, question, look)
    if question.kind == "box":
        places = _values(table, question.x)
        ax.set_xticks(range(len(places)), [_label(labels, question.x, one) for one in places])


def _line(ax: Axes, here: pd.DataFrame, question: Question, look: dict[str, Any]) -> None:
    here = here.sort_values(question.x)
    x, y = _floats(here[question.x]), _floats(here[_statistic(here, question)])
    band = pd.DataFrame({"x": x, "low": here["low"].to_numpy(), "high": here["high"].to_numpy()})
    style.band(ax, band["x"], band["low"], band["high"], look["color"])
    ax.plot(x, y, markevery=max(len(here) // 8, 1), **look)


def _boxes(
    ax: Axes,
    here: pd.DataFrame,
    places: list[Any],
    question: Question,
    turn: tuple[int, int],
    look: dict[str, Any],
) -> None:
    k, count = turn
    share = 0.8 / count
    for place, x in enumerate(places):
        for _, one in rows_of(here, {question.x: x}).iterrows():
            at = place + (k - (count - 1) / 2) * share
            if "share" in one:
                low, high = one["low"], one["high"]
                ax.vlines(at, low, high, color=look["color"], linewidth=0.9)
                ax.plot(at, one["share"], linestyle="", color=look["color"], marker=look["marker"])
                continue
            box: dict[str, Any] = {"med": one["median"], "q1": one["q25"], "q3": one["q75"],
                   "whislo": one["least"], "whishi": one["largest"]}  # fmt: skip
            ax.bxp(
                [box], positions=[at], widths=0.9 * share, showfliers=False, patch_artist=True,
                boxprops={"facecolor": look["color"], "alpha": 0.35, "linewidth": 0.8},
                whiskerprops={"color": look["color"]}, capprops={"color": look["color"]},
                medianprops={"color": look["color"], "linewidth": 1.6},
            )  # fmt: skip
    if "label" in look:
        ax.plot([], [], color=look["color"], linewidth=6, alpha=0.6, label=look["label"])
    ax.set_xlim(-0.6, len(places) - 0.4)


def _shades(table: pd.DataFrame, question: Question) -> Any:
    values = _floats(_shown(table, question)[_statistic(table, question)])
    log = "y" in question.log
    values = values[values > 0] if log else values
    low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    high = high if high > low else low + 1.0
    return ScalarMappable(LogNorm(low, high) if log else Normalize(low, high), "viridis")


def _heatmap(
    ax: Axes,
    part: pd.DataFrame,
    table: pd.DataFrame,
    question: Question,
    labels: CellAxes,
    shades: Any,
) -> None:
    assert question.hue is not None
    across, up = _values(table, question.x), _values(table, question.hue)
    field = part.set_index([question.hue, question.x])[_statistic(part, question)].unstack()
    field = field.reindex(index=up, columns=across)
    image = field.to_numpy(dtype=float, na_value=np.nan)
    ax.set_facecolor("#efefef")  # a cell without an instance
    ax.imshow(image, origin="lower", aspect="auto", norm=shades.norm, cmap=shades.cmap)
    ax.grid(False)
    if image.size <= NUMBERED:
        for (i, j), value in np.ndenumerate(image):
            if np.isfinite(value):
                dark = shades.norm(value) < 0.6
                ax.text(j, i, f"{value:.3g}", ha="center", va="center", fontsize=7,
                        color="white" if dark else "black")  # fmt: skip
    every = [max(1, -(-len(values) // 12)) for values in (across, up)]
    ax.set_xticks(range(0, len(across), every[0]),
                  [_label(labels, question.x, one) for one in across[:: every[0]]])  # fmt: skip
    ax.set_yticks(range(0, len(up), every[1]),
                  [_label(labels, question.hue, one) for one in up[:: every[1]]])  # fmt: skip


def _scales(grid: np.ndarray, table: pd.DataFrame, question: Question) -> None:
    shown = _shown(table, question)
    for ax in grid.flat:
        if "y" in question.log and question.kind != "heatmap":
            style.log_axis(ax.yaxis)
        elif _statistic(table, question) == "share" and question.kind != "heatmap":
            style.share_axis(ax, ax.get_ylabel())
        if question.kind not in ("line", "scatter") or shown.empty:
            continue
        x = pd.Series(_floats(shown[question.x]))
        if "x" in question.log and (x > 0).any():
            if (x == 0).any():
                style.log_axis_from_zero(ax, x)
            else:
                ax.set_xscale("log")
        elif x.nunique() <= 8:
            style.ticks_at(ax, x)


def _floats(column: pd.Series[Any]) -> np.ndarray:
    return column.to_numpy(dtype=float, na_value=np.nan)
