"""Training from a random start against the SVMs of the tokens it selects (section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from sweeps import style
from sweeps.figures import Drawing, _curves, fates, outcomes

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

QUESTION = (
    "Does gradient descent from a random start converge in direction to the SVM solution of the "
    "tokens that it selects: W to W_mm, and (K, Q) to W_star_mm?"
)

QUANTITIES = ("max_softmax", "one_minus_corr_w_mm", "one_minus_corr_w_star_mm")


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the quantities over the steps, and what became of all instances."""
    return {
        "local_convergence": _curves.over_steps(frames, QUANTITIES),
        "local_convergence_counts": outcomes(frames.trials),
    }


def draw(tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return one figure."""
    fig = _curves.panels(
        tables["local_convergence"],
        QUANTITIES,
        "step",
        "step",
        facet="parameterization",
        quartiles=True,
    )
    style.note(fig, [NOTE, fates(tables["local_convergence_counts"]), *remarks])
    return [Drawing("local_convergence", fig, CAPTION)]


NOTE = (
    "Lines: mean; dark band: 95 % bootstrap interval of the mean; light band: quartiles. "
    "Softmax: all trained instances; correlations: saturated ones whose SVM is certified."
)
CAPTION = (
    "Largest softmax probability and 1-correlation with the Frobenius and the nuclear norm SVM at "
    "the selected tokens, over the steps, for W and for (K, Q). The published update (direct "
    "gradient, for (K, Q) with a tiny ridge) beside the same update in exact arithmetic without "
    "ridge."
)
