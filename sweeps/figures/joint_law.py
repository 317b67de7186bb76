"""W trained with a linear head: its distance from three weighted SVMs, over the steps."""

import pandas as pd

from .. import notation, statistics
from ..facets import Panel, facets, named
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._numbers import certified, history_of, joined, outcomes

SIZES = ("n", "T", "d")

CURVES = notation.MEASURED["joint_law"]
PREDICTED = "one_minus_corr_law_predicted"
"""In the table beside these curves; as a curve it would lie in that of the law."""

RATES = {0.1: r"$\eta_v = \eta_W / 10$", 1.0: r"$\eta_v = \eta_W$", 10.0: r"$\eta_v = 10\,\eta_W$"}
NEAR, UNEQUAL = 1e-3, 1.01
"""1-correlation of an instance that counts as there; least ratio of unequal margins of v."""


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return medians over the steps, pooled over sizes, and the share of each cell within `NEAR`.

    The medians are over the instances whose margins gamma differ: else all curves are one.
    """
    ends, by = certified(frames), [*frames.axes.besides(*SIZES, "v_rate"), "v_rate"]
    unequal = ends[ends["gamma_most"] > UNEQUAL * ends["gamma_least"]]
    history = history_of(frames, unequal, by)
    history = history[history["quantity"].isin(CURVES)]
    cells = frames.axes.names
    near = (
        statistics.shares(ends.assign(near=ends[name] <= NEAR), cells, "near").assign(quantity=name)
        for name in (*CURVES, PREDICTED)
    )
    return {
        "joint_law": statistics.summaries(history, [*by, "quantity", "step"], "value", "median"),
        "joint_law_near": joined(near, [*cells, "quantity"]),
        "joint_law_counts": outcomes(frames.trials, frames.axes),
    }


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel for each size of the head's steps."""
    table = tables["joint_law"]
    table = table.assign(
        curve=named(table["quantity"], CURVES), column=named(table["v_rate"], RATES)
    )
    return facets(
        table, "step", "median", hue="curve", col="column", log_x=True,
        panels=Panel(notation.DISTANCE(r"\cdot"), "log", line=NEAR),
        x_label=notation.column("step"),
    )[0]  # fmt: skip


draw = Pages("joint_law", _figure, x=(*SIZES, "v_rate")).draw
