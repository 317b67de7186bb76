"""Solvers of quadratic programs through qpsolvers: at their default settings, and at 1e-10."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from benchmarks.solvers import Array, Mask, rows


def solve(solver: str, options: dict[str, Any], X: Array, Z: Array, mask: Mask) -> float | None:
    """Return ||w|| of min ||w||^2 / 2  s.t.  G w >= 1; None if the solver returns nothing."""
    import qpsolvers

    G = rows(X, Z, mask)
    if not len(G):
        return 0.0
    size = G.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            w = qpsolvers.solve_qp(
                np.eye(size), np.zeros(size), -G, -np.ones(len(G)), solver=solver, **options
            )
        except Exception:  # a solver's crash is its missing answer
            return None
    return None if w is None or not np.isfinite(w).all() else float(np.linalg.norm(w))


NAMES = ("daqp", "quadprog", "clarabel", "osqp", "piqp", "scs")
TIGHT = {
    "clarabel": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    "osqp": {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iter": 100_000},
    "piqp": {"eps_abs": 1e-10, "eps_rel": 1e-10},
    "scs": {"eps_abs": 1e-10, "eps_rel": 1e-10},
}
METHODS = {("frobenius", name): partial(solve, name, {}) for name in NAMES} | {
    ("frobenius", f"{name} 1e-10"): partial(solve, name, options) for name, options in TIGHT.items()
}
