"""Difficult instances with exact truth (`benchmarks/nasty`): verdicts of named solvers.

Frobenius: the exact norm is known. `right`: the verdict is right and the norm within 1e-6 (or
64 eps kappa). `silent error`: a solution stated for an infeasible instance, or with a wrong norm.
`no answer`: a feasible instance that was given up or called infeasible. A solver that fails on an
infeasible instance is counted as right.
Nuclear, every fourth instance: the truth is the norm of our solution where the arithmetic of
`attnsvm-verify` proves it; elsewhere a norm that is stated is `not judged`.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

import attnsvm
from attnsvm.verify import verify
from benchmarks._measure import print_head, print_row
from benchmarks.nasty import Difficult, load
from benchmarks.solvers import Method, methods
from tests.svm.instances import stored_svms

EPS = np.finfo(float).eps
LIMITS = {"kappa <= 1e3": 1e3, "kappa <= 1e6": 1e6, "kappa <= 1e12": 1e12, "beyond": math.inf}
WORDS = ("right", "silent error", "no answer", "not judged")


def main() -> None:
    """Print one table per norm."""
    torch.set_num_threads(1)
    difficult = list(load())
    print_table("frobenius", difficult, [one.norm for one in difficult])
    fourth = difficult[::4]
    print_table("nuclear", fourth, [nuclear_norm(one) for one in fourth])


def nuclear_norm(one: Difficult) -> float | None:
    """Return the least nuclear norm where it is proved; NaN if no W exists, None if not known."""
    if math.isnan(one.norm):
        return math.nan
    X, Z, mask = one.X[None], one.Z[None], one.mask[None]
    selected = np.zeros((1, len(one.X)), dtype=np.int64)
    solution = attnsvm.solve_svm(X, Z, selected, norm="nuclear", mask=mask)
    (stored,) = stored_svms(solution, X, Z, selected, mask)
    decided = stored.status in ("solved", "unconstrained") and verify(stored).proved
    return stored.objective if decided else None


def print_table(norm: str, difficult: Sequence[Difficult], truths: Sequence[float | None]) -> None:
    """Print right / silent error / no answer / not judged of each solver, by conditioning."""
    classes = ("infeasible", *LIMITS)
    words = WORDS if None in truths else WORDS[:3]
    print(f"### {norm}: {' / '.join(words)}\n")
    print_head("method", *classes)
    for name, method in methods(norm).items():
        counts = counted(method, difficult, truths)
        print_row(name, *(" / ".join(str(counts[c, word]) for word in words) for c in classes))
    print()


def counted(
    method: Method, difficult: Sequence[Difficult], truths: Sequence[float | None]
) -> Counter[tuple[str, str]]:
    """Return how many instances of each class of conditioning got each word."""
    return Counter(
        (class_of(one.kappa), verdict(method(one.X, one.Z, one.mask), truth, one.kappa))
        for one, truth in zip(difficult, truths, strict=True)
    )


def class_of(kappa: float) -> str:
    """Return the class of a conditioning, NaN where no W exists."""
    return next((name for name, limit in LIMITS.items() if kappa <= limit), "infeasible")


def verdict(stated: float | None, truth: float | None, kappa: float) -> str:
    """Compare a stated norm (None: not solved) with the truth (NaN: infeasible; None: unknown)."""
    if stated is None:
        return "right" if truth is not None and math.isnan(truth) else "no answer"
    if truth is None:
        return "not judged"
    tolerance = max(1e-6, 64 * EPS * kappa)  # nothing is within it of NaN
    return "right" if abs(stated - truth) <= tolerance * truth else "silent error"
