"""The search direction: S^{-1}, the Schur complement, and the linearised conditions solved."""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.simd.arithmetic import any_greater, at, fill, fma, load, store, where_greater
from attnsvm.linalg.simd.cholesky import factor, inverse_factor, substitute
from attnsvm.linalg.simd.matmul import product
from attnsvm.svm.nuclear.compiled.arrays import dual_matrix, margins_of

REFINEMENTS = 2


@njit
def invert_slack(rows: Any, z: Any) -> None:
    """Write C = [M; I] L^{-T} (P, q) with G = I - M^T M = L L^T, and V = S^{-1}.

    V = 2 [[I, 0], [0, 0]] + 2 C C^T.
    """
    p, q = rows.p, rows.q
    P, two, T = p + q, fill(2.0), at(z.C, rows.p * rows.q)
    product((z.G, q, 1), (z.M, 1, q), (z.M, q, 1), (q, q, p))
    for i in range(q):
        for j in range(q):
            store(z.G, i * q + j, fill(1.0 if i == j else 0.0) - load(z.G, i * q + j))
    inverse_factor(z.G, (z.L, z.pivot, z.panel), T, q)
    product((z.C, q, 1), (z.M, q, 1), (T, q, 1), (p, q, q))
    product((z.V, P, 1), (z.C, q, 1), (z.C, 1, q), (P, P, q))
    for i in range(P):
        for j in range(P):
            entry = load(z.V, i * P + j)
            store(z.V, i * P + j, two * (entry + fill(1.0) if i == j and i < p else entry))


@njit
def factor_schur(rows: Any, x: Any, z: Any, system: Any) -> None:
    """Factor the Schur complement H + diag(s / a).

    With d_k, z_i of row k and sample i:  4 H_kl = d_k^T (Y_11 (z_i^T V_22 z_j) + V_11 (z_i^T Y_22
    z_j)) d_l + (d_k^T Y_12 z_j) (d_l^T V_12 z_i) + (d_l^T Y_12 z_i) (d_k^T V_12 z_j).
    """
    n, R, p, N = rows.n, rows.R, rows.p, rows.n * rows.R
    _of_iterate(rows, x.Y, z)
    _of_slack(rows, z)
    for i in range(n):
        for j in range(i + 1):
            by_V, by_Y = load(z.V_queries, i * n + j), load(z.Y_queries, i * n + j)
            first = j * R * p
            for e in range(R * p):
                weighted = load(z.Y_rows, first + e) * by_V
                store(rows.block, e, fma(load(z.V_rows, first + e), by_Y, weighted))
            block = (at(system.K, i * R * N + j * R), N, 1)
            product(block, (at(rows.D, i * R * p), p, 1), (rows.block, 1, p), (R, R, p))
            for k in range(i * R, i * R + R):
                Y_k, V_k = load(z.Y_cross, k * n + j), load(z.V_cross, k * n + j)
                for m in range(j * R, j * R + R):
                    entry = fma(Y_k, load(z.V_cross, m * n + i), load(system.K, k * N + m))
                    entry = fma(V_k, load(z.Y_cross, m * n + i), entry)
                    store(system.K, k * N + m, fill(0.25) * entry)
    for k in range(N):
        is_one = load(rows.inequality, k)
        inverse = where_greater(is_one, fill(0.5), fill(1.0) / load(x.a, k), fill(0.0))
        store(z.inverse_a, k, inverse)
        added = load(x.s, k) * inverse
        padding = fill(1.0) - load(rows.real, k)  # whose row and column of H are zero
        store(system.K, k * N + k, load(system.K, k * N + k) + added + padding)
    factor(system)


@njit
def _of_iterate(rows: Any, Y: int, z: Any) -> None:
    """Write D Y_11 (N, p), D Y_12 Q^T (N, n) and Q Y_22 Q^T (n, n).

    Y is symmetric: read by rows, its entries follow each other in memory.
    """
    n, p, q, N = rows.n, rows.p, rows.q, rows.n * rows.R
    P = p + q
    product((z.Y_rows, p, 1), (rows.D, p, 1), (Y, 1, P), (N, p, p))
    product((z.right, 1, p), (at(Y, p), P, 1), (rows.Z, 1, q), (p, n, q))
    product((z.Y_cross, n, 1), (rows.D, p, 1), (z.right, 1, p), (N, n, p))
    product((z.right, 1, q), (at(Y, p * P + p), P, 1), (rows.Z, 1, q), (q, n, q))
    product((z.Y_queries, n, 1), (rows.Z, q, 1), (z.right, 1, q), (n, n, q))


@njit
def _of_slack(rows: Any, z: Any) -> None:
    """Write D V_11 (N, p), D V_12 Q^T (N, n) and Q V_22 Q^T (n, n) by C = [B; T].

    V_11 = 2 (I + B B^T), V_12 = 2 B T^T, V_22 = 2 T T^T.
    """
    n, p, q, N = rows.n, rows.p, rows.q, rows.n * rows.R
    two, T = fill(2.0), at(z.C, rows.p * rows.q)
    product((z.DB, q, 1), (rows.D, p, 1), (z.C, q, 1), (N, q, p))
    product((z.right, q, 1), (rows.Z, q, 1), (T, q, 1), (n, q, q))
    product((z.V_rows, p, 1), (z.DB, q, 1), (z.C, 1, q), (N, p, q))
    product((z.V_cross, n, 1), (z.DB, q, 1), (z.right, 1, q), (N, n, q))
    product((z.V_queries, n, 1), (z.right, q, 1), (z.right, 1, q), (n, n, q))
    for e in range(N * p):
        store(z.V_rows, e, two * (load(z.V_rows, e) + load(rows.D, e)))
    for e in range(N * n):
        store(z.V_cross, e, two * load(z.V_cross, e))
    for e in range(n * n):
        store(z.V_queries, e, two * load(z.V_queries, e))


@njit
def aim(rows: Any, x: Any, dx: Any, z: Any, nu: Any, second: bool) -> None:
    """Write the targets nu S^{-1} and nu / a, less the second-order terms of the predictor."""
    P = rows.p + rows.q
    if second:
        _times_dual(rows, z, dx.Y)
    for i in range(P):
        for j in range(P):
            entry = nu * load(z.V, i * P + j)
            if second:
                curve = load(z.F, i * P + j) + load(z.F, j * P + i)
                entry = fma(fill(0.25), curve, entry)
            store(z.target, i * P + j, entry)
    for k in range(rows.n * rows.R):
        aim = nu
        if second:
            aim = aim - load(dx.a, k) * load(dx.s, k)
        store(z.complement, k, aim * load(z.inverse_a, k))


@njit
def _times_dual(rows: Any, z: Any, Y: int) -> None:
    """Write F = Y A V, A = [[0, dM], [dM^T, 0]]: twice Y A [[I, 0], [0, 0]] + (Y A C) C^T."""
    p, q, two = rows.p, rows.q, fill(2.0)
    P = p + q
    _times_factor(rows, z, Y)
    product((z.X, p, 1), (at(Y, p), P, 1), (z.dM, 1, q), (P, p, q))
    product((z.F, P, 1), (z.YAC, q, 1), (z.C, 1, q), (P, P, q))
    for i in range(P):
        for j in range(p):
            store(z.F, i * P + j, two * (load(z.F, i * P + j) + load(z.X, i * p + j)))
        for j in range(p, P):
            store(z.F, i * P + j, two * load(z.F, i * P + j))


@njit
def _times_factor(rows: Any, z: Any, Y: int) -> None:
    """Write Y A C, (P, q), with A = [[0, dM], [dM^T, 0]] and C = [B; T]; A C = [dM T; dM^T B]."""
    p, q = rows.p, rows.q
    P, T = p + q, at(z.C, rows.p * rows.q)
    product((z.AC, 1, P), (z.dM, q, 1), (T, q, 1), (p, q, q))
    product((at(z.AC, p), 1, P), (z.dM, 1, q), (z.C, q, 1), (q, q, p))
    product((z.YAC, q, 1), (Y, P, 1), (z.AC, 1, P), (P, q, P))


@njit
def _corner_times_dual(rows: Any, z: Any, Y: int) -> None:
    """Write the p x q corner of (F + F^T) / 4, F = Y A V as in `_times_dual`, to W.

    It is half of (Y A C)_1 T^T + dM Y_22 + B (Y A C)_2^T.
    """
    p, q = rows.p, rows.q
    P, T = p + q, at(z.C, rows.p * rows.q)
    _times_factor(rows, z, Y)
    product((z.W, q, 1), (z.YAC, q, 1), (T, 1, q), (p, q, q))
    product((z.X, q, 1), (z.dM, q, 1), (at(Y, p * P + p), 1, P), (p, q, q))
    product((z.F, q, 1), (z.C, q, 1), (at(z.YAC, p * q), 1, q), (p, q, q))
    for e in range(p * q):
        store(z.W, e, fill(0.5) * (load(z.W, e) + load(z.X, e) + load(z.F, e)))


@njit
def find_direction(rows: Any, x: Any, dx: Any, z: Any, system: Any, refine: Any) -> None:
    """Write the step to the targets; refined, where `refine` is one, by the KKT residual."""
    p, q, N, half = rows.p, rows.q, rows.n * rows.R, fill(0.5)
    P = p + q
    for i in range(p):
        for j in range(q):
            store(z.W, i * q + j, load(z.target, i * P + p + j))
    margins_of(rows, z.W, z.f)
    for k in range(N):
        f = load(rows.h, k) - load(z.f, k) + load(z.complement, k)
        store(z.f0, k, f * load(rows.real, k))
    _solve(system, z.f0, dx.a)
    dual_matrix(rows, dx.a, z.dM)
    if any_greater(refine, half):
        for _ in range(REFINEMENTS):
            _corner_times_dual(rows, z, x.Y)
            margins_of(rows, z.W, z.f)
            for k in range(N):
                diagonal = load(x.s, k) * load(z.inverse_a, k)
                left = fma(diagonal, load(dx.a, k), load(z.f, k))
                asked = load(rows.real, k) * refine
                store(z.f, k, where_greater(asked, half, load(z.f0, k) - left, fill(0.0)))
            _solve(system, z.f, z.correction)
            for k in range(N):
                store(dx.a, k, load(dx.a, k) + load(z.correction, k))
            dual_matrix(rows, dx.a, z.dM)
    _times_dual(rows, z, x.Y)
    for i in range(P):
        for j in range(P):
            change = fill(0.25) * (load(z.F, i * P + j) + load(z.F, j * P + i))
            store(dx.Y, i * P + j, load(z.target, i * P + j) - load(x.Y, i * P + j) + change)
    for k in range(N):
        s = load(x.s, k)
        ds = load(z.complement, k) - s - s * load(z.inverse_a, k) * load(dx.a, k)
        store(dx.s, k, ds * load(rows.inequality, k))


@njit
def _solve(system: Any, f: int, x: int) -> None:
    """Write H^{-1} f without refinement."""
    for k in range(system.N):
        store(x, k, load(f, k) * load(system.scale, k))
    substitute(system, x)
    for k in range(system.N):
        store(x, k, load(x, k) * load(system.scale, k))
