"""Theorem 1: over-parameterisation makes the SVM feasible."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, Claim, Evidence, Words, ruled
from ._conditions import one_optimum, overparameterised
from ._runs import SVMS


def prediction(evidence: Evidence) -> Words:
    """Return what is proved of the SVM."""
    status = evidence.trials["frobenius_status"]
    rules = [(status == "solved", HOLDS), (status == "infeasible", FAILS)]
    return ruled(evidence, rules, otherwise="SVM undecided")


CLAIM = Claim(
    name="feasibility",
    paper="2308.16898",
    number="Theorem 1",
    title="d >= max(T - 1, n) makes the SVM feasible",
    statement="d >= max(T - 1, n)  =>  for almost all (X_i, z_i), also with z_i = x_i1, some W has "
    "(x_i,opt - x_it)^T W z_i >= 1 for all i and t != opt_i",
    hypotheses={"d >= max(T - 1, n)": overparameterised, "one optimal token": one_optimum},
    prediction=prediction,
    runs=(SVMS,),
    tolerance="none: a solution or a Farkas ray proves it",
)
