"""If all tokens are optimal, a normalised step has no direction, and is not taken."""

from __future__ import annotations

from ._claim import STRONGER, Claim, Evidence, Truths
from ._runs import TIES
from .all_optimal import CLAIM as PLAIN
from .all_optimal import one_score, prediction


def normalized(evidence: Evidence) -> Truths:
    """Return whether every step has the same length."""
    return evidence.truths(evidence.trials["optimizer"] == "normalized_gd")


CLAIM = Claim(
    name="all_optimal_normalized",
    paper="2308.16898",
    reading=STRONGER,
    number="Definition 1, without its assumption that other tokens score lower; normalised steps",
    title="if all tokens of a sample have one score, normalised steps leave W where it begins",
    statement="gamma_it = gamma_i for all t  =>  W(k) = W(0), in 64-bit floats, with "
    "W(k+1) = W(k) - eta grad L / ||grad L||",
    hypotheses={
        "all tokens of a sample have one score": one_score,
        "steps are normalised": normalized,
    },
    prediction=prediction,
    runs=(TIES,),
    tolerance=PLAIN.tolerance + "; a gradient that were rounding noise would become steps of full "
    "length",
)
