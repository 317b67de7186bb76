"""The low-rank bias of (K, Q) versus the weight of the ridge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from .. import style
from ..cells import CellAxes
from . import Drawing, _curves, outcomes, status_counts
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

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
        "ridge_vs_path": _curves.at_the_end(frames, QUANTITIES, "ridge"),
        "ridge_vs_path_counts": outcomes(frames.trials, frames.axes),
    }


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure, or several if there are too many curves."""
    return drawings(
        "ridge_vs_path", tables, axes, remarks, _figure, caption=CAPTION, x=("ridge",),
        panels=("gradient",), room=_curves.CURVES, cells="ridge_vs_path_counts",
    )  # fmt: skip


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    fig = _curves.panels(
        tables["ridge_vs_path"], axes, QUANTITIES, "ridge",
        "ridge (weight of $\\|K\\|^2+\\|Q\\|^2$)", statistic="median", log_x=True,
    )  # fmt: skip
    style.note(fig, [NOTE, status_counts(tables["ridge_vs_path_counts"], axes), *remarks])
    return fig
