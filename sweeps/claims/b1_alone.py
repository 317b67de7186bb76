"""Assumption B.1 as a condition of global convergence: what Theorem 3 does not say."""

from __future__ import annotations

from ._claim import STRONGER, Claim
from ._conditions import b1, globally, overparameterised
from ._runs import COUNTEREXAMPLES, DESCENT

CLAIM = Claim(
    name="b1_alone",
    paper="2308.16898",
    reading=STRONGER,
    number="Assumption B.1, read as a condition of global convergence",
    title="B.1 makes gradient descent find the optimal tokens",
    statement="(x_i,opt - x_it)^T W_mm z_i = 1 for all i and t != opt_i  =>  "
    "W(k) / ||W(k)||_F -> W_mm / ||W_mm||_F at the optimal tokens",
    hypotheses={"d >= max(T - 1, n)": overparameterised, "B.1": b1},
    prediction=globally,
    runs=(DESCENT, COUNTEREXAMPLES),
    tolerance="tokens: softmax >= 0.999 in every sample; other tokens refute it where they are "
    "locally optimal, which is certified, and 1 - correlation with their SVM is <= 1e-3",
)
