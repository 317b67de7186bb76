"""Regularisation paths: the limit of minimisers in growing balls (paper, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes
from . import SELECTED, UNTYPED, Drawing, _curves, history_of, outcomes, status_counts
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

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
    certified = frames.trials[frames.trials["status"] == "ok"]
    history = history_of(frames, certified, by)
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


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure, or several if there are too many curves."""
    return drawings(
        "regularization_path", tables, axes, remarks, _figure, caption=CAPTION,
        room=_curves.CURVES, cells="regularization_path_counts",
    )  # fmt: skip


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    """Return a panel per SVM, with a curve per cell."""
    fig = _curves.panels(
        tables["regularization_path"], axes, QUANTITIES, "radius", "radius $R$",
        statistic="median", log_x=True, quartiles=True,
    )  # fmt: skip
    selected = _selected(tables["regularization_path_optimal"], axes)
    counted = status_counts(tables["regularization_path_counts"], axes)
    style.note(fig, [NOTE, selected, counted, *remarks])
    return fig


def _selected(shares: pd.DataFrame, axes: CellAxes) -> str:
    """Return how many paths end at the optimal tokens, with Wilson's interval."""
    told = [
        f"{row['count']} of {row['used']} "
        f"[{100 * row['low']:.0f}, {100 * row['high']:.0f} %] {name}"
        for name, part in axes.split(shares, axes.besides())
        for _, row in part.iterrows()
    ]
    return f"The path selects the optimal tokens: {'; '.join(text.strip() for text in told)}."
