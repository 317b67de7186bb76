"""Without a ridge (K, Q) goes on towards the nuclear norm SVM, by small or falling steps."""

from __future__ import annotations

from ._claim import CARRIED_OVER, FAILS, HOLDS, Claim, Evidence, Truths, Words, ruled
from ._conditions import ROUNDED, TURNING, saturated, unsolved
from ._runs import KQ_STEPS

FALL = 0.9
"""Largest ratio of 1 - correlation after a decade of steps to that before, where it falls."""


def prediction(evidence: Evidence) -> Words:
    """Return whether 1 - correlation with W_star_mm falls over the last decade of steps.

    A direction that still turns, perhaps on its way to other tokens, refutes nothing.
    """
    apart = evidence.curve("one_minus_corr_w_star_mm")
    last = float(apart.columns.max())
    before, end = apart[last / 10], apart[last]
    stopped = evidence.trials["direction_change"] <= TURNING * end
    rules = [
        *unsolved(evidence, "nuclear"),
        ((end <= FALL * before) | (end <= ROUNDED), HOLDS),
        ((end >= before) & stopped, FAILS),
    ]
    return ruled(evidence, rules, otherwise="hardly falls, or still turns")


def small(evidence: Evidence) -> Truths:
    """Return whether the steps are 0.01, or fall like 1 / sqrt(k)."""
    trials = evidence.trials
    return evidence.truths((trials["lr"] <= 0.01) | (trials["schedule"] == "decay"))


CLAIM = Claim(
    name="kq_small_steps",
    paper="2403.08699",
    reading=CARRIED_OVER,
    number="gradient flow, from any start: carried over by us to steps that are small or fall",
    title="without a ridge (K, Q) nears the SVM of least nuclear norm by small or falling steps",
    statement="V(k + 1) = V(k) - eta_k grad_V L / ||grad_V L||_F for V = K, Q, with eta_k = 0.01 "
    "or 0.1 / sqrt(1 + 0.01 k)  =>  1 - corr(K Q^T, W_star_mm) falls",
    hypotheses={"one token selected in each sample": saturated, "small or falling steps": small},
    prediction=prediction,
    runs=(KQ_STEPS,),
    tolerance="1 - correlation falls to 0.9 or less from 10^4 to 10^5 steps, or to 1e-12; one that "
    "does not fall refutes it where the direction has changed by at most a hundredth of it since "
    "half-way",
)
