"""CVXPY, with its default solver and with Clarabel at 1e-10."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import cvxpy as cp
import torch

from attnsvm.norm import norm_of
from attnsvm.svm.reference import expression
from benchmarks.solvers import Array, Mask, rows

CLARABEL = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def least(norm: str, d: int, constraints: Callable[[Any], list[Any]], **options: Any) -> Any:
    """Return the W (d, d) of least norm that CVXPY calls optimal, None without one."""
    W = cp.Variable((d, d))
    problem = cp.Problem(cp.Minimize(expression(norm_of(norm), W)), constraints(W))
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
    return None if W is None else norm_of(norm).value(torch.from_numpy(W)).item()


METHODS = {
    ("frobenius", "cvxpy default"): partial(solve, "frobenius", {}),
    ("nuclear", "cvxpy default (SCS)"): partial(solve, "nuclear", {}),
    ("nuclear", "Clarabel 1e-10"): partial(solve, "nuclear", CLARABEL),
}
