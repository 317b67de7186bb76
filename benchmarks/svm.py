"""The SVM solvers against named peers, per instance, at our 1e-9 certificate, as ratios of one run.

Ours solves a batch of 100 instances, certificate included; a peer is called as its user would call
it, one instance after the other, and is not asked to prove anything. With `--device cuda --batch
10000` it is ours alone, on that device, beside the CPU.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from attnsvm import sample
from attnsvm.config.norm import family_of
from attnsvm.selection import optimal_tokens
from attnsvm.svm import SvmProblem, multi_token, single_token, solve
from attnsvm.svm.frobenius.least_distance import from_gram

SHAPES = ((5, 5, 5), (5, 5, 20), (6, 8, 10), (15, 5, 20), (5, 15, 20))
NORMS = ["frobenius", "nuclear"]
SCHATTEN = ["schatten1.5", "schatten3"]
TRIALS = 100
CLARABEL = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def main() -> None:
    """Print the ratios for every norm and for Gen-SVM."""
    torch.set_num_threads(1)
    default: dict[str, Any] = {"cvxpy default": {}}
    for title, make, norms in (
        ("Att-SVM, Frobenius", instances, ["frobenius"]),
        ("Att-SVM, nuclear", instances, ["nuclear"]),
        ("Att-SVM, other norms", instances, ["spectral", "max", "l1", "l1.75", "l3"]),
        ("Att-SVM, Schatten norms, which CVXPY does not know", instances, SCHATTEN),
        ("Gen-SVM, margin part, two tokens attended in each sample", general, NORMS),
    ):
        peers = default | ({"Clarabel 1e-10": CLARABEL} if norms == ["nuclear"] else {})
        peers = {} if norms == SCHATTEN else peers
        print(f"### {title}\n")
        columns = ["n, T, d", "norm", "ours", *(c for p in peers for c in (p, "ratio"))]
        columns += ["undecided of 100", "largest gap"]
        print("| " + " | ".join(columns) + " |")
        print("|" + "---|" * len(columns))
        for shape in SHAPES:
            for norm in norms:
                row(shape, make(*shape), norm, peers)
        print()


def on_device(device: str, batch: int) -> None:
    """Print the time per instance on `device` and on the CPU, for batches of `batch` instances."""
    print("| problem | n, T, d | device | per instance | left to the CPU's rows | undecided |")
    print("|---" * 6 + "|")
    for title, make in (("Att-SVM", instances), ("Gen-SVM", general)):
        for shape in SHAPES:
            for where in dict.fromkeys((device, "cpu")):
                problem = make(*shape, trials=batch).to(where)
                left = int((~from_gram(problem)[1]).sum())
                for norm in NORMS:
                    solve(problem.take(slice(0, 10)), norm, shape[1])
                    solution = solve(problem, norm, shape[1])
                    cells = [f"{title}, {norm}", ", ".join(map(str, shape)), where]
                    cells += [f"{1e3 * solution.solve_time_s / batch:.4f} ms", str(left)]
                    cells += [str(sum(status == "undecided" for status in solution.status))]
                    print(f"| {' | '.join(cells)} |", flush=True)


def row(shape: tuple[int, int, int], problem: SvmProblem, norm: Any, peers: dict[str, Any]) -> None:
    """Print one line: our time per instance, each peer's and the ratio."""
    solution = solve(problem, norm, shape[1])  # compiles what is compiled once
    ours = float(np.median([timed(solve, problem, norm, shape[1]) for _ in range(5)])) / problem.B
    cells = [", ".join(map(str, shape)), norm, f"{1e3 * ours:.3f} ms"]
    for name, options in peers.items():
        count = 2 if "Clarabel" in name else 5
        peer = float(np.median([timed(cvxpy, problem, b, norm, options) for b in range(count)]))
        cells += [f"{1e3 * peer:.1f} ms", f"{peer / ours:.0f}"]
    solved = torch.tensor([status == "solved" for status in solution.status])
    undecided = sum(status == "undecided" for status in solution.status)
    cells += [str(undecided), f"{solution.duality_gap[solved].max():.0e}"]
    print("| " + " | ".join(cells) + " |", flush=True)


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


def cvxpy(problem: SvmProblem, b: int, norm: str, options: dict[str, Any]) -> None:
    """Solve instance b by CVXPY, written as a user writes it."""
    import cvxpy as cp

    kind, h = problem.kind[b].numpy(), problem.h[b].numpy()
    D, Q = problem.D[b].numpy(), problem.queries[b].numpy()
    W = cp.Variable((problem.d, problem.d))
    margins = cp.sum(cp.multiply(D @ W, Q), axis=1)
    constraints = [margins[kind == 1] >= h[kind == 1]] if (kind == 1).any() else []
    constraints += [margins[kind == 2] == h[kind == 2]] if (kind == 2).any() else []
    of_matrix = {"frobenius": "fro", "nuclear": "nuc", "spectral": 2}
    if norm in of_matrix:
        size = cp.norm(W, of_matrix[norm])
    else:
        family, p = family_of(norm) or ("", 0.0)
        assert family == "l"
        size = cp.norm(cp.vec(W, order="C"), "inf" if p == np.inf else p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cp.Problem(cp.Minimize(size), constraints).solve(**options)


def timed(call: Callable[..., Any], *arguments: Any) -> float:
    """Return the wall time of the call, seconds."""
    begin = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begin


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.svm", description=__doc__)
    parser.add_argument("--device", help="cpu | cuda: ours alone, there and on the CPU")
    parser.add_argument("--batch", type=int, default=10_000, help="instances in a batch")
    given = parser.parse_args()
    on_device(given.device, given.batch) if given.device else main()
