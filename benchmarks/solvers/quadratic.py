"""Solvers of quadratic programs through qpsolvers: at their default settings, and at 1e-10."""

import warnings
from functools import partial
from typing import Any

import numpy as np

from benchmarks.solvers import Array, Mask, rows


def least(G: Array, solver: str, **options: Any) -> Array | None:
    """Return w of min ||w||^2 / 2  s.t.  G w >= 1; None if the solver returns nothing."""
    import qpsolvers

    size = G.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given = np.eye(size), np.zeros(size), -G, -np.ones(len(G))
            w: Array | None = qpsolvers.solve_qp(*given, solver=solver, **options)
        except Exception:  # a solver's crash is its missing answer
            return None
    return None if w is None or not np.isfinite(w).all() else w


def solve(solver: str, options: dict[str, Any], X: Array, Z: Array, mask: Mask) -> float | None:
    """Return the least norm that a solver states, None without one."""
    G = rows(X, Z, mask)
    w = least(G, solver, **options) if len(G) else np.zeros(1)
    return None if w is None else float(np.linalg.norm(w))


NAMES = ("daqp", "quadprog", "clarabel", "osqp", "piqp", "scs")
EPS = {"eps_abs": 1e-10, "eps_rel": 1e-10}
TIGHT: dict[str, dict[str, float]] = {
    "clarabel": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    "osqp": EPS | {"max_iter": 100_000},
    "piqp": EPS,
    "scs": EPS,
}
METHODS = {("frobenius", name): partial(solve, name, {}) for name in NAMES} | {
    ("frobenius", f"{name} 1e-10"): partial(solve, name, options) for name, options in TIGHT.items()
}
