"""Cholesky factors of small matrices whose entries are lanes, in compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from attnsvm.lanes.arithmetic import at, fill, fma, load, root, store
from attnsvm.lanes.matmul import dot

REFINEMENTS = 1
RIDGE = 1e-13
"""Relative, on the diagonal: dependent rows leave a Gram matrix singular."""


class System(NamedTuple):
    """Addresses of K (N, N), of which the lower triangle counts, and of what solves K x = f."""

    K: int
    L: int
    pivot: int  # 1 / L_ii, (N,)
    scale: int  # 1 / sqrt(K_ii), (N,)
    rest: int  # (N,)
    N: int

    @staticmethod
    def entries(N: int) -> tuple[int, ...]:
        """Return the number of entries of each array."""
        return N * N, N * N, N, N, N


@njit(inline="always")  # type: ignore[untyped-decorator]
def factor(system: Any) -> None:
    """Scale K to unit diagonal and factor it; NaN in lanes where K is not positive definite."""
    K, L, N = system.K, system.L, system.N
    one = fill(1.0)
    for i in range(N):
        scale = one / root(load(K, i * N + i))
        store(system.scale, i, scale)
        for j in range(i):
            store(K, i * N + j, load(K, i * N + j) * scale * load(system.scale, j))
        store(K, i * N + i, one)
    for j in range(N):
        pivot = one / root(fill(1.0 + RIDGE) - dot(at(L, j * N), at(L, j * N), j))
        store(system.pivot, j, pivot)
        for i in range(j + 1, N):
            rest = load(K, i * N + j) - dot(at(L, i * N), at(L, j * N), j)
            store(L, i * N + j, rest * pivot)


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
