"""Section 6: the finite part of W is known before training, from the mixture that scores best."""

from __future__ import annotations

from collections.abc import Callable

from ._claim import CARRIED_OVER, FAILS, HOLDS, Claim, Evidence, Truths, Words, ruled
from ._conditions import swings
from ._runs import MIXTURES

CLOSE = 0.02
"""Largest relative distance from W_fin: at the end of the steps it is still falling."""

FAR = 0.1
"""Smallest that refutes it, where it no longer falls."""

SWING = 0.01
"""Largest relative swing since half-way of a distance that neither falls nor leaves for another
limit."""


def of(parameterization: str) -> Callable[[Evidence], Truths]:
    """Return the condition that this is what was trained."""
    return lambda e: e.truths(e.trials["parameterization"] == parameterization)


def known(evidence: Evidence) -> Truths:
    """Return whether a mixture of several tokens is known to score best, which fixes W_fin != 0."""
    trials = evidence.trials
    is_known = (trials["status"] == "ok") & trials["mixture_apart"].notna()
    return evidence.truths(trials["mixture_fin"].notna(), is_known)


def prediction(evidence: Evidence) -> Words:
    """Return whether the projection of W on the span of the equations is W_fin."""
    apart = evidence.curve("mixture_fin")
    now = apart[apart.columns.max()]
    return ruled(
        evidence,
        [
            (now <= CLOSE, HOLDS),
            ((now >= FAR) & (swings(apart) <= SWING * now), FAILS),
        ],
        otherwise="still moving, or not far",
    )


STATEMENT = (
    "P W(k) -> W_fin = argmin ||W||_F s.t. (x_it - x_iu)^T W z_i = log(s*_it / s*_iu), "
    "s*_i = argmax over the simplex of Y_i h(X_i^T s), t and u attended by s*_i, P the projection "
    "on the span of these equations"
)
TOLERANCE = (
    "||P W - W_fin||_F / ||W_fin||_F <= 0.02 after 200 000 steps that fall; >= 0.1, and within "
    "1 % since half-way, refutes it"
)
KNOWN = "the best mixture is unique, of several tokens"

CLAIM = Claim(
    name="mixture",
    paper="2308.16898",
    reading=CARRIED_OVER,
    number="Section 6, W_fin as the minimiser of the risk, for gradient descent",
    title="with a quadratic head the finite part of W is that of the mixture that scores best",
    statement=STATEMENT,
    hypotheses={"W is trained": of("w"), KNOWN: known},
    prediction=prediction,
    runs=(MIXTURES,),
    tolerance=TOLERANCE,
)
