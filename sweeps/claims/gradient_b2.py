"""Theorem 4: equal scores of the other tokens, and an initial gradient towards the best ones."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim
from ._conditions import globally, hypothesis
from ._runs import DESCENT, EQUAL_SCORES, ZERO
from .b1_alone import CLAIM as ALONE

CLAIM = Claim(
    name="gradient_b2",
    paper="2308.16898",
    number="Theorem 4 (global convergence under good initial gradient), for normalised steps",
    reading=CARRIED_OVER,
    title="B.2 and an initial gradient that separates the optimal tokens make them selected",
    statement="gamma_it = gamma_iu < gamma_i,opt for t, u != opt_i, and -(x_i,opt - x_it)^T "
    "grad L(W(0)) z_i > 0  =>  W(k) / ||W(k)||_F -> W_mm / ||W_mm||_F at the optimal tokens",
    hypotheses={
        "B.2": hypothesis("assumption_b2"),
        "-grad L(W(0)) separates the optimal tokens": hypothesis("aligned_gradient"),
    },
    prediction=globally,
    runs=(DESCENT, ZERO, EQUAL_SCORES),
    tolerance=ALONE.tolerance,
)
