"""Theorem 2 for (K, Q) with m < d columns: the SVM of least nuclear norm and rank <= m."""

from __future__ import annotations

from ._claim import Claim, Evidence, Words
from ._conditions import feasible, minimises, one_optimum, path_limit
from ._runs import PATH_M


def prediction(evidence: Evidence) -> Words:
    """Return whether K_R Q_R^T at the largest R has the largest margin that rank <= m allows."""
    return path_limit(evidence.trials["nuclear_margin_gap"], evidence)


CLAIM = Claim(
    name="path_kq_m",
    paper="2308.16898",
    number="Theorem 2, (K, Q) with m < d",
    title="with m < d columns it goes to an SVM of least nuclear norm and rank <= m",
    statement="K, Q in R^(d x m), (K_R, Q_R) as in path_kq  =>  dist(K_R Q_R^T / R, solutions of "
    "min ||W||_* with margins >= 1 and rank W <= m, scaled to nuclear norm 1) -> 0",
    hypotheses={
        "one optimal token": one_optimum,
        "Att-SVM* of rank <= m is solved": lambda evidence: feasible(evidence, "nuclear"),
        "(K_R, Q_R) is a global minimiser, as far as is known": lambda e: minimises(e, "nuclear"),
    },
    prediction=prediction,
    runs=(PATH_M,),
    tolerance="as in path_kq; the SVM of rank <= m is not convex: it is undecided, and so is the "
    "hypothesis, where the convex one has a larger rank",
)
