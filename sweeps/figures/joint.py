"""Attention alone, or trained with values, MLPs and head: each layer against its SVM at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes
from . import Drawing, outcomes, status_counts
from ._layers import (
    RULES,
    Column,
    cause_counts,
    columns_of_panels,
    keys_of,
    over_steps,
    with_layers,
)
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

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


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure for each combination of the other axes."""
    return drawings(
        "joint", tables, axes, remarks, _figure, caption=CAPTION, x=X, cells="joint_causes"
    )


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    causes, curves = tables["joint_causes"], tables["joint"]
    groups = list(causes.groupby(["parameterization", "layer"], sort=False))
    groups.sort(key=lambda one: (one[0][0] != "w", one[0][1]))
    columns = [
        Column(
            f"{RULES.get(str(rule), rule)}, layer {layer}",
            curves[(curves["parameterization"] == rule) & (curves["layer"] == layer)],
            [(name, part) for name in LOOKS if len(part := cells[cells["trained"] == name])],
        )
        for (rule, layer), cells in groups
    ]
    fig = columns_of_panels(
        columns, _curves, "trained with attention", (2.6, 7.4), "trained", rotation=40, ha="right"
    )
    style.note(fig, [NOTE, status_counts(tables["joint_counts"], axes), *remarks])
    return fig


def _curves(ax: Axes, curves: pd.DataFrame) -> None:
    for name, look in LOOKS.items():
        rows = curves[(curves["trained"] == name) & (curves["used"] > 0) & (curves["step"] > 0)]
        rows = rows.sort_values("step")
        if len(rows):
            style.band(ax, rows["step"], rows["low"], rows["high"], look["color"], alpha=0.1)
            ax.plot(rows["step"], rows["median"], label=name, **look)
