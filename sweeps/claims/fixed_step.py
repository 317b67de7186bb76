"""Local convergence of gradient descent with a fixed step: the direction nears that of the SVM."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, Claim, Evidence, Words, ruled
from ._conditions import ROUNDED, unsolved
from ._runs import FIXED_STEP

FALL = 0.9
"""Largest ratio of 1 - correlation after a decade of steps to that before, where it falls."""


def prediction(evidence: Evidence) -> Words:
    """Return whether 1 - correlation with W_mm still falls in each of the last two decades."""
    apart = evidence.curve("one_minus_corr_w_mm")
    last = float(apart.columns.max())
    begin, middle, end = (apart[last / 10**k] for k in (2, 1, 0))
    local = evidence.trials["convergence"].isin(("global", "local"))
    falls = (end <= FALL * middle) & (middle <= FALL * begin)
    return ruled(
        evidence,
        [
            (evidence.trials["training"] == "finite_optimum", FAILS),
            (~evidence.trials["saturated"], "attention not on one token yet"),
            *unsolved(evidence),
            (local & (falls | (end <= ROUNDED)), HOLDS),
            (local & (end > middle) & (middle > begin), FAILS),
        ],
        otherwise="direction not settled",
    )


CLAIM = Claim(
    name="fixed_step",
    paper="2308.16898",
    number="Theorems on local convergence, fixed step",
    title="gradient descent with a fixed step nears the SVM of the tokens that it selects",
    statement="eta <= 1 / L_W  =>  1 - corr(W(k), W_mm(alpha)) -> 0, alpha locally optimal",
    hypotheses={},
    prediction=prediction,
    runs=(FIXED_STEP,),
    tolerance="||W(k)|| grows like log k, so no 10^5 steps come near: 1 - correlation must fall to "
    "0.9 of its value or less in each of the last two decades of steps, and one that rises in both "
    "refutes it",
)
