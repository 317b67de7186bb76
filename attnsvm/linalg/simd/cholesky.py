"""Cholesky factors of small matrices whose entries are lanes, in compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from attnsvm.linalg.simd.arithmetic import at, fill, fma, load, root, store
from attnsvm.linalg.simd.matmul import dot, product

REFINEMENTS = 1
RIDGE = 1e-13
"""Relative, on the diagonal: dependent rows leave a Gram matrix singular."""

PANEL = 4
"""Columns of a panel."""


class System(NamedTuple):
    """Addresses of K (N, N), of which the lower triangle counts, and of what solves K x = f."""

    K: int
    L: int
    pivot: int  # 1 / L_ii, (N,)
    scale: int  # 1 / sqrt(K_ii), (N,)
    rest: int  # (N,)
    panel: int  # (N, PANEL)
    N: int

    @staticmethod
    def entries(N: int) -> tuple[int, ...]:
        """Return the number of entries of each array."""
        return N * N, N * N, N, N, N, N * PANEL


@njit  # type: ignore[untyped-decorator]
def decompose(A: int, L: int, pivot: int, panel: int, size: int, ridge: float) -> Any:
    """Write L below its diagonal, A + ridge I = L L^T, and 1 / L_ii; return the last of these.

    It is NaN or infinite in lanes where the matrix, whose lower triangle counts, is not positive
    definite. Columns are made in panels, whose products with the columns before them are tiled.
    """
    last = fill(1.0)
    for first in range(0, size, PANEL):
        end = min(first + PANEL, size)
        before = at(L, first * size)
        product(
            (panel, PANEL, 1),
            (before, size, 1),
            (before, 1, size),
            (size - first, end - first, first),
        )
        for j in range(first, end):
            row, width = at(L, j * size + first), j - first
            known = load(panel, width * PANEL + width) + _dot(row, row, width)
            last = fill(1.0) / root(load(A, j * size + j) + fill(ridge) - known)
            store(pivot, j, last)
            for i in range(j + 1, size):
                known = load(panel, (i - first) * PANEL + width)
                known = known + _dot(at(L, i * size + first), row, width)
                store(L, i * size + j, (load(A, i * size + j) - known) * last)
    return last


@njit(inline="always")  # type: ignore[untyped-decorator]
def _dot(A: int, B: int, count: int) -> Any:
    """Return the sum of the products of the few first entries at A and B."""
    total = fill(0.0)
    for k in range(count):
        total = fma(load(A, k), load(B, k), total)
    return total


@njit  # type: ignore[untyped-decorator]
def inverse_factor(A: int, work: Any, T: int, size: int) -> None:
    """Write T = L^{-T}, with zeros below its diagonal; A = L L^T, A^{-1} = T T^T.

    `work` holds the addresses of L, 1 / L_ii and a panel, as for `decompose`.
    """
    L, pivot, panel = work
    decompose(A, L, pivot, panel, size, 0.0)
    for j in range(size):
        for i in range(j):
            store(T, j * size + i, fill(0.0))
        store(T, j * size + j, load(pivot, j))
        for i in range(j + 1, size):
            total = dot(at(L, i * size + j), at(T, j * size + j), i - j)
            store(T, j * size + i, fill(0.0) - total * load(pivot, i))


@njit(inline="always")  # type: ignore[untyped-decorator]
def factor(system: Any) -> None:
    """Scale K to unit diagonal and factor it; NaN in lanes where K is not positive definite."""
    K, N = system.K, system.N
    one = fill(1.0)
    for i in range(N):
        scale = one / root(load(K, i * N + i))
        store(system.scale, i, scale)
        for j in range(i):
            store(K, i * N + j, load(K, i * N + j) * scale * load(system.scale, j))
        store(K, i * N + i, one)
    decompose(K, system.L, system.pivot, system.panel, N, RIDGE)


@njit(inline="always")  # type: ignore[untyped-decorator]
def solve(system: Any, f: int, x: int) -> None:
    """Write x = K^-1 f, both (N,), refined by its residual."""
    K, N, r = system.K, system.N, system.rest
    for i in range(N):
        scaled = load(f, i) * load(system.scale, i)
        store(x, i, scaled)
        store(r, i, scaled)
    substitute(system, x)
    for _ in range(REFINEMENTS):
        for i in range(N):
            x_i, minus = load(x, i), fill(0.0) - load(x, i)
            for j in range(i):
                store(r, j, fma(load(K, i * N + j), minus, load(r, j)))
            store(r, i, load(r, i) - dot(at(K, i * N), x, i) - x_i)
        substitute(system, r)
        for i in range(N):
            store(x, i, load(x, i) + load(r, i))
    for i in range(N):
        store(x, i, load(x, i) * load(system.scale, i))


@njit(inline="always")  # type: ignore[untyped-decorator]
def substitute(system: Any, x: int) -> None:
    """Overwrite x by L^-T L^-1 x, L that of the scaled matrix."""
    L, pivot, N = system.L, system.pivot, system.N
    for i in range(N):
        store(x, i, (load(x, i) - dot(at(L, i * N), x, i)) * load(pivot, i))
    for i in range(N - 1, -1, -1):
        x_i = load(x, i) * load(pivot, i)
        store(x, i, x_i)
        minus = fill(0.0) - x_i
        for j in range(i):
            store(x, j, fma(load(L, i * N + j), minus, load(x, j)))
