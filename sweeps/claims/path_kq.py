"""Theorem 2 for (K, Q): the regularisation path goes to an SVM of least nuclear norm."""

from __future__ import annotations

from ._claim import Claim, Evidence, Truths, Words
from ._conditions import feasible, minimises, one_optimum, path_limit
from ._runs import PATH


def prediction(evidence: Evidence) -> Words:
    """Return whether K_R Q_R^T at the largest R has the largest margin by the nuclear norm."""
    return path_limit(evidence.trials["nuclear_margin_gap"], evidence)


def of_kq(evidence: Evidence) -> Truths:
    """Return whether K and Q are trained."""
    return evidence.truths(evidence.trials["parameterization"] == "kq")


CLAIM = Claim(
    name="path_kq",
    paper="2308.16898",
    number="Theorem 2, (K, Q)",
    title="the regularisation path of (K, Q) goes to an SVM of least nuclear norm",
    statement="(K_R, Q_R) = argmin { L(K Q^T) : ||K||_F^2 + ||Q||_F^2 <= 2R }  =>  "
    "dist(K_R Q_R^T / R, SVM solutions of nuclear norm 1) -> 0 as R -> inf",
    hypotheses={
        "K and Q are trained": of_kq,
        "one optimal token": one_optimum,
        "Att-SVM is feasible": lambda evidence: feasible(evidence, "nuclear"),
        "(K_R, Q_R) is a global minimiser, as far as is known": lambda e: minimises(e, "nuclear"),
    },
    prediction=prediction,
    runs=(PATH,),
    tolerance="margin gap 1 - rho <= 1e-3 at R = 30 000, which is 0 exactly at the solutions, of "
    "which there may be several. (K_R, Q_R) is no global minimiser if it selects other tokens, or "
    "if W_star_mm scaled to its norm has a lower risk, as at saddles of rank < rank W_star_mm. "
    "Its risk bounds the gap by a multiple of ||W_star_mm||_* / R, about 1e-3 here: this confirms "
    "the theorem, and could hardly refute it",
)
