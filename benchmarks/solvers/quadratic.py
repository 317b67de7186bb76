"""Solvers of quadratic programs at their default settings, through qpsolvers."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np

from benchmarks.solvers import Array, Mask, rows


def solve(solver: str, X: Array, Z: Array, mask: Mask) -> float | None:
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
                np.eye(size), np.zeros(size), -G, -np.ones(len(G)), solver=solver
            )
        except Exception:  # a solver's crash is its missing answer
            return None
    return None if w is None or not np.isfinite(w).all() else float(np.linalg.norm(w))


NAMES = ("daqp", "quadprog", "clarabel", "osqp", "piqp", "scs")
METHODS = {("frobenius", name): partial(solve, name) for name in NAMES}
