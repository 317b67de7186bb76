"""Where training ends: at the optimal, at locally optimal or at other tokens (section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from .. import statistics, style
from ..facets import labels, stacked
from . import CellAxes, Drawing, Figure, Pages, SweepFrames, Tables
from ._numbers import ended, outcomes

PANELS = 6
"""Largest number of panels of a figure."""
TYPES = style.CONVERGENCE
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
        trials = frames.trials.assign(ended=ended(frames.trials))
        by = [*frames.axes.besides(self.x), self.x]
        kinds = [*TYPES, *sorted(set(trials["ended"]) - set(TYPES))]
        flags = {kind: trials["ended"] == kind for kind in kinds}
        flags["assumption_b1"] = trials.get("assumption_b1", pd.Series(pd.NA, index=trials.index))
        parts = [
            statistics.shares(trials.assign(flag=flag), by, "flag").assign(kind=kind)
            for kind, flag in flags.items()
        ]
        return {
            "convergence_types": pd.concat(parts, ignore_index=True),
            "convergence_types_counts": outcomes(trials, frames.axes),
        }

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return one figure, or several if there are too many panels."""
        counts = "convergence_types_counts"
        pages = Pages(
            self.name, CAPTION, self._figure, NOTE, counts, (self.x,), ("parameterization",), PANELS
        )
        return pages.draw(tables, axes, remarks)

    def _figure(self, tables: Tables, axes: CellAxes) -> Figure:
        table = tables["convergence_types"]
        table = table.assign(at=labels(axes, table, [self.x], short=True))
        panels = list(axes.split(table, axes.besides(self.x)))
        fig = style.figure(3.7 * len(panels) + 1.7, 4.6)
        row, strips = fig.subplots(
            2, len(panels), squeeze=False, sharex="col", sharey="row", height_ratios=(4, 1)
        )
        for ax, strip, (name, part) in zip(row, strips, panels, strict=True):
            of_b1 = part["kind"] == "assumption_b1"
            _bars(ax, part[~of_b1])
            _b1(strip, part[of_b1])
            strip.set_xlabel(self.x_label)
            style.heading(ax, style.wrapped(name))
        row[0].set_ylabel("share of instances")
        strips[0].set_ylabel("meets B.1")
        style.legend(row[-1], row, reverse=True, handlelength=1.3)
        return fig


SWEEPS = {
    "convergence_types": Bars("convergence_types", "d", "token dimension $d$"),
    "convergence_types_m": Bars("convergence_types_m", "m", "columns $m$ of $K$ and $Q$"),
}


def _bars(ax: Axes, kinds: pd.DataFrame) -> None:
    looks = {kind: style.KINDS.get(kind, style.OTHER_KIND) for kind in kinds["kind"].unique()}
    looks |= {kind: style.KINDS[kind] | {"always": True} for kind in TYPES[:3]}
    stacked(ax, kinds, "at", "kind", looks, least=0.05)
    best = kinds[kinds["kind"] == "global"].set_index("at").reindex(kinds["at"].cat.categories)
    right = [place + 0.32 for place in range(len(best))]
    ax.vlines(right, best["low"], best["high"], color="black", linewidth=0.8)
    style.share_axis(ax, "")
    ax.set_ylim(-0.02, 1.0)


def _b1(ax: Axes, table: pd.DataFrame) -> None:
    names = table["at"].cat.categories
    b1 = table[table["used"] > 0].set_index("at").reindex(names)
    at = range(len(names))
    ax.vlines(at, b1["low"], b1["high"], color=style.FAINT, linewidth=4)
    ax.plot(at, b1["share"], "o", color="black", markersize=5)
    ax.set_xticks(at, names)
    style.share_axis(ax, "")
    ax.set_ylim(-0.12, 1.12)
    if not b1["used"].gt(0).any():
        style.empty(ax, "unknown")
