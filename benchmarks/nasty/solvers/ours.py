"""attnsvm: it states a solution only with a proof."""

import numpy as np
from benchmark_utils import OneByOne
from benchopt import BaseSolver

import attnsvm


class Solver(OneByOne, BaseSolver):
    """`attnsvm.solve_svm`."""

    name = "attnsvm"
    norms = ("frobenius", "nuclear")

    def warm_up(self):
        self.run_once()  # it compiles

    def solve(self, X, Z, mask):
        selected = np.zeros(len(X), dtype=np.int64)
        solution = attnsvm.solve_svm(X, Z, selected, norm=self.norm, mask=mask)
        return solution.W if solution.status in ("solved", "unconstrained") else None
