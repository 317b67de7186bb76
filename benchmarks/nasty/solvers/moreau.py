"""moreau: its active set, also on the dual, where it is fastest, and its interior point."""

import moreau
import numpy as np
from benchmark_utils import OneByOne, rows
from benchopt import BaseSolver
from scipy import sparse


class Solver(OneByOne, BaseSolver):
    """min ||w||^2 / 2, G w >= 1, or its dual max 1^T a - a^T G G^T a / 2, a >= 0; defaults."""

    name = "moreau"
    requirements = ["pip::moreau"]
    parameters = {"method, dual": [("active_set", True), ("active_set", False), ("ipm", False)]}
    parameter_template = "{method}, dual={dual}"

    def solve(self, X, Z, mask):
        G, d = rows(X, Z, mask), X.shape[2]
        if not len(G):
            return np.zeros((d, d))
        N, size = G.shape
        P, q, A, b = np.eye(size), np.zeros(size), -G, -np.ones(N)
        if self.dual:
            P, q, A, b = G @ G.T, -np.ones(N), -np.eye(N), np.zeros(N)
        settings = moreau.Settings(solver=self.method, device="cpu")
        cones = moreau.Cones(num_nonneg_cones=N)
        solver = moreau.Solver(sparse.csr_array(P), q, sparse.csr_array(A), b, cones, settings)
        x = np.asarray(solver.solve().x)
        if solver.info.status != moreau.SolverStatus.Solved:
            return None
        return (G.T @ x if self.dual else x).reshape(d, d)
