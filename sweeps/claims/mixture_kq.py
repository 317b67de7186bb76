"""The same for (K, Q): the equations determine the projection of K Q^T, too."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim
from ._runs import MIXTURES
from .mixture import KNOWN, STATEMENT, TOLERANCE, known, of, prediction

CLAIM = Claim(
    name="mixture_kq",
    paper="2308.16898",
    reading=CARRIED_OVER,
    number="Section 6, W_fin as the minimiser of the risk, for gradient descent, (K, Q)",
    title="with a quadratic head the finite part of K Q^T is that of the mixture that scores best",
    statement=STATEMENT.replace("W(k)", "K(k) Q(k)^T"),
    hypotheses={"K and Q are trained": of("kq"), KNOWN: known},
    prediction=prediction,
    runs=(MIXTURES,),
    tolerance=TOLERANCE,
)
