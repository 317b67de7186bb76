"""Nasty instances with exact truth (tests/svm/nasty.py): our verdicts beside those of named peers.

Frobenius: the exact norm is known. `right`: the verdict is right and the norm within 1e-6 (or
64 eps kappa). `silent error`: a solution stated for an infeasible instance, or with a wrong norm.
`no answer`: a feasible instance that was given up or called infeasible. A peer that fails on an
infeasible instance is counted as right.
Nuclear: the truth is our bracket wherever it is proved; peers see every fourth instance.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnsvm.svm import SvmProblem, single_token, solve
from attnsvm.svm.reference import Cvxpy
from tests.svm.nasty import TRUTHS, Instance, instances

Array = NDArray[np.float64]
QP_PEERS = ("daqp", "quadprog", "clarabel", "osqp", "piqp", "scs")
EPS = np.finfo(float).eps
CLARABEL = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def main() -> None:
    """Print one table per norm."""
    torch.set_num_threads(1)
    truths = {(row[0], row[1]): (row[3], row[4]) for row in json.loads(TRUTHS.read_text())}
    table("Frobenius", frobenius_methods(), truths, step=1)
    table("nuclear", nuclear_methods(), truths, step=4)


def table(
    title: str,
    methods: dict[str, Callable[[Instance], float | None]],
    truths: dict[tuple[str, int], tuple[float | None, float | None]],
    step: int,
) -> None:
    """Print right / silent error / no answer of each method, by conditioning."""
    classes = ("infeasible", "kappa <= 1e3", "kappa <= 1e6", "kappa <= 1e12", "beyond")
    print(f"### {title}: right / silent error / no answer\n")
    print(f"| method | {' | '.join(classes)} |")
    print("|---" * (len(classes) + 1) + "|")
    norms = dict(proved(truths, title.lower(), step))
    for name, method in methods.items():
        counts = {c: Counter[str]() for c in classes}
        for instance in chosen(step):
            norm, kappa = truths[instance.family, instance.index]
            norm = norms[instance.family, instance.index]
            word = judge(method(instance), norm, kappa)
            counts[class_of(kappa, classes)][word] += 1
        words = ("right", "silent error", "no answer")
        cells = (" / ".join(str(counts[c][w]) for w in words) for c in classes)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print()


def chosen(step: int) -> Iterator[Instance]:
    for k, instance in enumerate(instances()):
        if k % step == 0:
            yield instance


def proved(
    truths: dict[tuple[str, int], tuple[float | None, float | None]], norm: str, step: int
) -> Iterator[tuple[tuple[str, int], float | None]]:
    """Yield the norm of each instance, exact (Frobenius) or certified by us (nuclear)."""
    for instance in chosen(step):
        exact = truths[instance.family, instance.index][0]
        if exact and norm == "nuclear":
            solution = solve(problem(instance), "nuclear", instance.X.shape[1])
            exact = solution.objective.item() if solution.status == ("solved",) else np.nan
        yield (instance.family, instance.index), exact


def class_of(kappa: float | None, classes: tuple[str, ...]) -> str:
    if kappa is None:
        return classes[0]
    return classes[1 + sum(kappa > limit for limit in (1e3, 1e6, 1e12))]


def judge(stated: float | None, norm: float | None, kappa: float | None) -> str:
    """Compare a stated norm (None: not solved) with the truth (None: infeasible; NaN: unknown)."""
    if stated is None:
        return "right" if norm is None else "no answer"
    if norm is None:
        return "silent error"
    tolerance = max(1e-6, 64 * EPS * (kappa or 0.0))
    return "right" if np.isnan(norm) or abs(stated - norm) <= tolerance * norm else "silent error"


def problem(instance: Instance) -> SvmProblem:
    X, Z, mask = (torch.from_numpy(x)[None] for x in (instance.X, instance.Z, instance.mask))
    return single_token(X, Z, torch.zeros(X.shape[:2], dtype=torch.int64), mask)


def ours(norm: Any) -> Callable[[Instance], float | None]:
    def method(instance: Instance) -> float | None:
        solution = solve(problem(instance), norm, instance.X.shape[1])
        decided = solution.status[0] in ("solved", "unconstrained")
        return solution.objective.item() if decided else None

    return method


def cvxpy(
    norm: Any, solver: str | None = None, **options: Any
) -> Callable[[Instance], float | None]:
    def method(instance: Instance) -> float | None:
        try:
            (reference,) = Cvxpy(norm, solver, **options).solutions(problem(instance))
        except Exception:  # a peer's crash is its missing answer
            return None
        if reference.status != "solved":
            return None
        size = np.linalg.norm(reference.W) if norm == "frobenius" else reference.objective
        return float(size)

    return method


def qp(solver: str) -> Callable[[Instance], float | None]:
    """Min ||w||^2 / 2  s.t.  G w >= 1 by a QP solver at its default settings."""
    import qpsolvers

    def method(instance: Instance) -> float | None:
        one = problem(instance)
        rows = one.kind[0] == 1
        G = (one.D[0, rows, :, None] * one.queries[0, rows, None, :]).flatten(1).numpy()
        p = G.shape[1]
        if not len(G):
            return 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                w = qpsolvers.solve_qp(np.eye(p), np.zeros(p), -G, -np.ones(len(G)), solver=solver)
            except Exception:  # a peer's crash is its missing answer
                return None
        return None if w is None or not np.isfinite(w).all() else float(np.linalg.norm(w))

    return method


def frobenius_methods() -> dict[str, Callable[[Instance], float | None]]:
    peers = {name: qp(name) for name in QP_PEERS}
    return {"ours": ours("frobenius"), "cvxpy default": cvxpy("frobenius"), **peers}


def nuclear_methods() -> dict[str, Callable[[Instance], float | None]]:
    return {
        "ours": ours("nuclear"),
        "cvxpy default (SCS)": cvxpy("nuclear"),
        "Clarabel 1e-10": cvxpy("nuclear", "CLARABEL", **CLARABEL),
    }


if __name__ == "__main__":
    main()
