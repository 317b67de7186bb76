"""One large instance: time and peak memory against N = n (T - 1), against d, and jointly.

`python -m benchmarks.svm_scale` measures in minutes both norms, Att-SVM and Gen-SVM, up to
(n, T, d) = (64, 64, 256); with `--large` it measures Att-SVM with N = 100 000 instead, and with
N = 10 000 in further norms. Each size runs in a process of its own, so that the peak is that
size's. LinearSVC (no intercept, large C) and Clarabel get the vectorised rows at the sizes that
they can do.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

Shape = tuple[int, int, int]

SWEEPS: dict[str, tuple[Shape, ...]] = {
    "N": ((32, 17, 64), (32, 33, 64), (32, 65, 64), (32, 129, 64)),
    "d": ((32, 65, 32), (32, 65, 64), (32, 65, 128), (32, 65, 256)),
    "N d": ((16, 32, 64), (32, 33, 128), (64, 64, 256)),
}
LARGE: dict[str, tuple[Shape, ...]] = {
    "frobenius": ((100, 1001, 128), (100, 1001, 256), (100, 1001, 512)),
    "nuclear": ((100, 1001, 128),),
    **dict.fromkeys(("spectral", "max", "l1", "l1.75", "l3"), ((100, 101, 128),)),
}
PEER_SHAPES: tuple[Shape, ...] = ((8, 16, 32), (16, 32, 32))
HEAD = "| n, T, d | N | problem | time | peak memory over start | status | gap | active |"


def main() -> None:
    """Print the measured sizes of both norms and the exponents, then the peers."""
    measure(
        (norm, problem, against, shapes)
        for norm in ("frobenius", "nuclear")
        for problem in ("Att-SVM", "Gen-SVM")
        for against, shapes in SWEEPS.items()
        if problem == "Att-SVM" or against != "d"
    )
    print("\n| n, T, d | method | time | norm over ours - 1 |")
    print("|---" * 4 + "|")
    for shape in PEER_SHAPES:
        for name, peer in (("LinearSVC, C = 1e6", linear_svc), ("Clarabel", clarabel)):
            took, excess = apart(peer, shape)
            print(f"| {shape} | {name} | {took:.2f} s | {excess:.0e} |", flush=True)


def large() -> None:
    """Print the largest sizes of each norm."""
    measure((norm, "Att-SVM", "d", shapes) for norm, shapes in LARGE.items())


def measure(sweeps: Iterable[tuple[str, str, str, tuple[Shape, ...]]]) -> None:
    """Print a table: each (norm, problem, what varies, shapes), exponents where shapes vary."""
    print(f"{HEAD}\n{'|---' * 8}|")
    for norm, problem, against, shapes in sweeps:
        seconds, megabytes = [], []
        for n, T, d in shapes:
            took, peak, status, gap, active = apart(ours, (n, T, d), norm, problem)
            seconds.append(took)
            megabytes.append(peak)
            cells = [f"{n}, {T}, {d}", n * (T - 1), f"{problem}, {norm}", f"{took:.2f} s"]
            cells += [f"{peak:.0f} MiB", status, f"{gap:.0e}", active]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
        if len(shapes) == 1:
            continue
        sizes = [{"N": n * (T - 1), "d": d, "N d": n * (T - 1) * d}[against] for n, T, d in shapes]
        cells = [f"exponent in {against}", "", f"{problem}, {norm}"]
        cells += [f"{slope(sizes, seconds):.2f}", f"{slope(sizes, megabytes):.2f}", "", "", ""]
        print(f"| {' | '.join(cells)} |", flush=True)


def slope(x: list[int], y: list[float]) -> float:
    """Return the exponent of y ~ x^e by least squares on logarithms."""
    return float(np.polyfit(np.log(x), np.log(np.maximum(y, 1e-9)), 1)[0])


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return function(*arguments), computed in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def instance(shape: Shape, problem: str = "Att-SVM") -> Any:
    """Return the published instance, or the margin part of Gen-SVM on its two best tokens."""
    from benchmarks.svm import general, instances

    return (instances if problem == "Att-SVM" else general)(*shape, trials=1)


def ours(shape: Shape, norm: Any, kind: str) -> tuple[float, float, str, float, int]:
    """Return seconds, MiB, status, gap and the number of active tokens."""
    from attnsvm.svm import solve

    solve(instance((2, 3, 4)), norm, 3)  # imports and compiled code are not counted
    problem = instance(shape, kind)
    Path("/proc/self/clear_refs").write_text("5")  # or making the instance would count as the peak
    start = peak_mib()
    begin = time.perf_counter()
    solution = solve(problem, norm, shape[1])
    took = time.perf_counter() - begin
    peak = peak_mib() - start
    gap, active = solution.duality_gap.item(), int(solution.support.sum())
    return took, peak, str(solution.status[0]), gap, active


def peak_mib() -> float:
    """Return the most resident memory of this process since its peak was cleared, MiB (Linux)."""
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) / 1024


def rows(shape: Shape) -> tuple[Any, float]:
    from attnsvm.svm import solve

    problem = instance(shape)
    G = (problem.D[0, :, :, None] * problem.queries[0, :, None, :]).flatten(1).numpy()
    return G, solve(problem, "frobenius", shape[1]).objective.item()


def linear_svc(shape: Shape) -> tuple[float, float]:
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


def clarabel(shape: Shape) -> tuple[float, float]:
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.svm_scale", description=__doc__)
    parser.add_argument("--large", action="store_true", help="the largest sizes, nothing else")
    (large if parser.parse_args().large else main)()
