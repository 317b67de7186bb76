r"""A strictly feasible point near the Frobenius solution, without singular values.

With any G > 0, Y = [[W G^{-1} W^T, W], [W^T, G]] >= 0; a few Newton steps give a G near
(W^T W)^{1/2}.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.simd.arithmetic import at, fill, load, root, store, where_greater
from attnsvm.linalg.simd.cholesky import inverse_factor
from attnsvm.linalg.simd.matmul import product
from attnsvm.svm.laned import set_slacks, start_sizes
from attnsvm.svm.nuclear.compiled.arrays import dual_matrix, margins_of

SQUARINGS = 5
"""||M||_op <= tr((M^T M)^k)^(1/2k) with k = 2^SQUARINGS."""

ROOTS = 6
"""Newton steps for (W^T W)^{1/2}."""


@njit
def set_start(rows: Any, given: Any, x: Any, z: Any) -> Any:
    """Set a strictly feasible point from the Frobenius solution: W enlarged, a reduced.

    Return one where W may be rescaled, zero where an equality has h_k != 0.
    """
    p, q, N = rows.p, rows.q, rows.n * rows.R
    P, zero, one, half = p + q, fill(0.0), fill(1.0), fill(0.5)
    sizes = start_sizes(rows, given.a)
    scalable, stretch, _, _ = sizes
    for i in range(p * q):
        store(z.W, i, load(given.W, i) * stretch)
    _square_root(z, z.W, p, q)
    trace = zero
    for i in range(q):
        trace = trace + load(z.G, i * q + i)
    lift = fill(0.1 / q) * trace
    product((z.C, q, 1), (z.W, q, 1), (at(z.C, p * q), q, 1), (p, q, q))
    product((x.Y, P, 1), (z.C, q, 1), (z.C, 1, q), (p, p, q))
    for i in range(p):
        store(x.Y, i * P + i, load(x.Y, i * P + i) + lift)
        for j in range(q):
            store(x.Y, i * P + p + j, load(z.W, i * q + j))
            store(x.Y, (p + j) * P + i, load(z.W, i * q + j))
    for i in range(q):
        for j in range(q):
            entry = load(z.G, i * q + j)
            store(x.Y, (p + i) * P + p + j, entry + lift if i == j else entry)
    margins_of(rows, z.W, z.margin)
    set_slacks(rows, given.a, z.margin, sizes, x.s, x.a)
    dual_matrix(rows, x.a, z.M)
    top = _size_bound(z, z.M, p, q)
    scale = fill(0.95) / where_greater(top, zero, top, one)
    for k in range(N):
        real = load(rows.real, k)
        store(x.a, k, where_greater(real, half, load(x.a, k) * scale, one))
    return scalable


@njit
def _square_root(z: Any, W: int, p: int, q: int) -> None:
    """Write G > 0, about (W^T W)^{1/2}, and L^{-T} of G = L L^T to the last rows of z.C."""
    T = at(z.C, p * q)
    product((z.G1, q, 1), (W, 1, q), (W, q, 1), (q, q, p))
    trace = fill(0.0)
    for i in range(q):
        trace = trace + load(z.G1, i * q + i)
    size = root(trace)
    for i in range(q):
        store(z.G1, i * q + i, load(z.G1, i * q + i) + fill(1e-4) * trace)
        for j in range(q):
            store(z.G, i * q + j, size if i == j else fill(0.0))
    for _ in range(ROOTS):
        inverse_factor(z.G, (z.L, z.pivot, z.panel), T, q)
        product((z.G2, q, 1), (T, q, 1), (T, 1, q), (q, q, q))
        product((z.L, q, 1), (z.G1, q, 1), (z.G2, q, 1), (q, q, q))
        for i in range(q):
            for j in range(i + 1):
                mean = fill(0.5) * (load(z.L, i * q + j) + load(z.L, j * q + i))
                entry = fill(0.5) * (load(z.G, i * q + j) + mean)
                store(z.G, i * q + j, entry)
                store(z.G, j * q + i, entry)
    inverse_factor(z.G, (z.L, z.pivot, z.panel), T, q)


@njit
def _size_bound(z: Any, M: int, p: int, q: int) -> Any:
    """Return an upper bound of ||M||_op, at most q^(1/64) times it."""
    product((z.G, q, 1), (M, 1, q), (M, q, 1), (q, q, p))
    bound = fill(1.0)
    for power in range(SQUARINGS + 1):
        trace = fill(0.0)
        for i in range(q):
            trace = trace + load(z.G, i * q + i)
        positive = where_greater(trace, fill(0.0), trace, fill(1.0))
        for i in range(q * q):
            store(z.G, i, load(z.G, i) / positive)
        for _ in range(power + 1):
            trace = root(trace)
        bound = bound * trace
        if power < SQUARINGS:
            product((z.G1, q, 1), (z.G, q, 1), (z.G, q, 1), (q, q, q))
            for i in range(q * q):
                store(z.G, i, load(z.G1, i))
    return bound
