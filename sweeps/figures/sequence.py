"""Self-attention on whole sequences, causal or not (section 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from sweeps import style
from sweeps.figures import Drawing, _curves, fates, outcomes

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

QUESTION = (
    "Does self-attention trained on whole sequences, every position a query, converge to its "
    "SVM as the one-query model does, also under a causal mask?"
)

QUANTITIES = ("max_softmax", "one_minus_corr_w_mm", "one_minus_corr_w_star_mm")


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the quantities over the steps, and what became of all instances."""
    return {
        "sequence": _curves.over_steps(frames, QUANTITIES),
        "sequence_counts": outcomes(frames.trials),
    }


def draw(tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return one figure."""
    fig = _curves.panels(
        tables["sequence"], QUANTITIES, "step", "step", facet="model", quartiles=True
    )
    style.note(fig, [NOTE, fates(tables["sequence_counts"]), *remarks])
    return [Drawing("sequence", fig, CAPTION)]


NOTE = (
    "Lines: mean; dark band: 95 % bootstrap interval of the mean; light band: quartiles. "
    "Softmax: all trained instances; correlations: saturated ones whose SVM is certified."
)
CAPTION = (
    "Largest softmax probability and 1-correlation with the SVM at the selected tokens over the "
    "steps. Every position of every sequence is a query with a label of its own; with a causal "
    "mask position k attends to tokens up to k."
)
