"""Vectors v e^c, compiled: eight instances a vector, as `transformer.scaled`.

A vector with its exponent behind it has d + 1 entries.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import exp, fill, logarithm, maximum, where
from attnsvm.linalg.simd.array import LaneArray


@njit
def largest_entry(v: LaneArray) -> Any:
    """Return max_j |v_j|."""
    size = fill(0.0)
    for j in range(len(v)):
        size = maximum(abs(v[j]), size)
    return size


@njit
def log_size(v: LaneArray, exponent: Any) -> Any:
    """Return log max_j |v_j| e^exponent; -inf for a vector of zeros."""
    size = largest_entry(v)
    return where(size > 0, logarithm(size) + exponent, -np.inf)


@njit
def normalize(v: LaneArray) -> None:
    """Divide a vector by its largest magnitude and add the logarithm to the exponent behind it."""
    d = len(v) - 1
    size = largest_entry(v[:d])
    some = size > 0
    size = where(some, size, 1)
    inverse = 1 / size
    for j in range(d):
        v[j] *= inverse
    v[d] = where(some, v[d] + logarithm(size), -np.inf)


@njit
def forget_zeros(vectors: LaneArray, exponents: LaneArray) -> None:
    """Set the exponent of every vector of zeros to -inf: it adds nothing to a sum."""
    for k in range(len(vectors)):
        exponents[k] = where(largest_entry(vectors[k]) > 0, exponents[k], -np.inf)


@njit
def add_scaled(total: LaneArray, v: LaneArray, exponent: Any, sign: float) -> None:
    """Add sign times v e^exponent to `total`, which has its exponent behind it."""
    d = len(total) - 1
    known = total[d]
    common = maximum(known, exponent)
    kept, share = exp(known - common), sign * exp(exponent - common)
    for j in range(d):
        total[j] = share * v[j] + kept * total[j]
    total[d] = common
