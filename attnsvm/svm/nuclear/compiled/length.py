"""How far a step may go: by ratios, and by bisection with a Cholesky factor as the test."""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.lanes.arithmetic import any_greater, fill, fma, load, most, store, where_greater
from attnsvm.lanes.cholesky import decompose
from attnsvm.lanes.matmul import product
from attnsvm.svm.laned import NO_BOUND

BOUNDARY = 0.98
"""Share of the way to the boundary of the cone."""

RESOLVED = 0.01
"""Relative uncertainty at which the way to the boundary is known."""

BISECTIONS = 40


@njit
def ratios(rows: Any, x: Any, dx: Any, z: Any) -> Any:
    """Return the lengths, at most 1 / BOUNDARY, to which s and a stay non-negative."""
    primal = dual = fill(BOUNDARY)
    for k in range(rows.n * rows.R):
        is_one, zero = load(rows.inequality, k), fill(0.0)
        primal = most((zero - load(dx.s, k)) / load(x.s, k) * is_one, primal)
        dual = most((zero - load(dx.a, k)) * load(z.inverse_a, k), dual)
    return fill(1.0) / primal, fill(1.0) / dual


@njit
def primal_length(rows: Any, x: Any, dx: Any, z: Any, longest: Any) -> Any:
    """Return BOUNDARY times a length, at most `longest`, to which Y stays positive definite."""
    P, low, high, t = rows.p + rows.q, fill(0.0), longest, longest
    for _ in range(BISECTIONS):
        for i in range(P):
            for j in range(i + 1):
                store(z.X, i * P + j, fma(t, load(dx.Y, i * P + j), load(x.Y, i * P + j)))
        inside = decompose(z.X, z.L, z.pivot, z.panel, P, 0.0)
        low, high, t = _bisected(low, high, t, inside)
        if not any_greater(high - low, fill(RESOLVED) * high):
            break
    return fill(BOUNDARY) * low


@njit
def _bisected(low: Any, high: Any, t: Any, inside: Any) -> Any:
    """Return the bracket of the length after the test of t, and the next length to test.

    `inside` is the last pivot of a Cholesky factor: NaN or infinite outside of the cone.
    """
    limit, open_at = fill(NO_BOUND), fill(RESOLVED) * high
    new_low, new_high = where_greater(limit, inside, t, low), where_greater(limit, inside, high, t)
    width = high - low
    low, high = (
        where_greater(width, open_at, new_low, low),
        where_greater(width, open_at, new_high, high),
    )
    return low, high, fill(0.5) * (low + high)


@njit
def dual_length(rows: Any, z: Any, longest: Any) -> Any:
    """Return BOUNDARY times a length to which I - M^T M, hence S, stays positive definite."""
    p, q, low, high, t = rows.p, rows.q, fill(0.0), longest, longest
    product((z.G1, q, 1), (z.M, 1, q), (z.dM, q, 1), (q, q, p))
    product((z.G2, q, 1), (z.dM, 1, q), (z.dM, q, 1), (q, q, p))
    for _ in range(BISECTIONS):
        for i in range(q):
            for j in range(i + 1):
                linear = load(z.G1, i * q + j) + load(z.G1, j * q + i)
                less = t * fma(t, load(z.G2, i * q + j), linear)
                store(z.X, i * q + j, load(z.G, i * q + j) - less)
        inside = decompose(z.X, z.L, z.pivot, z.panel, q, 0.0)
        low, high, t = _bisected(low, high, t, inside)
        if not any_greater(high - low, fill(RESOLVED) * high):
            break
    return fill(BOUNDARY) * low
