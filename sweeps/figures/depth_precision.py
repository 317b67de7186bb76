"""The layers of a network with the ordinary gradient beside the exact one."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..facets import facets, named
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._layers import PANELS, keys_of, over_steps
from ._numbers import outcomes

X = ("gradient", "layers", "layer")
LOOKS: dict[str, dict[str, Any]] = {
    "ordinary gradient": {"color": "#D55E00", "linestyle": (0, (4, 1.6))},
    "exact gradient": {"color": "#0072B2", "linestyle": "-"},
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


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    curves = tables["depth_precision"].sort_values(["layers", "layer"])
    layers, layer = (curves[name].astype(str) for name in ("layers", "layer"))
    curves = curves.assign(
        curve=named(curves["gradient"], NAMES), column="layer " + layer + " of " + layers
    )
    return facets(
        curves[curves["step"] > 0], "step", "median", hue="curve", row="quantity", col="column",
        panels=PANELS, looks=LOOKS, x_label="step", log_x=True, size=(2.1, 2.2),
        nothing="no certified row",
    )[0]  # fmt: skip


draw = Pages("depth_precision", CAPTION, _figure, NOTE, x=X).draw
