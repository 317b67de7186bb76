"""Cholesky factors of small matrices whose entries are lanes, in compiled code.

Also how far a positive definite matrix may move: by bisection, whose test is a Cholesky factor,
which is cheaper than an eigenvalue.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from attnsvm.linalg.jit import subroutine
from attnsvm.linalg.simd.arithmetic import any_lane, fill, sqrt, where
from attnsvm.linalg.simd.array import LaneArray, arrays
from attnsvm.linalg.simd.matmul import add, inner, matmul

RIDGE = 1e-13
"""Relative, on the diagonal: dependent rows leave a Gram matrix singular."""

PANEL = 4
"""Columns of a panel."""


@arrays
class System(NamedTuple):
    """K (N, N), of which the lower triangle counts, and what solves K x = f."""

    K: Any
    L: Any
    pivot: Any  # 1 / L_ii, (N,)
    scale: Any  # 1 / sqrt(K_ii), (N,)
    rest: Any  # (N,)
    panel: Any  # (N, PANEL)


@subroutine
def cholesky(A: LaneArray, L: LaneArray, pivot: LaneArray, panel: LaneArray, ridge: float) -> Any:
    """Write L below its diagonal, A + ridge I = L L^T, and 1 / L_ii; return the last of these.

    It is NaN or infinite in lanes where the matrix, whose lower triangle counts, is not positive
    definite. Columns are made in panels, whose products with the columns before them are tiled.
    """
    size, last = len(A), fill(1.0)
    for first in range(0, size, PANEL):
        end = min(first + PANEL, size)
        before = L[first:, :first]
        matmul(panel[first:, : end - first], before, before[: end - first].T)
        for j in range(first, end):
            known = panel[j, j - first]
            for k in range(first, j):
                known += L[j, k] * L[j, k]
            last = 1 / sqrt(A[j, j] + ridge - known)
            pivot[j] = last
            for i in range(j + 1, size):
                known = panel[i, j - first]
                for k in range(first, j):
                    known += L[i, k] * L[j, k]
                L[i, j] = (A[i, j] - known) * last
    return last


@subroutine
def inverse_cholesky(A: LaneArray, work: Any, T: LaneArray) -> None:
    """Write T = L^{-T}, with zeros below its diagonal; A = L L^T, A^{-1} = T T^T.

    `work` is L, 1 / L_ii and a panel, as for `cholesky`. Row j of T is column j of L^{-1}.
    """
    L, pivot, panel = work
    cholesky(A, L, pivot, panel, 0.0)
    for j in range(len(A)):
        T[j, :j] = 0.0
        T[j, j] = pivot[j]
        for i in range(j + 1, len(A)):
            T[j, i] = -inner(L[i, j:i], T[j, j:i]) * pivot[i]


@njit(inline="always")
def factor(system: Any) -> None:
    """Scale K to unit diagonal and factor it; NaN in lanes where K is not positive definite."""
    K, L, pivot, scale, _, panel = system
    for i in range(len(K)):
        scale[i] = 1 / sqrt(K[i, i])
        for j in range(i):
            K[i, j] = K[i, j] * scale[i] * scale[j]
        K[i, i] = 1.0
    cholesky(K, L, pivot, panel, RIDGE)


@subroutine
def solve(system: Any, f: Any, x: Any, refinements: int) -> None:
    """Write x = K^-1 f, both (N,), refined so many times by its residual."""
    (K, L, pivot, scale, r, _), N = system, len(x)
    for i in range(N):
        x[i] = r[i] = f[i] * scale[i]
    _substitute(L, pivot, x)
    for _ in range(refinements):
        for i in range(N):  # r = f - K x by the lower triangle of K, whose diagonal is 1
            for j in range(i):
                r[j] -= K[i, j] * x[i]
            r[i] = r[i] - inner(K[i, :i], x) - x[i]
        _substitute(L, pivot, r)
        add(x, r, 1.0)
    for i in range(N):
        x[i] *= scale[i]


@subroutine
def _substitute(L: LaneArray, pivot: LaneArray, x: LaneArray) -> None:
    """Overwrite x by L^-T L^-1 x."""
    for i in range(len(x)):
        x[i] = (x[i] - inner(L[i, :i], x)) * pivot[i]
    for i in range(len(x) - 1, -1, -1):
        x[i] *= pivot[i]
        for j in range(i):
            x[j] -= L[i, j] * x[i]


RESOLVED = 0.2
"""Relative uncertainty at which the step to the boundary is known."""

BISECTIONS = 40

NO_PIVOT = 1e300
"""The last pivot of a Cholesky factor is below this inside of the cone, NaN or infinite outside."""


@subroutine
def largest_definite_step(
    A: LaneArray, dA: LaneArray, C: LaneArray | None, work: Any, longest: Any
) -> Any:
    """Return a step t, at most `longest`, such that A + t dA + t^2 C is positive definite.

    `work` is a matrix, and L, 1 / L_ii and a panel as for `cholesky`. Without C it is zero.
    """
    (moved, L, pivot, panel), low, high, t = work, fill(0.0), longest, longest
    for _ in range(BISECTIONS):
        for i in range(len(A)):
            for j in range(i + 1):
                slope = dA[i, j] if C is None else dA[i, j] + t * C[i, j]
                moved[i, j] = A[i, j] + t * slope
        inside = cholesky(moved, L, pivot, panel, 0.0) < NO_PIVOT
        wide = high - low > RESOLVED * high
        low, high = where(wide & inside, t, low), where(wide & ~inside, t, high)
        if not any_lane(high - low > RESOLVED * high):
            break
        t = 0.5 * (low + high)
    return low
