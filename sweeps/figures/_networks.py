"""Networks: each layer against the SVM of its own input, and why a row is no data point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from .. import notation, statistics, style
from ..facets import bars, labels
from . import CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._curves import Curves
from ._numbers import of_own_norm

NEAR, SHARE = notation.PANELS["correlation"]["line"], 0.01
"""1-correlation up to which a layer counts as aligned; gradient of unseen positions above which
they count."""

OF_ONE_LAYER: dict[str, Any] = {
    "layer": 0,
    "attention_head": 0,
    "model.layers": 1,
    "model.heads": 1,
    "model.residual": False,
    "model.trained": "attention",
}
"""What a row of a run without layers has in these columns."""

CAUSES = {"tie": "copies", "unsaturated": "mixing", "infeasible": "infeasible", "ok": "turning"}
"""Status of a row -> why it is no data point."""


def with_layers(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with every column of `OF_ONE_LAYER`."""
    columns = {
        name: table[name].astype(object).where(table[name].notna(), value).astype(type(value))
        if name in table
        else value
        for name, value in OF_ONE_LAYER.items()
    }
    return table.assign(**columns)


def causes(trials: pd.DataFrame) -> "pd.Series[str]":
    """Return how each row ended: aligned with its own SVM, or the first cause why it is not.

    - `copies`: two tokens with the largest attention are equal to the last bit;
    - `mixing`: the attention of a row is not on one token;
    - `infeasible`: no W separates the selected tokens;
    - `unseen`: positions that the readout does not see have a share of the gradient;
    - `turning`: none of these, but the direction has not arrived.
    """
    cause = trials["status"].astype(object).map(CAUSES).fillna("other")
    ok = trials["status"] == "ok"
    unseen = trials.get("unseen_gradient", pd.Series(0.0, index=trials.index)) >= SHARE
    cause[ok & unseen] = "unseen"
    cause[ok & (of_own_norm(trials, "correlation") <= NEAR)] = "aligned"
    return cause


@dataclass(frozen=True)
class Networks(Curves):
    """The correlation of each layer over the steps; NAME_ends, bars of how the rows `ends` ended.

    `since`: there is a table of the step since which the selected tokens are the last ones.
    """

    ends: Sequence[str] = ()
    since: bool = False

    def trials(self, frames: LoadedSweep) -> pd.DataFrame:
        """Return the rows, each with its layer."""
        return with_layers(frames.rows)

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the medians over the steps, how rows ended, and the counts by status."""
        tables, keys = super().tables(frames), self.keys(frames.cells)
        trials = self.trials(frames)
        if self.ends:
            rows = trials.assign(cause=causes(trials), apart=of_own_norm(trials, "correlation"))
            grouped = rows.groupby([*keys, "cause"], dropna=False, observed=True)["apart"]
            table = grouped.agg(count="size", median="median", largest="max").reset_index()
            whole = table.groupby(keys, dropna=False)["count"].transform("sum")
            tables[f"{self.name}_causes"] = table.assign(share=table["count"] / whole)
        if self.since:
            ended = trials[trials["training"] != "diverged"]
            since = statistics.summaries(ended, keys, "selected_since", "median")
            tables[f"{self.name}_selection"] = since
        return tables

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return the curves, and the bars."""
        drawings = super().draw(tables, axes, remarks)
        if self.ends:
            figures = {f"{self.name}_ends": self.bars}
            drawings += paged(figures, tables, axes, remarks, inner=self.inner)
        return drawings

    def bars(self, tables: Tables, axes: CellAxes) -> Figure:
        """Return a panel for each value of `facet`, and a bar for each of `ends`."""
        table = tables[f"{self.name}_causes"].sort_values([*self.ends])
        column = labels(axes, table, [*self.facet])
        bar = labels(axes, table, [*self.ends], short=True)
        return bars(
            table.assign(col=column, bar=bar),
            "bar",
            "cause",
            style.FILLS["causes"],
            x_label=notation.column("_".join(self.ends)),
            y_label="share of the rows",
            least=2.0,
        )
