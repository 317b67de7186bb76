"""What the readout sees of the input as a network gets deeper, and the rank of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes
from . import Drawing, outcomes, status_counts
from ._layers import NORMS, keys_of, own, with_layers
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

X = ("parameterization", "layers", "layer")
RULES = {"w": "W", "kq": "(K, Q)"}
MEASURES = {
    "positions_seen": "positions seen\nby the readout",
    "rank_stable": "stable rank of\nthe trained weights",
    "svm_rank": "rank of the SVM",
}
CAPTION = (
    "Mean number of positions at the input of each layer that the readout sees, stable rank of its "
    "weights, and certified rank of the SVM of its input (least Frobenius norm for W, nuclear "
    "norm for (K, Q)), for networks of several depths."
)
NOTE = (
    "Points: mean over the rows with status ok (one for each layer of an instance), bar: its 95 % "
    "bootstrap interval. Layer 0 reads the tokens; the readout is at one position of each sequence."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the means of each measure by layer, and the counts by status."""
    trials = with_layers(frames.trials)
    trials = trials[trials["status"] == "ok"]
    ranks = {rule: f"{norm}_rank" for rule, norm in NORMS.items()}
    trials = trials.assign(svm_rank=own(trials, ranks))
    keys = keys_of(frames, *X)
    parts = [statistics.summaries(trials, keys, name).assign(measure=name) for name in MEASURES]
    return {
        "composition": pd.concat(parts, ignore_index=True),
        "composition_counts": outcomes(frames.trials, frames.axes),
    }


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure for each combination of the other axes."""
    return drawings(
        "composition", tables, axes, remarks, _figure, caption=CAPTION, x=X,
        cells="composition_counts",
    )  # fmt: skip


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    table = tables["composition"]
    columns = [rule for rule in RULES if (table["parameterization"] == rule).any()] or ["w"]
    depths = sorted(table["layers"].unique())
    colours, markers = style.colours(depths), style.markers(depths)
    fig = style.figure(3.1 * len(columns) + 1.6, 6.4)
    grid = fig.subplots(3, len(columns), squeeze=False, sharex=True, sharey="row")
    for place, rule in enumerate(columns):
        style.heading(grid[0, place], RULES[rule])
        grid[2, place].set_xlabel("layer")
        style.ticks_at(grid[2, place], table["layer"])
        for ax, measure in zip(grid[:, place], MEASURES, strict=True):
            here = table[(table["parameterization"] == rule) & (table["measure"] == measure)]
            for shift, (depth, rows) in enumerate(here.groupby("layers")):
                rows = rows[rows["used"] > 0].sort_values("layer")
                x = rows["layer"] + 0.06 * (shift - (len(depths) - 1) / 2)
                ends = [rows["mean"] - rows["low"], rows["high"] - rows["mean"]]
                look = {"color": colours[depth], "marker": markers[depth]}
                ax.errorbar(
                    x,
                    rows["mean"],
                    ends,
                    label="1 layer" if depth == 1 else f"{depth} layers",
                    capsize=2,
                    **look,
                )
            if here["used"].sum() == 0:
                style.empty(ax, "no certified row")
    for row, label in zip(grid, MEASURES.values(), strict=True):
        row[0].set_ylabel(label)
        row[0].set_ylim(bottom=0)
    style.legend(grid[0, -1], grid.flat)
    counted = status_counts(tables["composition_counts"], axes)
    style.note(fig, [NOTE, counted, *remarks])
    return fig
