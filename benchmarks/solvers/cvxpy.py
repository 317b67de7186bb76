"""CVXPY, with its default solver and with Clarabel at 1e-10."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np

from benchmarks.solvers import Array, Mask, rows

CLARABEL = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
OF_MATRIX = {"frobenius": "fro", "nuclear": "nuc", "spectral": 2}
OF_ENTRIES = {"max": "inf", "l1": 1, "l1.75": 1.75, "l3": 3}


def least(norm: str, d: int, constraints: Callable[[Any], list[Any]], **options: Any) -> Any:
    """Return the W (d, d) of least norm that CVXPY calls optimal, None without one."""
    W = cp.Variable((d, d))
    matrix = norm in OF_MATRIX
    size = cp.norm(W, OF_MATRIX[norm]) if matrix else cp.norm(cp.vec(W, "C"), OF_ENTRIES[norm])
    problem = cp.Problem(cp.Minimize(size), constraints(W))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(**options)
        except cp.error.SolverError:
            return None
    return W.value if problem.status == "optimal" else None


def solve(norm: str, options: dict[str, Any], X: Array, Z: Array, mask: Mask) -> float | None:
    """Return the least norm that CVXPY states, None without one."""
    G = rows(X, Z, mask)
    of_rows = lambda W: [G @ cp.vec(W, order="C") >= 1] if len(G) else []  # noqa: E731
    W = least(norm, X.shape[2], of_rows, **options)
    return None if W is None else float(np.linalg.norm(W, OF_MATRIX[norm]))


METHODS = {
    ("frobenius", "cvxpy default"): partial(solve, "frobenius", {}),
    ("nuclear", "cvxpy default (SCS)"): partial(solve, "nuclear", {}),
    ("nuclear", "Clarabel 1e-10"): partial(solve, "nuclear", CLARABEL),
}
