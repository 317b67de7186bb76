"""arXiv 2502.04664 on attention: steepest descent in a norm maximises the margin in that norm."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim, Evidence, Truths, Words
from ._conditions import margin_limit, saturated
from ._runs import GEOMETRY


def prediction(evidence: Evidence) -> Words:
    """Return whether the margin in the norm of the steps becomes the largest one."""
    return margin_limit(evidence, evidence.trials["norm"].fillna(""))


def without_momentum(evidence: Evidence) -> Truths:
    """Return whether the steps are those of the gradient itself."""
    trials = evidence.trials
    return evidence.truths((trials["optimizer"] == "steepest") & (trials["beta"] == 0))


CLAIM = Claim(
    name="steepest_margin",
    paper="2502.04664",
    reading=CARRIED_OVER,
    number="normalised steepest descent on linear models, carried over to attention by us",
    title="steepest descent in a norm maximises the margin in that norm",
    statement="W(k + 1) = W(k) - eta argmax { <S, grad L(W(k))> : ||S|| <= 1 }  =>  "
    "min_it (x_i,alpha_i - x_it)^T W(k) z_i / ||W(k)|| -> 1 / ||W_mm||, alpha selected, any norm",
    hypotheses={
        "one token selected in each sample": saturated,
        "steps of one size in a norm, no momentum": without_momentum,
    },
    prediction=prediction,
    runs=(GEOMETRY,),
    tolerance="margin gap 1 - rho <= 2e-2 after 10 000 steps; a gap >= 0.1 of which at least 90 % "
    "were there after 5000 refutes it",
)
