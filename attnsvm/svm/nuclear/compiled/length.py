"""How far a step may go: by ratios, and by bisection with a Cholesky factor as the test."""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.simd.arithmetic import any_greater, fill, fma, load, most, store
from attnsvm.linalg.simd.cholesky import decompose
from attnsvm.linalg.simd.definite import BISECTIONS, RESOLVED, bisected, way
from attnsvm.linalg.simd.matmul import product

BOUNDARY = 0.98
"""Share of the way to the boundary of the cone."""


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
    work = (z.X, z.L, z.pivot, z.panel)
    return fill(BOUNDARY) * way(x.Y, dx.Y, work, rows.p + rows.q, longest)


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
        low, high, t = bisected(low, high, t, inside)
        if not any_greater(high - low, fill(RESOLVED) * high):
            break
    return fill(BOUNDARY) * low
