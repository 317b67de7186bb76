"""Tokens that are not random: patches of handwritten digits, or any file of instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from sweeps import style
from sweeps.figures import Drawing, _curves, fates, outcomes

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

QUESTION = (
    "Does the theory hold on tokens that are not random? Image patches of handwritten digits, or "
    "the arrays of any .npz file?"
)
QUANTITIES = ("max_softmax", "one_minus_corr_w_mm", "one_minus_corr_w_star_mm")


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the quantities over the steps, and what became of all instances."""
    return {
        "real_tokens": _curves.over_steps(frames, QUANTITIES),
        "real_tokens_counts": outcomes(frames.trials),
    }


def draw(tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return one figure."""
    fig = _curves.panels(
        tables["real_tokens"], QUANTITIES, "step", "step", facet="data", quartiles=True
    )
    style.note(fig, [NOTE, fates(tables["real_tokens_counts"]), *remarks])
    return [Drawing("real_tokens", fig, CAPTION)]


NOTE = (
    "Lines: mean; dark band: 95 % bootstrap interval of the mean; light band: quartiles. "
    "Softmax: all trained instances; correlations: saturated ones whose SVM is certified."
)
CAPTION = (
    "Largest softmax probability and 1-correlation with the SVM at the selected tokens over the "
    "steps, for W and for (K, Q), on tokens that are data rather than draws."
)
