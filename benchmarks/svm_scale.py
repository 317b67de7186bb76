"""One large instance: time and peak memory against N = n (T - 1) and d, and the measured exponents.

Each size runs in a process of its own, so that the peak is that size's. LinearSVC (no intercept,
large C) and Clarabel get the vectorised rows at the sizes that they can do.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

SHAPES = ((8, 16, 32), (16, 32, 64), (32, 32, 128), (64, 64, 256))
PEER_ROWS = 500


def main() -> None:
    """Print one table for both norms, then the peers."""
    print("| n, T, d | N | norm | time | peak memory over start | status | gap | active |")
    print("|---" * 8 + "|")
    for norm in ("frobenius", "nuclear"):
        sizes, seconds, megabytes = [], [], []
        for n, T, d in SHAPES:
            took, peak, status, gap, active = apart(ours, (n, T, d), norm)
            sizes.append(n * (T - 1) * d)
            seconds.append(took)
            megabytes.append(peak)
            cells = [f"{n}, {T}, {d}", n * (T - 1), norm, f"{took:.2f} s"]
            cells += [f"{peak:.0f} MiB", status, f"{gap:.0e}", active]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
        in_time, in_memory = slope(sizes[1:], seconds[1:]), slope(sizes[1:], megabytes[1:])
        print(f"| exponent in N d | | {norm} | {in_time:.2f} | {in_memory:.2f} | | | |")
    print("\n| n, T, d | method | time | norm over ours - 1 |")
    print("|---" * 4 + "|")
    for shape in SHAPES:
        if shape[0] * (shape[1] - 1) <= PEER_ROWS:
            for name, peer in (("LinearSVC, C = 1e6", linear_svc), ("Clarabel", clarabel)):
                took, excess = apart(peer, shape)
                print(f"| {shape} | {name} | {took:.2f} s | {excess:.0e} |", flush=True)


def slope(x: list[int], y: list[float]) -> float:
    """Return the exponent of y ~ x^e by least squares on logarithms."""
    return float(np.polyfit(np.log(x), np.log(np.maximum(y, 1e-9)), 1)[0])


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return function(*arguments), computed in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def instance(shape: tuple[int, int, int]) -> Any:
    from attnsvm import sample
    from attnsvm.selection import optimal_tokens
    from attnsvm.svm import single_token

    n, T, d = shape
    batch = sample("sphere", n=n, T=T, d=d, trials=1)
    return single_token(batch.X, batch.Z, optimal_tokens(batch)[0])


def ours(shape: tuple[int, int, int], norm: Any) -> tuple[float, float, str, float, int]:
    from attnsvm.svm import solve

    solve(instance((2, 3, 4)), norm, 3)  # imports and compiled code are not counted
    problem = instance(shape)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    solution = solve(problem, norm, shape[1])
    took = time.perf_counter() - begin
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) / 1024
    gap, active = solution.duality_gap.item(), int(solution.support.sum())
    return took, peak, str(solution.status[0]), gap, active


def rows(shape: tuple[int, int, int]) -> tuple[Any, float]:
    from attnsvm.svm import solve

    problem = instance(shape)
    G = (problem.D[0, :, :, None] * problem.queries[0, :, None, :]).flatten(1).numpy()
    return G, solve(problem, "frobenius", shape[1]).objective.item()


def linear_svc(shape: tuple[int, int, int]) -> tuple[float, float]:
    from sklearn.svm import LinearSVC

    G, known = rows(shape)
    signs = np.where(np.arange(len(G)) % 2, 1.0, -1.0)  # it wants two classes
    model = LinearSVC(C=1e6, loss="hinge", fit_intercept=False, max_iter=10**6, tol=1e-8)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(G * signs[:, None], signs)
    w = model.coef_[0]
    return time.perf_counter() - begin, float(np.linalg.norm(w) / (G @ w).min() / known - 1)


def clarabel(shape: tuple[int, int, int]) -> tuple[float, float]:
    import qpsolvers
    import scipy.sparse as sp

    G, known = rows(shape)
    p = G.shape[1]
    begin = time.perf_counter()
    w = qpsolvers.solve_qp(
        sp.eye(p, format="csc"), np.zeros(p), sp.csc_matrix(-G), -np.ones(len(G)), solver="clarabel"
    )
    return time.perf_counter() - begin, float(np.linalg.norm(w) / (G @ w).min() / known - 1)


if __name__ == "__main__":
    main()
