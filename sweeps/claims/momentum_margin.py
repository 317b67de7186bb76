"""arXiv 2502.04664 on attention: momentum does not change which margin becomes the largest."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim, Evidence, Truths
from ._conditions import saturated
from ._runs import GEOMETRY
from .steepest_margin import CLAIM as STEEPEST
from .steepest_margin import prediction


def with_momentum(evidence: Evidence) -> Truths:
    """Return whether the steps are those of an average of gradients."""
    trials = evidence.trials
    return evidence.truths((trials["optimizer"] == "steepest") & (trials["beta"] > 0))


CLAIM = Claim(
    name="momentum_margin",
    paper="2502.04664",
    reading=CARRIED_OVER,
    number="the same with momentum, carried over to attention by us",
    title="steepest descent with momentum maximises the same margin",
    statement="M(k) = beta M(k - 1) + grad L(W(k)), W(k + 1) = W(k) - eta argmax { <S, M(k)> : "
    "||S|| <= 1 }  =>  the margin in that norm tends to 1 / ||W_mm||; here the maximum norm",
    hypotheses={
        "one token selected in each sample": saturated,
        "steps of one size in a norm, momentum": with_momentum,
    },
    prediction=prediction,
    runs=(GEOMETRY,),
    tolerance=STEEPEST.tolerance,
)
