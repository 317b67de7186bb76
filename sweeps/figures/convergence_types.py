"""Where training ends: at the optimal, at locally optimal or at other tokens (section 4)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .. import notation, statistics, style
from ..cells import rows_of
from ..facets import bars, labels, values_of
from . import MOST_PANELS, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import outcome_shares, outcomes


@dataclass(frozen=True)
class Types:
    """The figure `name`: bars over the axis `x`, a panel for each combination of the others."""

    name: str
    x: str

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the share of every type of convergence, and of Assumption B.1, in each cell."""
        trials, by = frames.rows, [*frames.cells.besides(self.x), self.x]
        b1 = statistics.shares(trials, by, "assumption_b1").assign(kind="assumption_b1")
        return {
            "convergence_types": pd.concat([outcome_shares(trials, by), b1], ignore_index=True),
            "convergence_types_counts": outcomes(trials, frames.cells),
        }

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return one figure, or several if there are too many panels."""
        return paged(
            {self.name: self.figure},
            tables,
            axes,
            remarks,
            notes=self.notes,
            inner=[self.x],
            panels=["parameterization"],
            room=MOST_PANELS,
        )

    def figure(self, tables: Tables, axes: CellAxes) -> Figure:
        """Return bars, with the interval of the share `global` beside each."""
        table = tables["convergence_types"]
        at = labels(axes, table, [self.x], short=True)
        table = table.assign(at=at, col=labels(axes, table, axes.besides(self.x)))
        kinds, label = table[table["kind"] != "assumption_b1"], notation.column(self.x)
        fig = bars(kinds, "at", "kind", style.FILLS["kinds"], x_label=label)
        for ax, column in zip(fig.axes, values_of(table, "col"), strict=True):
            best = rows_of(kinds, {"kind": "global", "col": column}).set_index("at")
            best = best.reindex(at.cat.categories)
            ax.vlines(np.arange(len(best)) + 0.32, best["low"], best["high"], "black", lw=0.8)
        return fig

    def notes(self, tables: Tables, axes: CellAxes) -> list[str]:
        """Return on how many instances Assumption B.1 holds."""
        b1 = rows_of(tables["convergence_types"], {"kind": "assumption_b1"})
        holds = f"Assumption B.1 holds on {b1['count'].sum()} of {b1['used'].sum()} instances."
        return [holds if b1["used"].sum() else "Assumption B.1 was not examined."]
