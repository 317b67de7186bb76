"""Section 6: a nonlinear head that preserves the order of tokens ends at one of each sample."""

from __future__ import annotations

from ._claim import Claim
from ._conditions import hypothesis, trains
from ._runs import SEVERAL
from .relu_one_token import CLAIM as ANY_HEAD
from .relu_one_token import prediction

CLAIM = Claim(
    name="order_one_token",
    paper="2308.16898",
    number="Section 6, order under convex combinations",
    title="a nonlinear head selects one token where no mixture scores above the best token",
    statement="max_s Y_i h(X_i^T s) = max_t gamma_it over the simplex, for all i  =>  "
    "max_t s_it -> 1 for every sample i",
    hypotheses={
        "no mixture scores above the best token": hypothesis("order_preserving"),
        "head of gradient != 0": trains,
    },
    prediction=prediction,
    runs=(SEVERAL,),
    tolerance=ANY_HEAD.tolerance,
)
