"""What Newton's methods for powers of a norm have in common: l_p and Schatten p, 1 < p < inf.

Their workspace z has W (p, q), and s, a, their steps ds and da, 1 / s and 1 / a, rs (N,).
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

import math
from typing import Any

from numba import njit

from attnsvm.linalg.simd.arithmetic import fill, load, magnitude, most, power, store, where_greater
from attnsvm.norm import conjugate
from attnsvm.svm.laned import NO_BOUND, least_margin

STEPS = 40
BACK = 0.995
"""Share of the largest step that keeps all variables positive."""

FACTOR = 1.75
"""Largest ratio of successive exponents, or of their conjugates below 2."""


def stages(p: float) -> list[float]:
    """Return exponents that lead from 2 to p: each solution is the start of the next."""
    larger = max(p, conjugate(p))
    count = math.ceil(math.log(larger / 2) / math.log(FACTOR))
    exponents = [2 * (larger / 2) ** (k / count) for k in range(1, count)]
    return [*(exponents if p > 2 else map(conjugate, exponents)), p]


@njit(inline="always")
def power_norm(x: int, count: int, p: float) -> Any:
    """Return (sum |x|^p)^(1/p), without overflow of the powers; NaN where an entry is."""
    largest = sums = fill(0.0)
    for j in range(count):
        largest = most(magnitude(load(x, j)), largest)
    unit = fill(1.0) / where_greater(largest, fill(0.0), largest, fill(1.0))
    for j in range(count):
        sums = sums + power(magnitude(load(x, j)) * unit, fill(p))
    return power(sums, fill(1.0 / p)) * largest


@njit(inline="always")
def start_slacks(rows: Any, W: int, a: int, z: Any) -> None:
    """Write W, s and a > 0 near a given W and a whose margins are in z."""
    m, N, zero, one, half = rows.p * rows.q, rows.n * rows.R, fill(0.0), fill(1.0), fill(0.5)
    fixed = slack = top = zero
    for k in range(N):
        h = where_greater(load(rows.inequality, k), half, zero, load(rows.h, k))
        fixed = most(magnitude(h), fixed)
        slack = most(magnitude(load(rows.h, k)), slack)
        top = most(load(a, k) * load(rows.inequality, k), top)
    stretch = least_margin(rows, z.margin)
    stretch = where_greater(stretch, fill(0.5 * NO_BOUND), one, stretch)
    stretch = one / where_greater(fixed, zero, one, stretch)
    for j in range(m):
        store(z.W, j, load(W, j) * stretch)
    for k in range(N):
        is_one, a_k = load(rows.inequality, k), load(a, k)
        s = most(load(z.margin, k) * stretch - load(rows.h, k), fill(0.1) * slack)
        store(z.s, k, where_greater(is_one, half, s, one))
        a_k = where_greater(is_one, half, most(a_k, zero) + fill(0.1) * top, a_k)
        store(z.a, k, a_k * load(rows.real, k))


@njit(inline="always")
def residuals(rows: Any, z: Any) -> Any:
    """Write the residuals of the rows and reciprocals; return mu and its count."""
    one, product, count = fill(1.0), fill(0.0), fill(0.0)
    for k in range(rows.n * rows.R):
        is_one, s, a = load(rows.inequality, k), load(z.s, k), load(z.a, k)
        product, count = product + s * a * is_one, count + is_one
        missing = (load(rows.h, k) - load(z.margin, k)) * load(rows.real, k)
        store(z.rs, k, missing + s * is_one)
        store(z.ia, k, where_greater(is_one, fill(0.5), one / a, one))
        store(z.si, k, one / s)
    count = most(count, one)
    tiny = where_greater(product, fill(0.0), product, one)  # without inequalities
    return tiny / count, count


@njit(inline="always")
def step_length(rows: Any, z: Any, back: Any) -> Any:
    """Return the step length, at most one: `back` times the way to zero of s or a."""
    worst, zero = fill(0.0), fill(0.0)
    for k in range(rows.n * rows.R):
        worst = most((zero - load(z.ds, k)) * load(z.si, k), worst)
        worst = most((zero - load(z.da, k)) * load(z.ia, k) * load(rows.inequality, k), worst)
    return fill(1.0) / most(worst / back, fill(1.0))
