"""Where training ends: at the optimal, at locally optimal or at other tokens (section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes, number
from . import UNTYPED, Drawing, outcomes, status_counts
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

PANELS = 6
"""Largest number of panels of a figure."""
TYPES = tuple(style.CONVERGENCE_COLOURS)
NOTE = (
    "Bars: all instances; numbers: counts of 5 % and more. Below: share of instances that satisfy "
    "Assumption B.1 (every token is a support vector at the optimal tokens). Whiskers: 95 % Wilson "
    "intervals, in the bars of the share `global`."
)
CAPTION = (
    "How training ended, the first that applies: unsaturated (some largest softmax below the "
    "threshold), infeasible (the SVM of the selected tokens has no solution), global "
    "(the optimal tokens), unknown (no SVM in the norm of what is trained), local (every neighbour "
    "scores less), not local, unsettled (not local, but the direction still changes). Neighbours "
    "are the support vectors of the SVM in the norm of what is trained: Frobenius for W, nuclear "
    "for (K, Q), with rank at most m if m < d; undecided where that SVM is not proved."
)


@dataclass(frozen=True)
class Bars:
    """The figure `name`: bars over the axis `x`, a panel for each combination of the others."""

    name: str
    x: str
    x_label: str

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the share of every type of convergence, and of Assumption B.1, in each cell."""
        trials = frames.trials.assign(ended=_ended(frames.trials))
        by = [*frames.axes.besides(self.x), self.x]
        kinds = [*TYPES, *sorted(set(trials["ended"]) - set(TYPES))]
        parts = [
            statistics.shares(trials.assign(flag=trials["ended"] == kind), by, "flag").assign(
                kind=kind
            )
            for kind in kinds
        ]
        b1 = statistics.shares(trials, by, "assumption_b1").assign(kind="assumption_b1")
        return {
            "convergence_types": pd.concat([*parts, b1], ignore_index=True),
            "convergence_types_counts": outcomes(trials, frames.axes),
        }

    def draw(
        self, tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
    ) -> list[Drawing]:
        """Return one figure, or several if there are too many panels."""
        return drawings(
            self.name, tables, axes, remarks, self._figure, caption=CAPTION, x=(self.x,),
            panels=("parameterization",), room=PANELS, cells="convergence_types",
        )  # fmt: skip

    def _figure(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
        panels = list(axes.split(tables["convergence_types"], axes.besides(self.x)))
        fig = style.figure(3.7 * len(panels) + 1.7, 4.6)
        row, strips = fig.subplots(
            2, len(panels), squeeze=False, sharex="col", sharey="row", height_ratios=(4, 1)
        )
        for ax, strip, (name, part) in zip(row, strips, panels, strict=True):
            part, values = _placed(part, self.x)
            _bars(ax, part, values)
            _b1(strip, part, values)
            strip.set_xlabel(self.x_label)
            style.heading(ax, style.wrapped(name))
        row[0].set_ylabel("share of instances")
        strips[0].set_ylabel("meets B.1")
        style.legend(row[-1], row, reverse=True, handlelength=1.3)
        counted = status_counts(tables["convergence_types_counts"], axes)
        style.note(fig, [NOTE, counted, *remarks])
        return fig


OVER_D = Bars("convergence_types", "d", "token dimension $d$")
OVER_M = Bars("convergence_types_m", "m", "columns $m$ of $K$ and $Q$")
tables, draw = OVER_D.tables, OVER_D.draw


def _ended(trials: pd.DataFrame) -> pd.Series[str]:
    """Return the type of convergence; the status of instances without one."""
    typed = trials["convergence"].isin(TYPES) & ~trials["status"].isin(UNTYPED)
    return trials["convergence"].where(typed, trials["status"])


def _placed(table: pd.DataFrame, x: str) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with the label of x in the column `at`, and the labels in order."""
    at_x = pd.Categorical(table[x]).rename_categories(number)
    table = table.assign(at=pd.Series(at_x, table.index).astype(object).fillna(number(None)))
    return table, [*at_x.categories, *([number(None)] if table[x].isna().any() else [])]


def _bars(ax: Axes, table: pd.DataFrame, values: list[str]) -> None:
    below = np.zeros(len(values))
    palette = style.CONVERGENCE_COLOURS | style.STATUS_COLOURS
    for kind in table["kind"].unique():
        rows = table[table["kind"] == kind].set_index("at").reindex(values)
        if kind == "assumption_b1":
            continue
        if not rows["count"].any() and kind not in TYPES[:3]:
            continue
        share = rows["share"].fillna(0).to_numpy()
        look = style.fill(palette.get(kind, style.FAINT), style.HATCHES.get(kind, ""))
        ax.bar(range(len(values)), share, 0.8, below, label=kind.replace("_", " "), **look)
        for i, (part, count) in enumerate(zip(share, rows["count"], strict=True)):
            if part >= 0.05:
                colour = "white" if kind in style.DARK else "black"
                ax.text(i - 0.2, below[i] + part / 2, f"{count:.0f}", ha="center", va="center",
                        fontsize=7.5, color=colour)  # fmt: skip
        if kind == "global":
            right = np.arange(len(values)) + 0.32
            ax.vlines(right, rows["low"], rows["high"], color="black", linewidth=0.8)
        below += share
    style.share_axis(ax, "")
    ax.set_ylim(-0.02, 1.0)
    ax.grid(False)


def _b1(ax: Axes, table: pd.DataFrame, values: list[str]) -> None:
    b1 = table[(table["kind"] == "assumption_b1") & (table["used"] > 0)].set_index("at")
    b1 = b1.reindex(values)
    at = range(len(values))
    ax.vlines(at, b1["low"], b1["high"], color=style.FAINT, linewidth=4)
    ax.plot(at, b1["share"], "o", color="black", markersize=5)
    ax.set_xticks(at, values)
    style.share_axis(ax, "")
    ax.set_ylim(-0.12, 1.12)
    if not b1["used"].gt(0).any():
        style.empty(ax, "unknown")
