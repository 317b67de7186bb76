"""Section 6: with a linear head attention ends at one token of each sample."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, Claim, Evidence, Truths, Words, ruled
from ._conditions import one_optimum
from ._runs import DESCENT, LARGER


def linear(evidence: Evidence) -> Truths:
    """Return whether the head is linear."""
    return evidence.truths(evidence.trials["head"] == "linear")


def prediction(evidence: Evidence) -> Words:
    """Return whether attention is on one token of each sample; a finite optimum refutes it."""
    trials = evidence.trials
    rules = [(trials["saturated"], HOLDS), (trials["training"] == "finite_optimum", FAILS)]
    return ruled(evidence, rules, otherwise="attention not on one token yet")


CLAIM = Claim(
    name="linear_one_token",
    paper="2308.16898",
    number="Section 6",
    title="a linear head selects one token of each sample",
    statement="h(o) = v^T o  =>  max_t s_it -> 1 for every sample i",
    hypotheses={"linear head": linear, "one optimal token": one_optimum},
    prediction=prediction,
    runs=(DESCENT, LARGER),
    tolerance="softmax >= 0.999 in every sample",
)
