"""The initial gradient by itself as a condition of global convergence, without Assumption B.2."""

from __future__ import annotations

from ._claim import STRONGER, Claim
from ._conditions import globally, hypothesis
from ._runs import DESCENT, ZERO
from .b1_alone import CLAIM as ALONE

CLAIM = Claim(
    name="gradient_alone",
    paper="2308.16898",
    reading=STRONGER,
    number="Theorem 4 without B.2",
    title="an initial gradient that separates the optimal tokens makes them selected",
    statement="-(x_i,opt - x_it)^T grad L(W(0)) z_i > 0 for all i and t != opt_i  =>  "
    "W(k) / ||W(k)||_F -> W_mm / ||W_mm||_F at the optimal tokens",
    hypotheses={
        "-grad L(W(0)) separates the optimal tokens": hypothesis("aligned_gradient"),
    },
    prediction=globally,
    runs=(DESCENT, ZERO),
    tolerance=ALONE.tolerance,
)
