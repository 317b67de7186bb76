"""Gradient descent on (K, Q) without a ridge, and the SVM of least nuclear norm."""

from __future__ import annotations

from ._claim import CARRIED_OVER, FAILS, HOLDS, Claim, Evidence, Words, ruled
from ._conditions import NEAR, STALE, saturated, unsolved
from ._runs import DESCENT_KQ

STILL = 1e-4
"""Largest change of direction since half-way of the steps at which a direction has stopped."""


def prediction(evidence: Evidence) -> Words:
    """Return whether K Q^T has the largest margin by the nuclear norm; a plateau refutes it."""
    trials = evidence.trials
    gap = trials["nuclear_margin_gap"]
    gaps = evidence.curve("margin_gap_nuclear")
    last = float(gaps.columns.max())
    stays = gaps[last] >= STALE * gaps[last / 2]
    stopped = (trials["direction_change"] <= STILL) & stays
    return ruled(
        evidence,
        [
            *unsolved(evidence, "nuclear"),
            (gap <= NEAR, HOLDS),
            ((gap > 10 * NEAR) & stopped, FAILS),
        ],
        otherwise="direction not settled",
    )


CLAIM = Claim(
    name="descent_kq",
    paper="2308.16898",
    reading=CARRIED_OVER,
    number="experiments of section 5, which add a ridge",
    title="gradient descent on (K, Q) goes to the SVM of least nuclear norm",
    statement="K(k) Q(k)^T / ||K(k) Q(k)^T||_*  ->  solutions of Att-SVM* at the selected tokens, "
    "scaled to nuclear norm 1, without a ridge",
    hypotheses={"one token selected in each sample": saturated},
    prediction=prediction,
    runs=(DESCENT_KQ,),
    tolerance="margin gap 1 - rho <= 1e-3; a gap > 1e-2 of a direction that has changed by at most "
    "1e-4 since half-way of 10 000 growing steps refutes it, if it has fallen by at most 3 % "
    "meanwhile",
)
