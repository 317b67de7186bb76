"""arXiv 2402.05738: with normalised and Polyak steps the direction converges at a finite rate."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, Claim, Evidence, Truths, Words, ruled
from ._conditions import ROUNDED, one_optimum
from ._runs import ORTHOGONAL
from .adaptive_global import nearly_orthogonal

DECADE = 0.1
"""Largest ratio of 1 - correlation after a decade of steps to that before, for a fall like 1/k."""


def prediction(evidence: Evidence) -> Words:
    """Return whether 1 - correlation falls at least like 1/k over the last decade of steps."""
    apart = evidence.curve("one_minus_corr_w_mm")
    last = float(apart.columns.max())
    before, end = apart[last / 10], apart[last]
    falls = (end <= DECADE * before) | (end <= ROUNDED)
    rules = [(falls, HOLDS), (end > DECADE * before, FAILS)]
    return ruled(evidence, rules, otherwise="no SVM on record")


def optimal(evidence: Evidence) -> Truths:
    """Return whether training ends at the optimal tokens."""
    return evidence.truths(evidence.trials["convergence"] == "global")


CLAIM = Claim(
    name="adaptive_rate",
    paper="2402.05738",
    number="finite-time rates of normalised and Polyak steps, as we understand them",
    title="with normalised and Polyak steps the direction of W converges like a power of the steps",
    statement="as adaptive_global  =>  1 - corr(W(k), W_mm) <= C / k; the proved rates are upper "
    "bounds",
    hypotheses={
        "one optimal token": one_optimum,
        "nearly orthogonal tokens": nearly_orthogonal,
        "optimal tokens selected": optimal,
    },
    prediction=prediction,
    runs=(ORTHOGONAL,),
    tolerance="1 - correlation falls to a tenth or less from 200 to 2000 steps",
)
