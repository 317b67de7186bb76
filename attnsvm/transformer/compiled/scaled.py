"""Vectors v e^c, compiled: eight instances a vector, as `transformer.scaled`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import (
    at,
    exp,
    fill,
    fma,
    load,
    logarithm,
    magnitude,
    most,
    store,
    where_equal,
    where_greater,
)


@njit  # type: ignore[untyped-decorator]
def largest_entry(vector: int, d: int) -> Any:
    """Return max_j |v_j|."""
    size = fill(0.0)
    for j in range(d):
        size = most(magnitude(load(vector, j)), size)
    return size


@njit  # type: ignore[untyped-decorator]
def log_size(vector: int, exponent: Any, d: int) -> Any:
    """Return log max_j |v_j| e^exponent; -inf for a vector of zeros."""
    size = largest_entry(vector, d)
    return where_greater(size, fill(0.0), logarithm(size) + exponent, fill(-np.inf))


@njit  # type: ignore[untyped-decorator]
def normalize(vector: int, exponent: int, d: int) -> None:
    """Divide a vector by its largest magnitude and add the logarithm to its exponent."""
    size = largest_entry(vector, d)
    one, none = fill(1.0), fill(-np.inf)
    nothing = where_greater(size, fill(0.0), fill(0.0), one)
    size = where_equal(nothing, one, one, size)
    inverse = one / size
    for j in range(d):
        store(vector, j, load(vector, j) * inverse)
    e = load(exponent, 0) + logarithm(size)
    store(exponent, 0, where_equal(nothing, one, none, e))


@njit  # type: ignore[untyped-decorator]
def forget_zeros(vectors: int, exponents: int, count: int, d: int) -> None:
    """Set the exponent of every vector of zeros to -inf: it adds nothing to a sum."""
    zero, none = fill(0.0), fill(-np.inf)
    for k in range(count):
        size = largest_entry(at(vectors, k * d), d)
        store(exponents, k, where_greater(size, zero, load(exponents, k), none))


@njit  # type: ignore[untyped-decorator]
def add_scaled(sums: int, scale: int, vector: int, exponent: Any, sign: float, d: int) -> None:
    """Add sign times a vector v e^exponent to the one at `sums`, with its exponent at `scale`."""
    known = load(scale, 0)
    common = most(known, exponent)
    kept, share = exp(known - common), fill(sign) * exp(exponent - common)
    for j in range(d):
        store(sums, j, fma(share, load(vector, j), kept * load(sums, j)))
    store(scale, 0, common)
