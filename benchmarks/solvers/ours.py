"""attnsvm: `solve_svm`."""

from __future__ import annotations

from functools import partial

import torch

import attnsvm
from benchmarks.solvers import Array, Mask


def solve(norm: str, X: Array, Z: Array, mask: Mask) -> float | None:
    """Return the certified least norm; None if it is not certified."""
    selected = torch.zeros(len(X), dtype=torch.int64)
    tensors = (torch.from_numpy(x) for x in (X, Z))
    solution = attnsvm.solve_svm(*tensors, selected, norm=norm, mask=torch.from_numpy(mask))
    decided = solution.status in ("solved", "unconstrained")
    return solution.objective.item() if decided else None


METHODS = {(norm, "attnsvm"): partial(solve, norm) for norm in ("frobenius", "nuclear")}
