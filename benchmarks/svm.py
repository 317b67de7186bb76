"""The SVM solvers against named peers, per instance, at our 1e-9 certificate, as ratios of one run.

Ours solves a batch of 100 instances, certificate included; a peer is called as its user would call
it, one instance after the other, and proves nothing. `on_device` runs ours alone.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import torch

from attnsvm import sample
from attnsvm.norm import norm_of
from attnsvm.selection import optimal_tokens
from attnsvm.svm import SvmProblem, multi_token, single_token, solve
from attnsvm.svm.frobenius import from_gram
from benchmarks._measure import print_head, print_row, seconds

CLARABEL = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
SHAPES = ((5, 5, 5), (5, 5, 20), (6, 8, 10), (15, 5, 20), (5, 15, 20))
NORMS = ["frobenius", "nuclear"]
TRIALS = 100


def instances(n: int, T: int, d: int, trials: int = TRIALS) -> SvmProblem:
    """Return the published instances, optimal tokens selected."""
    batch = sample("sphere", n=n, T=T, d=d, trials=trials)
    return single_token(batch.X, batch.Z, optimal_tokens(batch)[0])


def general(n: int, T: int, d: int, trials: int = TRIALS) -> SvmProblem:
    """Return the margin part of Gen-SVM with the two best tokens attended."""
    batch = sample("sphere", n=n, T=T, d=d, trials=trials)
    best = batch.scores().topk(2, dim=2).indices
    attended = torch.zeros(batch.X.shape[:3], dtype=torch.bool).scatter(2, best, True)
    return multi_token(batch.X, batch.Z, attended)


PROBLEMS = {"Att-SVM": instances, "Gen-SVM": general}


def main() -> None:
    """Print the ratios for every norm and for Gen-SVM."""
    torch.set_num_threads(1)
    default: dict[str, Any] = {"cvxpy default": {}}
    clarabel = default | {"Clarabel 1e-10": CLARABEL}
    others = ["spectral", "max", "l1", "l1.75", "l3"]
    for title, make, norms, peers in (
        ("Att-SVM, Frobenius", instances, ["frobenius"], default),
        ("Att-SVM, nuclear", instances, ["nuclear"], clarabel),
        ("Att-SVM, other norms", instances, others, default),
        ("Gen-SVM, margin part, two tokens attended in each sample", general, NORMS, default),
    ):
        print(f"### {title}\n")
        columns = [column for name in peers for column in (name, "ratio")]
        print_head("n, T, d", "norm", "ours", *columns, "undecided of 100", "largest gap")
        for shape in SHAPES:
            for norm in norms:
                row(shape, make(*shape), norm, peers)
        print()


def row(shape: tuple[int, int, int], problem: SvmProblem, norm: Any, peers: dict[str, Any]) -> None:
    """Print one line: our time per instance, each peer's and the ratio."""
    solution = solve(problem, norm, shape[1])  # compiles what is compiled once
    ours = median(5, lambda _: solve(problem, norm, shape[1])) / problem.B
    cells = []
    for name, options in peers.items():
        count = 2 if "Clarabel" in name else 5
        peer = median(count, partial(cvxpy, problem, norm=norm, options=options))
        cells += [f"{1e3 * peer:.1f} ms", f"{peer / ours:.0f}"]
    status = list(solution.status)
    gap = solution.duality_gap[torch.tensor([word == "solved" for word in status])].max()
    undecided = status.count("undecided")
    print_row(shape, norm, f"{1e3 * ours:.3f} ms", *cells, undecided, f"{gap:.0e}")


def median(count: int, call: Callable[[int], Any]) -> float:
    """Return the median wall time of call(0), ..., call(count - 1), seconds."""
    return float(np.median([seconds(partial(call, k))[0] for k in range(count)]))


def cvxpy(problem: SvmProblem, b: int, norm: str, options: dict[str, Any]) -> None:
    """Solve instance b by CVXPY, written as a user writes it."""
    kind, h = problem.kind[b].numpy(), problem.h[b].numpy()
    D, Q = problem.D[b].numpy(), problem.queries[b].numpy()
    W = cp.Variable(problem.size)
    margins = cp.sum(cp.multiply(D @ W, Q), axis=1)
    rows = [margins[kind == 1] >= h[kind == 1], margins[kind == 2] == h[kind == 2]]
    program = cp.Problem(
        cp.Minimize(norm_of(norm).expression(W)), [row for row in rows if row.size]
    )
    with warnings.catch_warnings(), suppress(cp.error.SolverError):
        warnings.simplefilter("ignore")
        program.solve(**options)


def on_device(device: str = "cuda", batch: int = 10_000) -> None:
    """Print the time per instance on `device` and on the CPU, for batches of `batch` instances."""
    print_head(
        "problem", "n, T, d", "device", "per instance", "left to the CPU's rows", "undecided"
    )
    places = dict.fromkeys((device, "cpu"))
    for (title, make), shape, place in product(PROBLEMS.items(), SHAPES, places):
        problem = make(*shape, trials=batch).to(place)
        left = int((~from_gram(problem)[1]).sum())
        for norm in NORMS:
            solve(problem.take(slice(0, 10)), norm, shape[1])
            solution = solve(problem, norm, shape[1])
            took = f"{1e3 * solution.solve_time_s / batch:.4f} ms"
            undecided = list(solution.status).count("undecided")
            print_row(f"{title}, {norm}", shape, place, took, left, undecided)
