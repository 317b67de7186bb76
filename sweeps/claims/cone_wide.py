"""How wide the cone of local convergence is: 45 degrees are too many."""

from __future__ import annotations

from ._claim import STRONGER, Claim, Evidence, Truths
from ._conditions import feasible, globally, one_optimum
from ._runs import CONE
from .b1_alone import CLAIM as ALONE


def wide(evidence: Evidence) -> Truths:
    """Return whether W(0) is within 45 degrees of the SVM."""
    return evidence.truths(evidence.trials["init_angle"] <= 45)


CLAIM = Claim(
    name="cone_wide",
    paper="2308.16898",
    reading=STRONGER,
    number="Theorems on local convergence, a cone of 45 degrees",
    title="from within 45 degrees of the direction of the optimal tokens W goes to that direction",
    statement="angle(W(0), W_mm) <= 45 degrees, ||W(0)||_F = 30  =>  W(k) / ||W(k)||_F -> "
    "W_mm / ||W_mm||_F",
    hypotheses={
        "one optimal token": one_optimum,
        "Att-SVM is feasible": feasible,
        "angle(W(0), W_mm) <= 45 degrees": wide,
    },
    prediction=globally,
    runs=(CONE,),
    tolerance=ALONE.tolerance,
)
