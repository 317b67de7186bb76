"""Solvers of quadratic programs through qpsolvers: at their default settings, and at 1e-10."""

import numpy as np
import qpsolvers
from benchmark_utils import OneByOne, rows
from benchopt import BaseSolver

EPS = {"eps_abs": 1e-10, "eps_rel": 1e-10}
TIGHT = {
    "clarabel": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    "osqp": EPS | {"max_iter": 100_000},
    "piqp": EPS,
    "proxqp": EPS,
    "scs": EPS,
}
EXACT = ("daqp", "quadprog")  # active-set methods: they have no tolerance of the gap


class Solver(OneByOne, BaseSolver):
    """min ||w||^2 / 2  s.t.  G w >= 1."""

    name = "qpsolvers"
    requirements = ["pip::qpsolvers", *(f"pip::{name}" for name in (*EXACT, *TIGHT))]
    parameters = {
        "solver, setting": [(name, "default") for name in (*EXACT, *TIGHT)]
        + [(name, "1e-10") for name in TIGHT]
    }
    parameter_template = "{solver} {setting}"

    def skip(self, norm, problems):
        missing = self.solver not in qpsolvers.available_solvers
        return (True, "not installed") if missing else super().skip(norm, problems)

    def solve(self, X, Z, mask):
        G, size = rows(X, Z, mask), X.shape[2] ** 2
        if not len(G):
            return np.zeros((X.shape[2], X.shape[2]))
        options = {} if self.setting == "default" else TIGHT[self.solver]
        program = np.eye(size), np.zeros(size), -G, -np.ones(len(G))
        w = qpsolvers.solve_qp(*program, solver=self.solver, **options)
        return None if w is None else w.reshape(X.shape[2], -1)
