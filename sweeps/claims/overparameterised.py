"""Over-parameterisation by itself as a condition of global convergence."""

from __future__ import annotations

from ._claim import STRONGER, Claim
from ._conditions import globally, one_optimum, overparameterised
from ._runs import DESCENT, LARGER
from .b1_alone import CLAIM as ALONE

CLAIM = Claim(
    name="overparameterised",
    paper="2308.16898",
    reading=STRONGER,
    number="Abstract, read strictly",
    title="over-parameterisation makes gradient descent find the optimal tokens",
    statement="d >= max(T - 1, n)  =>  W(k) / ||W(k)||_F -> W_mm / ||W_mm||_F "
    "at the optimal tokens",
    hypotheses={"d >= max(T - 1, n)": overparameterised, "one optimal token": one_optimum},
    prediction=globally,
    runs=(DESCENT, LARGER),
    tolerance=ALONE.tolerance,
)
