"""Least nuclear norm under rows of any kind: processor time and errors beside CVXPY's solvers."""

from functools import partial

import cvxpy as cp
import numpy as np

import attnsvm
from benchmarks._measure import best_in_turn, print_head, print_row

SIZES = (6, 5, 12), (10, 8, 40), (20, 15, 100), (30, 20, 200)
REPEATS = 4


def main() -> None:
    """Print milliseconds of one problem, and how far the others are from the certified value."""
    rng = np.random.default_rng(0)
    print_head("(p, q, N)", "dense, ms", "factors, ms", "SCS, ms, error", "Clarabel, ms, error")
    for p, q, N in SIZES:
        A, b = rng.standard_normal((N, p, q)), np.abs(rng.standard_normal(N)) / 2
        factors = rng.standard_normal((N, p)), rng.standard_normal((N, q))
        X = cp.Variable((p, q))
        rows = [A.reshape(N, -1) @ cp.vec(X, order="C") >= b]
        problem = cp.Problem(cp.Minimize(cp.normNuc(X)), rows)
        certified = attnsvm.solve_least_norm(A, b, "nuclear")
        works = {
            "dense": partial(attnsvm.solve_least_norm, A, b, "nuclear"),
            "factors": partial(attnsvm.solve_least_norm, factors, b, "nuclear"),
            "SCS": partial(problem.solve, solver="SCS"),
            "CLARABEL": partial(problem.solve, solver="CLARABEL"),
        }
        spent = best_in_turn({name: (work, 1000) for name, work in works.items()}, REPEATS)
        cells = [f"{processor:.0f}" for _, processor in spent.values()]
        for k, solver in enumerate(("SCS", "CLARABEL"), 2):
            error = abs(problem.solve(solver=solver) / certified.objective - 1)
            cells[k] += f", {error:.0e}"
        print_row((p, q, N), *cells)
