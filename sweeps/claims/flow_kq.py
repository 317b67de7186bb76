"""arXiv 2403.08699: gradient flow on (K, Q) from aligned weights minimises the nuclear norm."""

from __future__ import annotations

from ._claim import CARRIED_OVER, FAILS, HOLDS, Claim, Evidence, Truths, Words, ruled
from ._conditions import saturated, unsolved
from ._runs import FLOW_KQ

NEAR, FAR = 1e-2, 2e-2
"""Nuclear margin gap that counts as none; the least one that refutes, if it no longer falls."""


def prediction(evidence: Evidence) -> Words:
    """Return whether K Q^T has the largest nuclear margin; a gap that stays refutes it."""
    gap = evidence.trials["nuclear_margin_gap"]
    gaps = evidence.curve("margin_gap_nuclear")
    last = float(gaps.columns.max())
    stays = gaps[last] >= gaps[last / 10]
    return ruled(
        evidence,
        [
            *unsolved(evidence, "nuclear"),
            (gap <= NEAR, HOLDS),
            ((gap >= FAR) & stays, FAILS),
        ],
        otherwise="margin gap still falling, or not far",
    )


def aligned(evidence: Evidence) -> Truths:
    """Return whether the singular vectors of K(0) and Q(0) are those of the gradient at W = 0."""
    return evidence.truths(evidence.trials["init"] == "aligned")


def optimal(evidence: Evidence) -> Truths:
    """Return whether the risk goes to its infimum: the optimal tokens are selected."""
    return evidence.truths(evidence.trials["convergence"] == "global")


CLAIM = Claim(
    name="flow_kq",
    paper="2403.08699",
    number="gradient flow from aligned weights, as we understand it; there rows have common "
    "singular vectors, here they are random",
    reading=CARRIED_OVER,
    title="gradient flow on (K, Q) from aligned weights goes to the SVM of least nuclear norm",
    statement="K' = -grad_K L, Q' = -grad_Q L, exponential loss, L -> inf L, singular vectors of "
    "K(0), Q(0) those of the data  =>  K Q^T / ||K Q^T||_* -> SVM solutions of nuclear norm 1",
    hypotheses={
        "one token selected in each sample": saturated,
        "optimal tokens selected": optimal,
        "K(0), Q(0) aligned with the first gradient": aligned,
    },
    prediction=prediction,
    runs=(FLOW_KQ,),
    tolerance="gradient descent with one step for K and Q, for which the risk provably falls; "
    "margin gap <= 1e-2 after 10 000 steps; a gap >= 2e-2 that has not fallen over the last "
    "decade of steps refutes it. The first gradient stands for the data: the paper's "
    "alignment needs rows with common singular vectors, which random data have not",
)
