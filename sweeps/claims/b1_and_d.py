"""The conjecture on global convergence: Assumptions B.1 and D together."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim
from ._conditions import b1, globally, hypothesis
from ._runs import COUNTEREXAMPLES, DESCENT
from .b1_alone import CLAIM as ALONE

CLAIM = Claim(
    name="b1_and_d",
    paper="2308.16898",
    number="Conjecture on Assumptions B.1 and D, for normalised steps that grow",
    reading=CARRIED_OVER,
    title="B.1 and D make gradient descent find the optimal tokens",
    statement="B.1, and every alpha != opt whose Att-SVM is feasible has a sample i with "
    "alpha_i != opt_i and margin 1 of opt_i under W_mm(alpha)  =>  W(k) / ||W(k)||_F -> "
    "W_mm / ||W_mm||_F at the optimal tokens",
    hypotheses={"B.1": b1, "D": hypothesis("assumption_d")},
    prediction=globally,
    runs=(DESCENT, COUNTEREXAMPLES),
    tolerance=ALONE.tolerance,
)
