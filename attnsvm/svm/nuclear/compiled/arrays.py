"""The arrays of eight instances, by address, and the maps between multipliers and matrices."""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from attnsvm.linalg.simd.cholesky import PANEL
from attnsvm.svm.laned import combine, margins


class Iterate(NamedTuple):
    """Addresses of Y (P, P), s (N,), a (N,): an iterate, or a step."""

    Y: int
    s: int
    a: int


class Best(NamedTuple):
    """Addresses of W (p, q) and a (N,) of the least upper and greatest lower bound, and the gap.

    First they hold the Frobenius solution.
    """

    W: int
    a: int
    gap: int  # a single entry: upper / lower - 1


class Work(NamedTuple):
    """Addresses of the workspace; P = p + q."""

    V: int  # (P, P): S^{-1}
    X: int
    F: int
    target: int
    L: int
    M: int  # (p, q)
    dM: int
    W: int
    C: int  # (P, q): V = S^{-1} = 2 [[I, 0], [0, 0]] + 2 C C^T
    AC: int  # (q, P), transposed
    YAC: int  # (P, q)
    DB: int  # (N, q): D times the first p rows of C
    G: int  # (q, q)
    G1: int
    G2: int
    Y_rows: int  # (N, p): D Y_11
    V_rows: int
    Y_cross: int  # (N, n): D Y_12 Q^T
    V_cross: int
    right: int  # (max(p, q), n)
    Y_queries: int  # (n, n): Q Y_22 Q^T
    V_queries: int
    inverse_a: int  # (N,): 1 / a on inequalities, else zero
    complement: int
    f: int
    f0: int
    correction: int
    margin: int
    pivot: int  # (P,)
    panel: int  # (P, PANEL)

    @staticmethod
    def entries(n: int, R: int, p: int, q: int) -> tuple[int, ...]:
        """Return the number of entries of each array."""
        N, P = n * R, p + q
        squares = (*(P * P,) * 5, *(p * q,) * 3, *(P * q,) * 3, N * q, *(q * q,) * 3)
        products = (N * p, N * p, N * n, N * n, max(p, q) * n, n * n, n * n)
        return (*squares, *products, N, N, N, N, N, N, P, P * PANEL)


@njit
def dual_matrix(rows: Any, a: int, M: int) -> None:
    """Write M(a), (p, q)."""
    combine(rows, a, M)


@njit
def margins_of(rows: Any, W: int, result: int) -> None:
    """Write d_k^T W z_k, (N,)."""
    margins(rows, W, result)
