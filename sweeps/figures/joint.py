"""Attention alone, or trained with values, MLPs and head: each layer against its SVM at the end."""

from __future__ import annotations

from typing import Any

import pandas as pd

from .. import statistics
from ..facets import named
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._layers import (
    RULES,
    cause_counts,
    keys_of,
    over_steps,
    over_steps_and_causes,
    with_layers,
)
from ._numbers import outcomes

X = ("parameterization", "layer", "trained")
LOOKS: dict[str, dict[str, Any]] = {
    "attention": {"color": "#4d4d4d", "linestyle": "-"},
    "values": {"color": "#0072B2", "linestyle": (0, (4, 1.6))},
    "mlp": {"color": "#009E73", "linestyle": (0, (1, 1.4))},
    "head": {"color": "#CC79A7", "linestyle": (0, (4, 1.2, 1, 1.2))},
    "all": {"color": "#D55E00", "linestyle": "-"},
}
CAPTION = (
    "Median 1-correlation of every layer with the SVM of its own input at the end of training, and "
    "its margin gap, over the steps: attention is trained alone, or with values, MLPs, prediction "
    "head, or all of them. Below: how the layers ended."
)
NOTE = (
    "Curves: median of the saturated rows whose SVM is certified, band: its 95 % bootstrap "
    "interval. The SVM is that of the input and the selected tokens at the last step. A row is one "
    "layer of one instance. Not aligned: the curves say whether it comes nearer. Dotted: 1e-3."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return medians over the steps, how rows ended, since when tokens stay, and the counts."""
    keys = keys_of(frames, *X)
    trials = with_layers(frames.trials)
    ended = trials[trials["training"] != "diverged"]
    return {
        "joint": over_steps(frames, keys),
        "joint_causes": cause_counts(frames, keys),
        "joint_selection": statistics.summaries(ended, keys, "selected_since", "median"),
        "joint_counts": outcomes(frames.trials, frames.axes),
    }


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    curves, causes = (_with_names(tables[name]) for name in ("joint", "joint_causes"))
    return over_steps_and_causes(
        curves, causes, LOOKS, "trained with attention", (2.6, 2.4), "trained",
        rotation=40, ha="right",
    )  # fmt: skip


def _with_names(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the names of its columns of panels, curves and bars."""
    rule = named(table["parameterization"], RULES)
    table = table.assign(rule=rule).sort_values(["rule", "layer"])
    column = table["rule"].astype(str) + ", layer " + table["layer"].astype(str)
    trained = named(table["trained"], dict(zip(LOOKS, LOOKS, strict=True)))
    columns = {name: name for name in column}
    return table.assign(column=named(column, columns), curve=trained, bar=trained)


draw = Pages("joint", CAPTION, _figure, NOTE, x=X).draw
