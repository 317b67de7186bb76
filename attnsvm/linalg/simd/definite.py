"""How far a positive definite matrix whose entries are lanes may move, in compiled code.

By bisection: the test is a Cholesky factor, which is cheaper than an eigenvalue.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.simd.arithmetic import any_lane, fill, where
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.cholesky import cholesky

RESOLVED = 0.2
"""Relative uncertainty at which the step to the boundary is known."""

BISECTIONS = 40

NO_PIVOT = 1e300
"""The last pivot of a Cholesky factor is below this inside of the cone, NaN or infinite outside."""


@njit
def largest_definite_step(A: LaneArray, dA: LaneArray, work: Any, longest: Any) -> Any:
    """Return a step t, at most `longest`, such that A + t dA is positive definite.

    `work` is a matrix, and L, 1 / L_ii and a panel as for `cholesky`.
    """
    (moved, L, pivot, panel), low, high, t = work, fill(0.0), longest, longest
    for _ in range(BISECTIONS):
        for i in range(len(A)):
            for j in range(i + 1):
                moved[i, j] = A[i, j] + t * dA[i, j]
        last = cholesky(moved, L, pivot, panel, 0.0)
        low, high, t = bisected(low, high, t, last)
        if not any_lane(high - low > RESOLVED * high):
            break
    return low


@njit
def bisected(low: Any, high: Any, t: Any, last: Any) -> Any:
    """Return the bracket of the step after the test of t, and the next step to test.

    `last` is the last pivot of a Cholesky factor.
    """
    inside, wide = last < NO_PIVOT, high - low > RESOLVED * high
    low, high = where(wide & inside, t, low), where(wide & ~inside, t, high)
    return low, high, 0.5 * (low + high)
