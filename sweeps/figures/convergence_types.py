"""Where training ends: at the optimal, at locally optimal or at other tokens (section 4)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .. import notation, statistics, style
from ..facets import bars, labels, values_of
from . import MOST_PANELS, CellAxes, Drawing, Figure, Pages, SweepFrames, Tables
from ._numbers import ended, outcomes


@dataclass(frozen=True)
class Bars:
    """The figure `name`: bars over the axis `x`, a panel for each combination of the others."""

    name: str
    x: str

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the share of every type of convergence, and of Assumption B.1, in each cell."""
        trials = frames.trials.assign(ended=ended(frames.trials))
        by = [*frames.axes.besides(self.x), self.x]
        kinds = [*style.CONVERGENCE, *sorted(set(trials["ended"]) - set(style.CONVERGENCE))]
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
        return Pages(
            self.name, self._figure, self._notes, x=[self.x], panels=("parameterization",),
            room=MOST_PANELS,
        ).draw(tables, axes, remarks)  # fmt: skip

    def _figure(self, tables: Tables, axes: CellAxes) -> Figure:
        table = tables["convergence_types"]
        table = table.assign(
            at=labels(axes, table, [self.x], short=True),
            column=labels(axes, table, axes.besides(self.x)),
        )
        kinds = table[table["kind"] != "assumption_b1"]
        looks = {kind: style.KINDS.get(kind, style.OTHER_KIND) for kind in kinds["kind"].unique()}
        looks |= {kind: style.KINDS[kind] | {"always": True} for kind in style.CONVERGENCE[:3]}
        several = "column" if axes.besides(self.x) else ""
        fig, grid = bars(kinds, "at", "kind", looks, col=several, x_label=notation.column(self.x))
        for ax, column in zip(grid, values_of(table, several), strict=True):
            best = kinds[(kinds["kind"] == "global") & (kinds["column"] == (column or ""))]
            best = best.set_index("at").reindex(kinds["at"].cat.categories)
            ax.vlines(np.arange(len(best)) + 0.32, best["low"], best["high"], color="black", lw=0.8)
        return fig

    def _notes(self, tables: Tables, axes: CellAxes) -> list[str]:
        """Return what is drawn, and on how many instances Assumption B.1 holds."""
        table = tables["convergence_types"]
        b1 = table[table["kind"] == "assumption_b1"]
        holds = f"Assumption B.1 holds on {b1['count'].sum()} of {b1['used'].sum()} instances."
        return [holds if b1["used"].sum() else "Assumption B.1 was not examined."]


SWEEPS = {
    "convergence_types": Bars("convergence_types", "d"),
    "convergence_types_m": Bars("convergence_types_m", "m"),
}
