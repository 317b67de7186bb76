"""Theorem 2 for W: its regularisation path goes to the SVM of least Frobenius norm."""

from __future__ import annotations

from ._claim import Claim, Evidence, Truths, Words
from ._conditions import feasible, minimises, one_optimum, path_limit
from ._runs import PATH


def prediction(evidence: Evidence) -> Words:
    """Return whether W_R at the largest R has the direction of W_mm."""
    return path_limit(evidence.trials["one_minus_corr_w_mm"], evidence)


def of_w(evidence: Evidence) -> Truths:
    """Return whether W is trained itself."""
    return evidence.truths(evidence.trials["parameterization"] == "w")


CLAIM = Claim(
    name="path_w",
    paper="2308.16898",
    number="Theorem 2, W",
    title="the regularisation path of W goes to the SVM of least Frobenius norm",
    statement="W_R = argmin { L(W) : ||W||_F <= R }  =>  W_R / R -> W_mm / ||W_mm||_F as R -> inf",
    hypotheses={
        "W is trained": of_w,
        "one optimal token": one_optimum,
        "Att-SVM is feasible": feasible,
        "W_R is a global minimiser, as far as is known": lambda e: minimises(e, "frobenius"),
    },
    prediction=prediction,
    runs=(PATH,),
    tolerance="1 - correlation <= 1e-3 at R = 30 000: it falls like 1 / R^2. W_R is no global "
    "minimiser if it selects other tokens, or if W_mm scaled to its norm has a lower risk. "
    "Its risk bounds 1 - correlation by a multiple of ||W_mm|| / R, about 1e-3 here: this confirms "
    "the theorem, and could hardly refute it",
)
