"""Least nuclear norm under any linear rows, one problem at a time, beside CVXPY."""

from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np

import attnsvm
from benchmarks._measure import OURS, Program, Work

SIZES = (6, 5, 12), (10, 8, 40), (20, 15, 100), (30, 20, 200)


def programs(p: int, q: int, N: int) -> dict[str, Program]:
    """Return ours for dense rows and for rows of rank one, and two solvers of CVXPY."""
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((N, p, q)), np.abs(rng.standard_normal(N)) / 2
    factors = rng.standard_normal((N, p)), rng.standard_normal((N, q))
    X = cp.Variable((p, q))
    problem = cp.Problem(cp.Minimize(cp.normNuc(X)), [A.reshape(N, -1) @ cp.vec(X, order="C") >= b])

    def ours(rows: Any) -> Any:
        return attnsvm.solve_least_norm(rows, b, "nuclear").objective

    result = {OURS: Program(partial(ours, A), 1, partial(ours, A))}
    for solver in ("SCS", "Clarabel"):
        call = partial(problem.solve, solver=solver.upper())
        result[f"{solver} by CVXPY"] = Program(call, 1, call)
    return result | {"ours, rows of rank one": Program(partial(ours, factors))}


WORKS = [Work("least nuclear norm", "p, q, N", size, programs) for size in SIZES]
