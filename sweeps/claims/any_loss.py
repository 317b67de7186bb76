"""Assumption A: the theory needs a loss that decreases."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, STRONGER, Claim, Evidence, Words, ruled
from ._conditions import one_optimum
from ._runs import SQUARED
from .linear_one_token import linear

ZERO = 1e-20
"""Largest risk that counts as 0, the least that the loss has."""


def prediction(evidence: Evidence) -> Words:
    """Return whether attention is on one token of each sample; a finite W of risk 0 refutes it."""
    trials = evidence.trials
    attained = ~trials["saturated"] & (trials["risk"] <= ZERO)
    rules = [(trials["saturated"], HOLDS), (attained, FAILS)]
    return ruled(evidence, rules, otherwise="attention not on one token yet")


CLAIM = Claim(
    name="any_loss",
    paper="2308.16898",
    reading=STRONGER,
    number="Section 6 without Assumption A",
    title="a linear head selects one token of each sample by a loss that does not decrease, too",
    statement="l(u) = (u - 0.1)^2, h(o) = v^T o  =>  max_t s_it -> 1 for every sample i",
    hypotheses={"linear head": linear, "one optimal token": one_optimum},
    prediction=prediction,
    runs=(SQUARED,),
    tolerance="softmax >= 0.999 in every sample; a risk <= 1e-20, where gradient descent ends, at "
    "a smaller softmax refutes it",
)
