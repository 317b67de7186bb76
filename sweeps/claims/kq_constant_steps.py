"""The same with constant steps of 0.1, the published size: (K, Q) stays beside the SVM."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim, Evidence, Truths
from ._conditions import saturated
from ._runs import KQ_STEPS
from .kq_small_steps import CLAIM as SMALL
from .kq_small_steps import prediction, small


def constant(evidence: Evidence) -> Truths:
    """Return whether the steps are 0.1."""
    return ~small(evidence)


CLAIM = Claim(
    name="kq_constant_steps",
    paper="2403.08699",
    reading=CARRIED_OVER,
    number="gradient flow, from any start: carried over by us to constant steps of 0.1",
    title="without a ridge (K, Q) nears the SVM of least nuclear norm by constant steps, too",
    statement="as kq_small_steps, with eta_k = 0.1",
    hypotheses={"one token selected in each sample": saturated, "constant steps of 0.1": constant},
    prediction=prediction,
    runs=(KQ_STEPS,),
    tolerance=SMALL.tolerance,
)
