"""The layers of a network with the ordinary gradient beside the exact one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure

from .. import style
from ..cells import CellAxes
from . import Drawing, outcomes, status_counts
from ._layers import NEAR, QUANTITIES, keys_of, over_steps
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

X = ("gradient", "layers", "layer")
LOOKS: dict[str, dict[str, Any]] = {
    "direct": {"color": "#D55E00", "linestyle": (0, (4, 1.6))},
    "log_domain": {"color": "#0072B2", "linestyle": "-"},
}
NAMES = {"direct": "ordinary gradient", "log_domain": "exact gradient"}
CAPTION = (
    "Median 1-correlation of every layer with the SVM of its own input, and its margin gap, over "
    "the steps: with the ordinary gradient, and with the exact one."
)
NOTE = (
    "Curves: median of the saturated rows whose SVM is certified, band: its 95 % bootstrap "
    "interval. Each gradient has the SVMs of the tokens that it selects. Dotted: 1e-3."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the medians over the steps, and the counts by status and end of training."""
    return {
        "depth_precision": over_steps(frames, keys_of(frames, *X)),
        "depth_precision_counts": outcomes(frames.trials, frames.axes),
    }


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure for each combination of the other axes."""
    return drawings(
        "depth_precision", tables, axes, remarks, _figure, caption=CAPTION, x=X,
        cells="depth_precision_counts",
    )  # fmt: skip


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    curves = tables["depth_precision"]
    columns = list(curves.groupby(["layers", "layer"]))
    fig = style.figure(2.1 * max(len(columns), 1) + 2.0, 5.2)
    grid = fig.subplots(2, max(len(columns), 1), squeeze=False, sharex=True, sharey="row")
    for place, ((layers, layer), cells) in enumerate(columns):
        style.heading(grid[0, place], f"layer {layer} of {layers}")
        grid[1, place].set_xlabel("step")
        for ax, quantity in zip(grid[:, place], QUANTITIES, strict=True):
            for gradient, look in LOOKS.items():
                here = (cells["gradient"] == gradient) & (cells["quantity"] == quantity)
                rows = cells[here & (cells["used"] > 0) & (cells["step"] > 0)].sort_values("step")
                style.band(ax, rows["step"], rows["low"], rows["high"], look["color"])
                label = NAMES[gradient] if len(rows) else None
                ax.plot(rows["step"], rows["median"], label=label, **look)
    for row, (quantity, label) in zip(grid, QUANTITIES.items(), strict=True):
        row[0].set_ylabel(label)
        for ax in row:
            style.log_axis(ax.yaxis)
            style.log_axis(ax.xaxis)
            if quantity == "correlation":
                ax.axhline(NEAR, color=style.FAINT, linestyle=":", linewidth=0.9)
    if not columns:
        style.empty(grid[0, 0], "no certified row")
    style.legend(grid[0, -1], grid.flat)
    counted = status_counts(tables["depth_precision_counts"], axes)
    style.note(fig, [NOTE, counted, *remarks])
    return fig
