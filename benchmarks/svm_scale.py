"""One large instance: time and peak memory against N = n (T - 1), against d, and jointly.

`main` measures in minutes both norms, Att-SVM and Gen-SVM, up to (n, T, d) = (64, 64, 256); `large`
measures Att-SVM with N = 100 000, and with N = 10 000 in further norms. Each size runs in a process
of its own, so that the peak is that size's. LinearSVC (no intercept, large C) and Clarabel get the
vectorised rows at the sizes that they can do.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from attnsvm.svm import solve
from benchmarks._measure import apart, print_head, print_row, seconds, with_peak
from benchmarks.svm import PROBLEMS, instances

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


def large() -> None:
    """Print the largest sizes of each norm."""
    measure((norm, "Att-SVM", "d", shapes) for norm, shapes in LARGE.items())


def main() -> None:
    """Print the measured sizes of both norms and the exponents, then the peers."""
    measure(
        (norm, problem, against, shapes)
        for norm in ("frobenius", "nuclear")
        for problem in ("Att-SVM", "Gen-SVM")
        for against, shapes in SWEEPS.items()
        if problem == "Att-SVM" or against != "d"
    )
    print()
    print_head("n, T, d", "method", "time", "norm over ours - 1")
    for shape in PEER_SHAPES:
        for name in PEERS:
            took, excess = apart(peer_against_ours, name, shape)
            print_row(shape, name, f"{took:.2f} s", f"{excess:.0e}")


def measure(sweeps: Iterable[tuple[str, str, str, tuple[Shape, ...]]]) -> None:
    """Print a table: each (norm, problem, what varies, shapes), exponents where shapes vary."""
    columns = "time", "peak memory over start", "status", "gap", "active"
    print_head("n, T, d", "N", "problem", *columns)
    for norm, problem, against, shapes in sweeps:
        title, sizes = f"{problem}, {norm}", []
        for n, T, d in shapes:
            took, peak, *rest = apart(ours, (n, T, d), norm, problem)
            N = n * (T - 1)
            print_row((n, T, d), N, title, f"{took:.2f} s", f"{peak:.0f} MiB", *rest)
            sizes.append((took, peak, {"N": N, "d": d, "N d": N * d}[against]))
        if len(shapes) > 1:  # y ~ x^e, by least squares on logarithms
            logs = np.log(np.maximum(sizes, 1e-9))
            exponents = (f"{e:.2f}" for e in np.polyfit(logs[:, 2], logs[:, :2], 1)[0])
            print_row(f"exponent in {against}", "", title, *exponents, "", "", "")


def ours(shape: Shape, norm: Any, kind: str) -> tuple[float, float, str, str, int]:
    """Return seconds, MiB, status, gap and the number of active tokens."""
    solve(instances(2, 3, 4), norm, 3)  # imports and compiled code are not counted
    problem = PROBLEMS[kind](*shape, trials=1)
    solution, peak = with_peak(lambda: solve(problem, norm, shape[1]))
    gap, active = f"{solution.duality_gap.item():.0e}", int(solution.support.sum())
    return solution.solve_time_s, peak, str(solution.status[0]), gap, active


def peer_against_ours(peer: str, shape: Shape) -> tuple[float, float]:
    """Return seconds of a peer, and by how much its norm at margin 1 exceeds ours, relatively."""
    problem = instances(*shape, trials=1)
    G = (problem.D[0, :, :, None] * problem.queries[0, :, None, :]).flatten(1).numpy()
    known = solve(problem, "frobenius", shape[1]).objective.item()
    PEERS[peer](np.eye(2))  # imports are not counted
    solutions: list[Any] = []
    took = seconds(lambda: solutions.append(PEERS[peer](G)))[0]
    (w,) = solutions
    return took, float(np.linalg.norm(w) / (G @ w).min() / known - 1)


def linear_svc(G: Any) -> Any:
    from sklearn.svm import LinearSVC

    signs = np.where(np.arange(len(G)) % 2, 1.0, -1.0)  # it wants two classes
    model = LinearSVC(C=1e6, loss="hinge", fit_intercept=False, max_iter=10**6, tol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(G * signs[:, None], signs).coef_[0]


def clarabel(G: Any) -> Any:
    import qpsolvers

    size = G.shape[1]
    rows = -G, -np.ones(len(G))
    return qpsolvers.solve_qp(np.eye(size), np.zeros(size), *rows, solver="clarabel")


PEERS = {"LinearSVC, C = 1e6": linear_svc, "Clarabel": clarabel}
