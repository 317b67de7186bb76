"""Regularisation paths: the limit of minimisers in growing balls (paper, section 3)."""

from __future__ import annotations

import pandas as pd

from .. import statistics
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._curves import CURVES, curves
from ._numbers import SELECTED, UNTYPED, certified, history_of, outcomes

QUANTITIES = ("one_minus_corr_frobenius", "one_minus_corr_nuclear")
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
    by = frames.axes.besides()
    history = history_of(frames, certified(frames), by)
    history = history.rename(columns={"step": "radius"})  # a step of a path is a radius
    history = history[history["quantity"].isin(QUANTITIES) & (history["radius"] > 0)]
    typed = frames.trials["convergence"].isin(SELECTED)
    typed &= ~frames.trials["status"].isin(UNTYPED)
    optimal = (frames.trials["convergence"] == "global").where(typed)
    selected = statistics.shares(frames.trials.assign(optimal=optimal), by, "optimal")
    return {
        "regularization_path": statistics.summaries(
            history, [*by, "quantity", "radius"], "value", "median"
        ),
        "regularization_path_optimal": selected,
        "regularization_path_counts": outcomes(frames.trials, frames.axes),
    }


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    """Return a panel per SVM, with a curve per cell."""
    table = tables["regularization_path"]
    return curves(table, axes, QUANTITIES, "radius", "median", quartiles=True, x_label="radius $R$")


def _notes(tables: Tables, axes: CellAxes) -> list[str]:
    """Return the note, and how many paths end at the optimal tokens, with Wilson's interval."""
    found = [
        f"{row['count']} of {row['used']} "
        f"[{100 * row['low']:.0f}, {100 * row['high']:.0f} %] {name}"
        for name, part in axes.split(tables["regularization_path_optimal"], axes.besides())
        for _, row in part.iterrows()
    ]
    listed = "; ".join(text.strip() for text in found)
    return [NOTE, f"The path selects the optimal tokens: {listed}."]


draw = Pages("regularization_path", CAPTION, _figure, _notes, room=CURVES).draw
