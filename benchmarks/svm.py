"""Certified SVMs beside the solvers that their users have: CVXPY, moreau, LinearSVC, Clarabel.

Ours solves 100 instances, proof of a gap of at most 1e-9 included. CVXPY solves one instance after
the other, moreau, the batched solver by its authors, as many as it does in seconds: by its active
set on the Gram matrix of the dual, or its interior point with W a block of a positive semidefinite
matrix. No peer proves anything. `one`: a single instance of up to 4096 rows, with peak memory, also
by LinearSVC (no intercept) and Clarabel on the vectorised rows, where they can. `large`: 100 000
rows, 10 000 in further norms.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

import cvxpy as cp
import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from attnsvm import sample
from attnsvm.norm import norm_of
from attnsvm.selection import optimal_tokens
from attnsvm.svm import SvmProblem, multi_token, single_token, solve
from benchmarks._measure import OURS, Program, Work

Array = NDArray[np.float64]
Peer = Callable[[SvmProblem], Callable[[], Tensor]]
"""Prepares the program that finds the W (B, d, d) of a problem."""
TIGHT = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
MOST_OF_ROWS = 16 * 31 * 32 * 32
"""Most entries of vectorised rows for which LinearSVC and Clarabel are called."""


def problem_of(kind: str, trials: int, n: int, T: int, d: int) -> SvmProblem:
    """Return published instances: Att-SVM of the optimal tokens, or the margins of Gen-SVM.

    In Gen-SVM the two best tokens of each sample are attended.
    """
    batch = sample("sphere", n=n, T=T, d=d, trials=trials)
    if kind == "Att-SVM":
        return single_token(batch.X, batch.Z, optimal_tokens(batch)[0])
    best = batch.scores().topk(2, dim=2).indices
    attended = torch.zeros(batch.X.shape[:3], dtype=torch.bool).scatter(2, best, True)
    return multi_token(batch.X, batch.Z, attended)


def programs(kind: str, norm: Any, trials: int, n: int, T: int, d: int) -> dict[str, Program]:
    """Return ours and the peers that can solve the problem."""
    batch = problem_of(kind, trials, n, T, d)
    ours = partial(solve, batch, norm, T)
    result = {OURS: Program(ours, trials, lambda: ours().objective)}
    for name, count, peer in peers(kind, norm, batch):
        few = batch.take(slice(count))
        call = peer(few)
        result[name] = Program(call, few.B, partial(least_norms, call, few, norm))
    return result


def peers(kind: str, norm: str, batch: SvmProblem) -> Iterator[tuple[str, int, Peer]]:
    """Yield names of peers, how many instances they get, and how they are prepared."""
    if batch.B > 1:
        yield "CVXPY", 5, lambda few: partial(cvxpy, few, norm, {})
        if norm == "nuclear":
            yield "Clarabel at 1e-10 by CVXPY", 2, lambda few: partial(cvxpy, few, norm, TIGHT)
        if kind == "Att-SVM" and norm in BOTH and find_spec("moreau"):
            yield "moreau", 100 if norm == "frobenius" else 10, partial(moreau, norm=norm)
    elif (kind, norm) == ("Att-SVM", "frobenius") and batch.h.shape[1] * batch.d**2 <= MOST_OF_ROWS:
        yield "LinearSVC, C = 1e6", 1, lambda few: partial(linear_svc, few)
        yield "Clarabel", 1, lambda few: partial(clarabel, few)


def least_norms(call: Callable[[], Tensor], problem: SvmProblem, norm: Any) -> Tensor:
    """Return the norms (B,) of the W that a program finds, scaled to a margin of one."""
    W = call()
    margins = problem.margins(W).where(problem.kind == 1, torch.inf)
    return norm_of(norm).value(W) / margins.amin(dim=1)


def vectorised(problem: SvmProblem) -> Array:
    """Return the rows d_k z_k^T of each instance, (B, N, d^2)."""
    return (problem.D[..., None] * problem.queries[:, :, None]).flatten(2).numpy()


def cvxpy(problem: SvmProblem, norm: str, options: dict[str, Any]) -> Tensor:
    """Solve one instance after the other, written as a user writes it; NaN: no solution."""
    solutions = []
    for kind, h, D, Q in zip(
        *(x.numpy() for x in (problem.kind, problem.h, problem.D, problem.queries)), strict=True
    ):
        W = cp.Variable(problem.size)
        margins = cp.sum(cp.multiply(D @ W, Q), axis=1)
        rows = [margins[kind == 1] >= h[kind == 1], margins[kind == 2] == h[kind == 2]]
        size = norm_of(norm).expression(W)
        program = cp.Problem(cp.Minimize(size), [row for row in rows if row.size])
        with warnings.catch_warnings(action="ignore"), suppress(cp.error.SolverError):
            program.solve(**options)
        solutions.append(np.full(problem.size, np.nan) if W.value is None else W.value)
    return torch.as_tensor(np.stack(solutions))


def linear_svc(problem: SvmProblem) -> Tensor:
    from sklearn.svm import LinearSVC

    (G,) = vectorised(problem)
    signs = np.where(np.arange(len(G)) % 2, 1.0, -1.0)  # it wants two classes
    model = LinearSVC(C=1e6, loss="hinge", fit_intercept=False, max_iter=10**6, tol=1e-8)
    with warnings.catch_warnings(action="ignore"):
        w = model.fit(G * signs[:, None], signs).coef_
    return torch.as_tensor(w).view(1, *problem.size)


def clarabel(problem: SvmProblem) -> Tensor:
    import qpsolvers

    (G,) = vectorised(problem)
    P, rows = sparse.eye(G.shape[1], format="csc"), (sparse.csc_matrix(-G), -np.ones(len(G)))
    w = qpsolvers.solve_qp(P, np.zeros(G.shape[1]), *rows, solver="clarabel")
    return torch.as_tensor(w).view(1, *problem.size)


def moreau(problem: SvmProblem, norm: str) -> Callable[[], Tensor]:
    """Return moreau's program for a batch; its matrices are built beforehand."""
    import moreau

    (B, N), d, D, Q = problem.h.shape, problem.d, problem.D, problem.queries
    if norm == "frobenius":  # max 1^T a - a^T P a / 2, a >= 0
        method, cone, count = "active_set", {}, N
        P, A = ((D @ D.mT) * (Q @ Q.mT)).numpy(), np.tile(-np.eye(N), (B, 1, 1))
        q, b = -np.ones((B, N)), np.zeros((B, N))
    else:  # min tr Y / 2, Y = [[Y_1, W], [W^T, Y_2]] >= 0, by columns of the upper triangle
        column, row = np.tril_indices(2 * d)
        method, count, of_W = "ipm", len(row), (row < d) & (column >= d)
        psd = moreau.DirectConeSpec(kind="psd_triangle", indices=list(range(count)), psd_k=2 * d)
        cone, P, A = {"dir_cones": [psd]}, np.zeros((B, count, count)), np.zeros((B, N, count))
        A[:, :, of_W] = -vectorised(problem).reshape(B, N, d, d).swapaxes(2, 3).reshape(B, N, -1)
        A /= 2**0.5
        q, b = np.tile((row == column) / 2, (B, 1)), -np.ones((B, N))
    entries = [(matrix != 0).any(axis=0) for matrix in (P, A)]
    patterns = [x for M in map(sparse.csr_array, entries) for x in (M.indptr, M.indices)]
    solver = moreau.CompiledSolver(
        count,
        N,
        *patterns,
        moreau.Cones(num_nonneg_cones=N, **cone),
        moreau.Settings(solver=method, device="cpu", batch_size=B),
    )

    def run() -> Tensor:
        solver.setup(P[:, entries[0]], A[:, entries[1]])
        x = np.array(solver.solve(q, b).x)
        if norm == "frobenius":
            return problem.combine(torch.from_numpy(x))
        return torch.from_numpy(x[:, of_W] / 2**0.5).view(B, d, d).mT

    return run


SHAPES = (5, 5, 5), (5, 5, 20), (6, 8, 10), (15, 5, 20), (5, 15, 20)
SIZES = (
    *((8, 16, 32), (16, 32, 32), (16, 32, 64), (32, 17, 64), (32, 33, 64), (32, 65, 64)),
    *((32, 129, 64), (32, 65, 32), (32, 65, 128), (32, 65, 256), (32, 33, 128), (64, 64, 256)),
)
LARGE_SIZES = (100, 1001, 128), (100, 1001, 256), (100, 1001, 512), (100, 101, 128)
BOTH, OTHER = ("frobenius", "nuclear"), ("spectral", "max", "l1", "l1.75", "l3")


def _works(kind: str, norms: tuple[str, ...], shapes: Any, trials: int = 100) -> list[Work]:
    name, small = (kind, None) if trials > 1 else (f"one {kind}", (2, 3, 4))
    return [
        Work(f"{name}, {norm}", "n, T, d", shape, partial(programs, kind, norm, trials), small)
        for norm in norms
        for shape in shapes
    ]


WORKS = [
    *_works("Att-SVM", BOTH + OTHER, SHAPES),
    *_works("Gen-SVM", BOTH, SHAPES),
    *_works("Att-SVM", BOTH[:1], SIZES[:2], trials=1),
]
ONE = [*_works("Att-SVM", BOTH, SIZES, trials=1), *_works("Gen-SVM", BOTH, SIZES, trials=1)]
LARGE = [
    *_works("Att-SVM", BOTH[:1], LARGE_SIZES[:3], trials=1),
    *_works("Att-SVM", BOTH[1:], LARGE_SIZES[:1], trials=1),
    *_works("Att-SVM", OTHER, LARGE_SIZES[3:], trials=1),
]
