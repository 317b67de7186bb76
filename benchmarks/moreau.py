"""Batches of 100 instances of Att-SVM beside moreau 0.4.1, the strongest peer that we know.

Frobenius norm: its active set on the Gram matrix of the dual. Nuclear norm: its interior point, W a
block of a positive semidefinite matrix. Gram matrix and rows count; it proves nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import moreau
import numpy as np
import torch

from attnsvm.svm import SvmProblem, solve
from benchmarks._measure import best_in_turn, print_head, print_row
from benchmarks.svm import instances

SHAPES = (5, 5, 5), (6, 8, 10), (15, 5, 20)
REPEATS = {"frobenius": 40, "nuclear": 1}


def main() -> None:
    """Print processor times of an instance, their ratio, and moreau's largest error."""
    torch.set_num_threads(1)
    print_head("n, T, d", "norm", "ours", "moreau", "ratio", "largest error of moreau")
    for shape in SHAPES:
        problem = instances(*shape)
        for norm, program in (("frobenius", active_set), ("nuclear", interior_point)):
            ours, theirs = partial(solve, problem, norm, shape[1]), program(problem)
            solution, W = ours(), theirs()
            upper = solution.minimised.value(W) / problem.margins(W).amin(dim=1)
            works: Any = {"ours": (ours, problem.B), "moreau": (theirs, problem.B)}
            best = best_in_turn(works, REPEATS[norm])
            (_, a), (_, b) = best.values()
            error = (upper / solution.objective - 1).abs().max()
            times = f"{a / 1e3:.3f} ms", f"{b / 1e3:.3f} ms"
            print_row(shape, norm, *times, f"{b / a:.1f}", f"{error:.0e}")


def active_set(problem: SvmProblem) -> Callable[[], Any]:
    """Return the program that finds W (B, d, d) by max 1^T a - a^T K a / 2, a >= 0."""
    B, N = problem.h.shape
    of_K, of_A = (np.arange(N + 1) * N, np.tile(np.arange(N), N)), (np.arange(N + 1), np.arange(N))
    solver = _compiled(B, N, N, of_K, of_A, "active_set", moreau.Cones(num_nonneg_cones=N))

    def run() -> Any:
        D, Q = problem.D, problem.queries
        K = (D @ D.mT) * (Q @ Q.mT)
        solver.setup(K.flatten(1).numpy(), -np.ones((B, N)))
        a = solver.solve(-np.ones((B, N)), np.zeros((B, N))).x
        return problem.combine(torch.from_numpy(np.asarray(a)))

    return run


def interior_point(problem: SvmProblem) -> Callable[[], Any]:
    """Return the program that finds W by min tr Y / 2, Y = [[Y_1, W], [W^T, Y_2]] >= 0."""
    (B, N), d = problem.h.shape, problem.d
    place = {(i, j): j * (j + 1) // 2 + i for j in range(2 * d) for i in range(j + 1)}
    of_W = np.array([place[i, d + j] for i in range(d) for j in range(d)])
    order, count = np.argsort(of_W), len(place)
    trace = np.zeros((B, count))
    trace[:, [place[i, i] for i in range(2 * d)]] = 0.5
    cone = moreau.DirectConeSpec(kind="psd_triangle", indices=list(range(count)), psd_k=2 * d)
    cones = moreau.Cones(num_nonneg_cones=N, dir_cones=[cone])
    of_A = np.arange(N + 1) * d * d, np.tile(of_W[order], N)
    none = np.zeros(count + 1, dtype=int), np.zeros(0, dtype=int)
    solver = _compiled(B, count, N, none, of_A, "ipm", cones)

    def run() -> Any:
        G = (problem.D[..., None] * problem.queries[:, :, None]).flatten(2)[..., order]
        solver.setup(np.zeros((B, 0)), -(G / 2**0.5).flatten(1).numpy())
        W = np.asarray(solver.solve(trace, -np.ones((B, N))).x)[:, of_W]
        return torch.from_numpy(W.reshape(B, d, d) / 2**0.5)

    return run


def _compiled(B: int, n: int, m: int, of_P: Any, of_A: Any, solver: str, cones: Any) -> Any:
    settings = moreau.Settings(solver=solver, device="cpu", batch_size=B)
    return moreau.CompiledSolver(n, m, *of_P, *of_A, cones, settings)
