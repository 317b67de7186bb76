"""How far a positive definite matrix whose entries are lanes may move, in compiled code.

By bisection: the test is a Cholesky factor, which is cheaper than an eigenvalue.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.simd.arithmetic import any_greater, fill, fma, load, store, where_greater
from attnsvm.linalg.simd.cholesky import decompose

RESOLVED = 0.2
"""Relative uncertainty at which the way to the boundary is known."""

BISECTIONS = 40

NO_PIVOT = 1e300
"""The last pivot of a Cholesky factor is below this inside of the cone, NaN or infinite outside."""


@njit
def way(A: int, dA: int, work: Any, size: int, longest: Any) -> Any:
    """Return a length, at most `longest`, to which A + length dA stays positive definite.

    `work` holds the addresses of a matrix and of L, 1 / L_ii and a panel, as for `decompose`.
    """
    (moved, L, pivot, panel), low, high, t = work, fill(0.0), longest, longest
    for _ in range(BISECTIONS):
        for i in range(size):
            for j in range(i + 1):
                store(moved, i * size + j, fma(t, load(dA, i * size + j), load(A, i * size + j)))
        inside = decompose(moved, L, pivot, panel, size, 0.0)
        low, high, t = bisected(low, high, t, inside)
        if not any_greater(high - low, fill(RESOLVED) * high):
            break
    return low


@njit
def bisected(low: Any, high: Any, t: Any, inside: Any) -> Any:
    """Return the bracket of the length after the test of t, and the next length to test.

    `inside` is the last pivot of a Cholesky factor.
    """
    limit, open_at = fill(NO_PIVOT), fill(RESOLVED) * high
    new_low, new_high = where_greater(limit, inside, t, low), where_greater(limit, inside, high, t)
    width = high - low
    low, high = (
        where_greater(width, open_at, new_low, low),
        where_greater(width, open_at, new_high, high),
    )
    return low, high, fill(0.5) * (low + high)
