"""Figures with one panel of curves per quantity: shared by several experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes
from . import Drawing, history_of, outcomes, status_counts
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

AXES = {
    "max_softmax": "largest softmax, mean over samples",
    "W_norm": r"$\|W\|_F$",
    "attended_tokens": "attended tokens per sample",
    "one_minus_corr_frobenius": r"$1-\mathrm{corr}(W, W_{\mathrm{mm}})$",
    "one_minus_corr_nuclear": r"$1-\mathrm{corr}(W, W^{\star}_{\mathrm{mm}})$",
    "one_minus_corr_svmeq": r"$1-\mathrm{corr}(W, W_{\mathrm{svmeq}})$",
    "one_minus_corr_1token": r"$1-\mathrm{corr}(W, W_{\mathrm{1token}})$",
    "margin_gap_nuclear": "nuclear margin gap",
    "balance_gap": r"imbalance $\|K^\top K-Q^\top Q\|_F / \|K\|_F\|Q\|_F$",
}
"""Axis label of a quantity."""

OF_SVM = ("one_minus", "margin_gap")
"""Beginnings of the quantities that compare with an SVM."""

CURVES = 12
"""Largest number of curves, and of rows of panels, that a figure has room for."""

LONGEST = 100
"""Largest number of letters of a curve's name."""

CERTIFIED = ("ok",)
"""Statuses of the instances whose SVMs are certified: their correlations are shown."""

TRAINED = ("ok", "unsaturated", "infeasible", "undecided")
"""Statuses of the instances whose training ended with finite weights."""


STATISTICS = {
    "mean": "Lines: mean; dark band: 95 % bootstrap interval of the mean; light band: quartiles.",
    "median": "Lines: median; band: its 95 % bootstrap interval.",
}


@dataclass(frozen=True)
class OverSteps:
    """The figure of an experiment that shows `quantities` over the steps of training.

    The module of the experiment exports `tables` and `draw` of such an object. There is one row of
    panels for each value of the axis `facet`. One figure has `room` for so many curves; if
    there are more, the axis `apart` is the first to get figures of its own.
    """

    name: str
    quantities: tuple[str, ...]
    caption: str
    statistic: statistics.Statistic = "mean"
    facet: str | None = None
    log_x: bool = False
    room: int = CURVES
    apart: str | None = None

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the quantities over the steps, and the number of instances by status."""
        return {
            self.name: over_steps(frames, self.quantities, self.statistic),
            f"{self.name}_counts": outcomes(frames.trials, frames.axes),
        }

    def draw(
        self, tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
    ) -> list[Drawing]:
        """Return one figure, or several if there are too many curves."""
        panels = [self.facet] if self.facet else []
        if self.apart:
            panels += axes.besides(*panels, self.apart)
        return drawings(
            self.name, tables, axes, remarks, self._figure, caption=self.caption,
            panels=panels, room=self.room, cells=f"{self.name}_counts",
        )  # fmt: skip

    def _figure(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
        fig = panels(
            tables[self.name],
            axes,
            self.quantities,
            "step",
            "step",
            facet=self.facet,
            statistic=self.statistic,
            log_x=self.log_x,
            quartiles=self.statistic == "mean",
        )
        used = "Correlations: saturated instances whose SVM is certified; the rest: all trained."
        counted = status_counts(tables[f"{self.name}_counts"], axes)
        style.note(fig, [f"{STATISTICS[self.statistic]} {used}", counted, *remarks])
        return fig


def over_steps(
    frames: SweepFrames, quantities: Sequence[str], statistic: statistics.Statistic = "mean"
) -> pd.DataFrame:
    """Return mean, median, quartiles and interval of each quantity per cell and step.

    Correlations are over the certified instances, softmax and norms over all trained ones.
    """
    by = frames.axes.besides()
    parts = []
    for statuses, of_correlation in ((CERTIFIED, True), (TRAINED, False)):
        chosen = [q for q in quantities if q.startswith(OF_SVM) == of_correlation]
        trials = frames.trials[frames.trials["status"].isin(statuses)]
        history = history_of(frames, trials, by)
        history = history[history["quantity"].isin(chosen)]
        if len(history):
            parts.append(
                statistics.summaries(history, [*by, "quantity", "step"], "value", statistic)
            )
    columns = [*by, "quantity", "step", "used", "mean"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def at_the_end(
    frames: SweepFrames,
    quantities: Sequence[str],
    x: str,
    statistic: statistics.Statistic = "median",
) -> pd.DataFrame:
    """Return the statistics of each quantity per cell at the last step, of certified instances.

    The key `x` is a column even if it takes a single value.
    """
    by = [*frames.axes.besides(x), x]
    certified = frames.trials[frames.trials["status"].isin(CERTIFIED)]
    long = certified.melt(by, [q for q in quantities if q in certified], "quantity", "value")
    return statistics.summaries(long, [*by, "quantity"], "value", statistic)


def panels(
    table: pd.DataFrame,
    axes: CellAxes,
    quantities: Sequence[str],
    x: str,
    x_label: str,
    *,
    facet: str | None = None,
    statistic: str = "mean",
    log_x: bool = False,
    quartiles: bool = False,
) -> Figure:
    """Return a grid of panels: a column for each quantity, a row for each value of `facet`.

    A panel has one curve for each combination of the other axes.
    """
    shown = [q for q in quantities if (table["quantity"] == q).any()]
    rows = list(axes.split(table, [facet] if facet in axes.names else []))
    keys = axes.besides(facet or "", x)
    names = [name for name, _ in axes.split(table, keys)]
    columns = max(len(shown), 1)
    width = max(
        3.1 * columns + 1.9, 2.2 * columns + style.legend_width([name[:LONGEST] for name in names])
    )
    fig = style.figure(width, 2.75 * len(rows) + 0.45)
    grid = fig.subplots(len(rows), columns, squeeze=False, sharex=True, sharey="col")
    for line, (row_name, part) in zip(grid, rows, strict=True):
        for ax, quantity in zip(line, shown, strict=False):
            values = part[part["quantity"] == quantity]
            curves = list(axes.split(values, keys)) if len(values) else []
            _curves(ax, curves, names, x, statistic, quartiles)
        style.heading(line[0], style.wrapped(row_name))
    for line in grid:  # after all curves, because panels share axes
        for ax, quantity in zip(line, shown, strict=False):
            _axes(ax, quantity, log_x, table[x])
    for ax in grid[-1]:
        ax.set_xlabel(x_label)
    if not shown:
        style.empty(grid[0, 0], "no certified instance")
    if len(names) > 1:
        style.legend(grid[0, -1], grid.flat)
    return fig


def _curves(
    ax: Axes,
    curves: list[tuple[str, pd.DataFrame]],
    names: list[str],
    x: str,
    statistic: str,
    quartiles: bool,
) -> None:
    colours, markers = style.colours(names), style.markers(names)
    for name, curve in curves:
        rows = curve[curve["used"] > 0].sort_values(x)
        if quartiles:
            style.band(ax, rows[x], rows["q25"], rows["q75"], colours[name], alpha=0.09)
        style.band(ax, rows[x], rows["low"], rows["high"], colours[name])
        ax.plot(
            rows[x],
            rows[statistic],
            color=colours[name],
            marker=markers[name],
            markevery=max(len(rows) // 8, 1),
            label=style.plain(name, limit=LONGEST),
        )


def _axes(ax: Axes, quantity: str, log_x: bool, x: pd.Series[float]) -> None:
    ax.set_ylabel(AXES[quantity])
    if quantity.startswith((*OF_SVM, "balance")) or quantity == "W_norm":
        style.log_axis(ax.yaxis)
    if quantity == "max_softmax":
        ax.set_ylim(top=1.02)
    if log_x and (x > 0).any():
        if (x == 0).any():
            style.log_axis_from_zero(ax, x)
        else:
            ax.set_xscale("log")
