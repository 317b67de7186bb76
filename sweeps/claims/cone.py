"""Local convergence: from a narrow cone about a locally optimal direction W goes to it."""

from __future__ import annotations

from ._claim import STRONGER, Claim, Evidence, Truths
from ._conditions import feasible, globally, one_optimum
from ._runs import CONE
from .b1_alone import CLAIM as ALONE


def narrow(evidence: Evidence) -> Truths:
    """Return whether W(0) is within 5 degrees of the SVM."""
    return evidence.truths(evidence.trials["init_angle"] <= 5)


CLAIM = Claim(
    name="cone",
    paper="2308.16898",
    reading=STRONGER,
    number="Theorems on local convergence (section 5), the cone",
    title="from within 5 degrees of the direction of the optimal tokens W goes to that direction",
    statement="angle(W(0), W_mm) <= 5 degrees, ||W(0)||_F = 30  =>  W(k) / ||W(k)||_F -> "
    "W_mm / ||W_mm||_F; the theorem says: for some angle and some norm",
    hypotheses={
        "one optimal token": one_optimum,
        "Att-SVM is feasible": feasible,
        "angle(W(0), W_mm) <= 5 degrees": narrow,
    },
    prediction=globally,
    runs=(CONE,),
    tolerance=ALONE.tolerance,
)
