"""The same with a stability constant, as Adam is used: what arXiv 2406.10650 leaves out."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim, Evidence, Truths
from ._conditions import saturated
from ._runs import ADAM
from .adam_max import CLAIM as WITHOUT
from .adam_max import prediction


def a_constant(evidence: Evidence) -> Truths:
    """Return whether eps > 0."""
    return evidence.truths(evidence.trials["eps"] > 0)


CLAIM = Claim(
    name="adam_eps",
    paper="2406.10650",
    reading=CARRIED_OVER,
    number="Adam with a stability constant eps > 0, which the theorem leaves out",
    title="Adam with a stability constant maximises the margin in the maximum norm too",
    statement="as adam_max, with eps = 1e-8",
    hypotheses={"one token selected in each sample": saturated, "eps > 0": a_constant},
    prediction=prediction,
    runs=(ADAM,),
    tolerance=WITHOUT.tolerance,
)
