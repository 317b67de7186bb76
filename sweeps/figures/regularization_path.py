"""Regularisation paths: the limit of minimisers in growing balls (paper, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from sweeps import statistics, style
from sweeps.cells import split, varying
from sweeps.figures import SELECTED, UNTYPED, Drawing, _curves, history_of, outcomes, status_counts

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

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
    """Return correlations per radius, the share of optimal tokens, and counts by status.

    The share is over the paths whose tokens have a type of convergence.
    """
    certified = frames.trials[frames.trials["status"] == "ok"]
    history = history_of(frames, certified)
    history = history.rename(columns={"step": "radius"})  # a step of a path is a radius
    history = history[history["quantity"].isin(QUANTITIES) & (history["radius"] > 0)]
    by = varying(frames.trials)
    typed = frames.trials["convergence"].isin(SELECTED)
    typed &= ~frames.trials["status"].isin(UNTYPED)
    optimal = (frames.trials["convergence"] == "global").where(typed)
    selected = statistics.shares(frames.trials.assign(optimal=optimal), by or ["d"], "optimal")
    return {
        "regularization_path": statistics.summaries(
            history, [*by, "quantity", "radius"], "value", "median"
        ),
        "regularization_path_optimal": selected,
        "regularization_path_counts": outcomes(frames.trials),
    }


def draw(tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return one figure: a panel per SVM, a curve per parameterization."""
    table = tables["regularization_path"]
    fig = _curves.panels(
        table, QUANTITIES, "radius", "radius $R$", statistic="median", log_x=True, quartiles=True
    )
    selected = _selected(tables["regularization_path_optimal"])
    style.note(fig, [NOTE, selected, status_counts(tables["regularization_path_counts"]), *remarks])
    return [Drawing("regularization_path", fig, CAPTION)]


def _selected(shares: pd.DataFrame) -> str:
    """Return how many paths end at the optimal tokens, with Wilson's interval."""
    told = [
        f"{row['count']} of {row['used']} "
        f"[{100 * row['low']:.0f}, {100 * row['high']:.0f} %] {name}"
        for name, part in split(shares, varying(shares))
        for _, row in part.iterrows()
    ]
    return f"The path selects the optimal tokens: {'; '.join(text.strip() for text in told)}."
