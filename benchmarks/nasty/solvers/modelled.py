"""CVXPY, with its default solver and with Clarabel at 1e-10."""

import cvxpy as cp
from benchmark_utils import OneByOne, rows
from benchopt import BaseSolver

TIGHT = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


class Solver(OneByOne, BaseSolver):
    """`cvxpy.Problem.solve`."""

    name = "cvxpy"
    requirements = ["pip::cvxpy"]
    parameters = {"setting": ["default", "clarabel 1e-10"]}
    parameter_template = "{setting}"
    norms = ("frobenius", "nuclear")

    def solve(self, X, Z, mask):
        G, d = rows(X, Z, mask), X.shape[2]
        W = cp.Variable((d, d))
        size = cp.normNuc(W) if self.norm == "nuclear" else cp.norm(W, "fro")
        constraints = [G @ cp.vec(W, order="C") >= 1] if len(G) else []
        problem = cp.Problem(cp.Minimize(size), constraints)
        problem.solve(**(TIGHT if self.setting != "default" else {}))
        return W.value if problem.status == "optimal" else None
