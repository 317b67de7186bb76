"""Section 7: sequence-to-sequence and causal attention go to their SVMs as the one-query model."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim
from ._conditions import saturated
from ._runs import SEQUENCES
from .limits import prediction

CLAIM = Claim(
    name="sequence",
    paper="2308.16898",
    number="Section 7, for normalised steps",
    reading=CARRIED_OVER,
    title="sequence-to-sequence and causal attention converge to their SVM",
    statement="with a sample (X, x_k) for each position k, and tokens t <= k only if causal:  "
    "W(k) / ||W(k)||_F -> W_mm(alpha) / ||W_mm(alpha)||_F, alpha locally optimal",
    hypotheses={"one token selected in each sample": saturated},
    prediction=prediction,
    runs=(SEQUENCES,),
    tolerance="as in limits",
)
