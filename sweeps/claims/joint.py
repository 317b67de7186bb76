"""Joint training of W and a linear head: W goes to the SVM of the tokens that it selects."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim
from ._conditions import risk_falls, saturated
from ._runs import JOINT
from .limits import CLAIM as LIMITS
from .limits import prediction

CLAIM = Claim(
    name="joint",
    paper="2306.13596",
    reading=CARRIED_OVER,
    number="joint training of head and attention, without equal margins of the head",
    title="trained together with any linear head, W goes to the SVM of the selected tokens",
    statement="(W(k), v(k)) by gradient descent on both  =>  W(k) / ||W(k)||_F -> "
    "W_mm(alpha) / ||W_mm(alpha)||_F, alpha locally optimal by the trained head",
    hypotheses={
        "one token selected in each sample": saturated,
        "the risk falls from start to end": risk_falls,
    },
    prediction=prediction,
    runs=(JOINT,),
    tolerance=LIMITS.tolerance,
)
