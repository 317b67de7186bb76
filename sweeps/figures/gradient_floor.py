"""The floor of gradient descent: rounding noise once the softmax saturates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from sweeps import style
from sweeps.figures import Drawing, _curves, fates, outcomes

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

QUESTION = (
    "Do the published curves flatten because theory says so, or because the gradient is rounding "
    "noise once the softmax is saturated?"
)

QUANTITIES = ("W_norm", "one_minus_corr_w_mm")


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the quantities over the steps, and what became of all instances."""
    return {
        "gradient_floor": _curves.over_steps(frames, QUANTITIES, "median"),
        "gradient_floor_counts": outcomes(frames.trials),
    }


def draw(tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return one figure."""
    fig = _curves.panels(
        tables["gradient_floor"], QUANTITIES, "step", "step", statistic="median", log_x=True
    )
    style.note(fig, [NOTE, fates(tables["gradient_floor_counts"]), *remarks])
    return [Drawing("gradient_floor", fig, CAPTION)]


NOTE = (
    "Lines: median; band: its 95 % bootstrap interval. Correlations: saturated instances whose "
    "SVM is certified."
)
CAPTION = (
    "Norm of W and median 1-correlation with W_mm over the steps: the gradient as published "
    "(direct) against the same update free of cancellation (log_domain), with a constant and with "
    "growing step sizes. Direct freezes: the norm and the direction stop where the softmax leaves "
    "the resolution of a 64-bit float."
)
