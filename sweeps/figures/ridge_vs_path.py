"""The low-rank bias of (K, Q) versus the weight of the ridge."""

from __future__ import annotations

import pandas as pd

from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._curves import CURVES, at_the_end, curves
from ._numbers import outcomes

QUANTITIES = ("one_minus_corr_nuclear", "one_minus_corr_frobenius")
NOTE = (
    "Lines: median over saturated instances with certified SVMs; band: its 95 % bootstrap interval."
)
CAPTION = (
    "Median 1-correlation of K Q^T with the nuclear norm and the Frobenius norm SVM at the last "
    "step, versus the weight of the ridge, 0 included."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the correlations at the last step per ridge, and counts of instances by status."""
    return {
        "ridge_vs_path": at_the_end(frames, QUANTITIES, "ridge"),
        "ridge_vs_path_counts": outcomes(frames.trials, frames.axes),
    }


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    label = "ridge (weight of $\\|K\\|^2+\\|Q\\|^2$)"
    return curves(tables["ridge_vs_path"], axes, QUANTITIES, "ridge", "median", x_label=label)


draw = Pages(
    "ridge_vs_path", CAPTION, _figure, NOTE, x=("ridge",), panels=("gradient",), room=CURVES
).draw
