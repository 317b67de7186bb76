"""CVXPY, with its default solver and with Clarabel at 1e-10."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np

from benchmarks.solvers import Array, Mask, rows

CLARABEL = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def solve(kind: str, options: dict[str, Any], X: Array, Z: Array, mask: Mask) -> float | None:
    """Return the norm of the matrix that CVXPY calls optimal, None without one."""
    G, d = rows(X, Z, mask), X.shape[2]
    W = cp.Variable((d, d))
    constraints = [G @ cp.vec(W, order="C") >= 1] if len(G) else []
    problem = cp.Problem(cp.Minimize(cp.norm(W, kind)), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(**options)
        except cp.error.SolverError:
            return None
    return float(np.linalg.norm(W.value, kind)) if problem.status == "optimal" else None


METHODS = {
    ("frobenius", "cvxpy default"): partial(solve, "fro", {}),
    ("nuclear", "cvxpy default (SCS)"): partial(solve, "nuc", {}),
    ("nuclear", "Clarabel 1e-10"): partial(solve, "nuc", CLARABEL),
}
