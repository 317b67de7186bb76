"""Several layers: each against the SVM of its own input, over the steps, and why one is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import style
from ..cells import CellAxes
from . import Drawing, outcomes, status_counts
from ._layers import (
    RULES,
    Column,
    cause_counts,
    columns_of_panels,
    keys_of,
    over_steps,
)
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

X = ("parameterization", "residual", "layers", "layer")
STYLES = ("-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (4, 1.2, 1, 1.2)))
"""Lines of networks of 1, 2, 3, ... layers."""

CAPTION = (
    "Median 1-correlation of every layer with the SVM of its own input, and its margin gap, over "
    "the steps: least Frobenius norm for W, least nuclear norm for (K, Q). Below: how the layers "
    "ended. Left to right: W and (K, Q), with and without a residual connection."
)
NOTE = (
    "Curves: median of the saturated rows whose SVM is certified, band: its 95 % bootstrap "
    "interval. A row is one layer of one instance. Unseen positions pull: at least 1 % of the last "
    "gradient comes from positions that the readout does not see. Dotted: 1e-3."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the medians over the steps, how rows ended, and the counts by status."""
    keys = keys_of(frames, *X)
    return {
        "depth": over_steps(frames, keys),
        "depth_causes": cause_counts(frames, keys),
        "depth_counts": outcomes(frames.trials, frames.axes),
    }


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure for each combination of the other axes."""
    return drawings(
        "depth", tables, axes, remarks, _figure, caption=CAPTION, x=X, cells="depth_causes"
    )


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    causes, curves = tables["depth_causes"], tables["depth"]
    groups = list(causes.groupby(["parameterization", "residual"], sort=False))
    groups.sort(key=lambda one: (one[0][0] != "w", not one[0][1]))
    columns = [
        Column(
            f"{RULES.get(str(rule), rule)}, {'residual' if residual else 'no residual'}",
            curves[(curves["parameterization"] == rule) & (curves["residual"] == residual)],
            [(f"{layers}\n{layer}", cell) for (layers, layer), cell in
             cells.groupby(["layers", "layer"])],
        )
        for (rule, residual), cells in groups
    ]  # fmt: skip
    fig = columns_of_panels(columns, _curves, "layers of the network, and layer", (2.9, 7.6))
    style.note(fig, [NOTE, status_counts(tables["depth_counts"], axes), *remarks])
    return fig


def _curves(ax: Axes, curves: pd.DataFrame) -> None:
    for key, rows in curves.groupby(["layers", "layer"]):
        layers, layer = cast(tuple[int, int], key)
        rows = rows[(rows["used"] > 0) & (rows["step"] > 0)].sort_values("step")
        colour = style.PALETTE[layer % len(style.PALETTE)]
        look: Any = {"color": colour, "linestyle": STYLES[(layers - 1) % len(STYLES)]}
        style.band(ax, rows["step"], rows["low"], rows["high"], colour, alpha=0.1)
        label = f"layer {layer} of {layers}"
        ax.plot(rows["step"], rows["median"], label=label, **look)
