"""Local convergence of gradient descent whose steps grow while the risk provably falls."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim
from ._conditions import saturated
from ._runs import SAFE_STEP
from .limits import CLAIM as LIMITS
from .limits import prediction

CLAIM = Claim(
    name="gradient_descent",
    paper="2308.16898",
    reading=CARRIED_OVER,
    number="Theorems on local convergence, steps that grow",
    title="gradient descent goes to the SVM of the tokens that it selects",
    statement="eta_k the largest step for which L provably falls  =>  W(k) / ||W(k)||_F -> "
    "W_mm(alpha) / ||W_mm(alpha)||_F, alpha locally optimal",
    hypotheses={"one token selected in each sample": saturated},
    prediction=prediction,
    runs=(SAFE_STEP,),
    tolerance=LIMITS.tolerance + "; a fixed step would need exp(||W||) steps: see fixed_step",
)
