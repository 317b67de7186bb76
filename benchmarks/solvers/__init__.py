"""Solvers beside ours: one file each, which `python -m benchmarks svm_trust` finds.

A file defines `METHODS`, a mapping of (norm, name) to a function of (X, Z, mask) that returns the
least norm that the solver states, or None where it states no solution. Token 0 of each sample is
to be separated from the others; shapes are those of `benchmarks.nasty.Difficult`.
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

import attnsvm

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Method = Callable[[Array, Array, Mask], float | None]


def rows(X: Array, Z: Array, mask: Mask) -> Array:
    """Return the constraints G w >= 1 on the entries of W, (N, d^2)."""
    i, t = np.nonzero(mask[:, 1:])
    D = X[i, 0] - X[i, t + 1]
    return (D[:, :, None] * Z[i][:, None, :]).reshape(len(D), X.shape[2] ** 2)


def ours(norm: str, X: Array, Z: Array, mask: Mask) -> float | None:
    """Return the least norm that `attnsvm.solve_svm` certifies; None if it certifies none."""
    solution = attnsvm.solve_svm(X, Z, [0] * len(X), norm=norm, mask=mask)
    decided = solution.status in ("solved", "unconstrained")
    return solution.objective.item() if decided else None


def methods(norm: str) -> dict[str, Method]:
    """Return the methods for a norm by name, ours first."""
    found: dict[str, Method] = {"attnsvm": partial(ours, norm)}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found |= {name: method for (of, name), method in module.METHODS.items() if of == norm}
    return found
