"""Regularisation paths: the limit of minimisers in growing balls (paper, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from sweeps import statistics, style
from sweeps.figures import Drawing, _curves, fates, history_of, outcomes, varying

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

QUESTION = (
    "Do the minimisers in a ball of radius R align with the SVM solutions as R grows: W_R with "
    "W_mm, and K_R Q_R^T with W_star_mm?"
)
QUANTITIES = ("one_minus_corr_w_mm", "one_minus_corr_w_star_mm")
NOTE = (
    "Lines: median over saturated instances with certified SVMs; dark band: its 95 % bootstrap "
    "interval; light band: quartiles. The SVM is that of the tokens that the path selects."
)
CAPTION = (
    "Median 1-correlation of the regularisation path with the Frobenius and the nuclear norm SVM "
    "of the tokens that it selects, versus the radius R of the ball, for W (Frobenius norm) and "
    "for (K, Q) (half the sum of squared Frobenius norms)."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the correlations per radius, and what became of all instances."""
    settled = frames.trials[frames.trials["status"] == "ok"]
    history = history_of(frames, settled)
    history = history.rename(columns={"step": "radius"})  # a path has radii for steps
    history = history[history["quantity"].isin(QUANTITIES) & (history["radius"] > 0)]
    by = [*varying(frames.trials), "quantity", "radius"]
    return {
        "regularization_path": statistics.summaries(history, by, "value", "median"),
        "regularization_path_counts": outcomes(frames.trials),
    }


def draw(tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return one figure: a panel per SVM, a curve per parameterization."""
    table = tables["regularization_path"]
    fig = _curves.panels(
        table, QUANTITIES, "radius", "radius $R$", statistic="median", log_x=True, quartiles=True
    )
    style.note(fig, [NOTE, fates(tables["regularization_path_counts"]), *remarks])
    return [Drawing("regularization_path", fig, CAPTION)]
