"""The method of `nuclear` in compiled code, for blocks of eight instances, one in each lane.

The notation is that of `nuclear`; V = 2 [[I, 0], [0, 0]] + 2 C C^T is used as a product where that
saves operations, with C = [B; T].
"""

from collections import namedtuple
from typing import Any

from attnsvm.linalg.jit import compiled, subroutine
from attnsvm.linalg.simd import cholesky
from attnsvm.linalg.simd.arithmetic import any_lane, fill, where
from attnsvm.linalg.simd.array import arrays
from attnsvm.linalg.simd.cholesky import System, largest_definite_step
from attnsvm.linalg.simd.matmul import add, inner, rescale
from attnsvm.linalg.simd.matmul import matmul as multiply
from attnsvm.svm.interior_point import kernels, loop

Iterate: Any = arrays(namedtuple("Iterate", "Y s a", module=__name__))
"""Y (P, P), s (N,), a (N,): a point, or a step."""

Work = kernels.workspace(
    __name__,
    """
    P P: V X F target L
    p q: M dM W
    P q: C AC YAC
    N q: DB
    q q: G G1 G2
    N p: Y_rows V_rows
    N n: Y_cross V_cross
    P n: right
    n q: ZT
    n n: Y_queries V_queries
    N: complement f0 correction
    P: pivot
    P panel: panel
    """,
)
"""V = S^{-1}, G = I - M^T M, Y_rows = D Y_11, Y_cross = D Y_12 Z^T, Y_queries = Z Y_22 Z^T."""


@compiled("solver of a norm", "50 s", **kernels.KERNEL)
def solve(
    rows: Any, x: Any, best: Any, dx: Any, z: Any, gap: float,
    system: System,
) -> None:  # fmt: skip
    """Follow the central path from x, block by block, the first axis of rows, x and best."""
    for g in range(len(x.s)):
        point = Iterate(x.Y[g], x.s[g], x.a[g])
        block, kept = kernels.block_of(rows, best, g)
        W, left = point.Y[: len(z.M), len(z.M) :], fill(loop.PATIENCE)
        for _ in range(loop.STEPS):
            kernels.combine_block(block.D, block.Z, point.a, z.M, z.moved)
            kernels.margins_block(block.D, block.Z, W, z.margin, z.moved)
            trace = fill(0.0)
            for i in range(len(point.Y)):
                trace += point.Y[i, i]
            sizes = 0.5 * trace, fill(1.0)
            left = kernels.judged(block, W, point, z.margin, sizes, kept, left, gap)
            if not any_lane(left > 0):
                break
            _step(block, point, dx, z, system, trace)


@subroutine
def _step(rows: Any, x: Any, dx: Any, z: Any, system: Any, trace: Any) -> None:
    P, N, p = len(x.Y), len(x.s), len(z.M)
    _invert_slack(z)
    _factor_schur(rows, x, z, system)
    products = order = fill(0.0)
    for i in range(p):
        products -= inner(x.Y[i, p:], z.M[i])
    products += 0.5 * trace
    for k in range(N):
        products += x.a[k] * x.s[k] * rows.inequality[k]
        order += rows.inequality[k]
    refine = products < loop.REFINE_BELOW * trace
    _aim(x, dx, z, fill(0.0), False)
    _find_direction(rows, x, dx, z, system, refine)
    _aim(x, dx, z, loop.CENTRING * products / (order + P), True)
    _find_direction(rows, x, dx, z, system, refine)
    primal, dual = kernels.inverse_lengths(x, dx, z, loop.BOUNDARY)
    work = z.X, z.L, z.pivot, z.panel
    primal = loop.BOUNDARY * largest_definite_step(x.Y, dx.Y, None, work, 1 / primal)
    dual = loop.BOUNDARY * _dual_length(z, 1 / dual)
    add(x.Y.flat, dx.Y.flat, primal)
    add(x.s, dx.s, primal)
    add(x.a, dx.a, dual)


@subroutine
def _invert_slack(z: Any) -> None:
    """Write C = [M; I] L^{-T} with G = I - M^T M = L L^T, and V = S^{-1}."""
    (p, q), P = z.M.shape, len(z.V)
    multiply(z.G, z.M.T, z.M)
    for i in range(q):
        for j in range(q):
            z.G[i, j] = (1.0 if i == j else 0.0) - z.G[i, j]
    work = z.L[:q, :q], z.pivot[:q], z.panel[:q]
    cholesky.inverse_cholesky(z.G, work, z.C[p:])
    multiply(z.C[:p], z.M, z.C[p:])
    multiply(z.V, z.C, z.C.T)
    for i in range(P):
        for j in range(P):
            z.V[i, j] = 2 * (z.V[i, j] + (1.0 if i == j and i < p else 0.0))


@subroutine
def _factor_schur(rows: Any, x: Any, z: Any, system: Any) -> None:
    """Factor the Schur complement H + diag(s / a), H as in `Rows.schur`."""
    n, p, N = len(rows.Z), rows.D.shape[1], len(rows.D)
    R, D = N // n, rows.D
    multiply(z.Y_rows, D, x.Y[:p, :p])
    multiply(z.right, x.Y[:, p:], rows.Z.T)
    multiply(z.Y_cross, D, z.right[:p])
    multiply(z.Y_queries, rows.Z, z.right[p:])
    multiply(z.DB, D, z.C[:p])
    multiply(z.ZT, rows.Z, z.C[p:])
    multiply(z.V_rows, z.DB, z.C[:p].T)
    multiply(z.V_cross, z.DB, z.ZT.T)
    multiply(z.V_queries, z.ZT, z.ZT.T)
    for k in range(N):
        for e in range(p):
            z.V_rows[k, e] = 2 * (z.V_rows[k, e] + D[k, e])
        rescale(z.V_cross[k], 2)
    for i in range(n):
        for j in range(i + 1):
            by_V, by_Y = 2 * z.V_queries[i, j], z.Y_queries[i, j]
            for k in range(R):
                for e in range(p):
                    entry = by_V * z.Y_rows[j * R + k, e] + by_Y * z.V_rows[j * R + k, e]
                    z.block[k, e] = entry
            H = system.K[i * R : i * R + R, j * R : j * R + R]
            multiply(H, D[i * R : i * R + R], z.block.T)
            for k in range(R):
                Y_k, V_k = z.Y_cross[i * R + k, j], z.V_cross[i * R + k, j]
                for m in range(R):
                    cross = Y_k * z.V_cross[j * R + m, i] + V_k * z.Y_cross[j * R + m, i]
                    H[k, m] = 0.25 * (H[k, m] + cross)
    kernels.add_slacks(rows, x, z.inverse_a, system.K)
    cholesky.factor(system)


@subroutine
def _aim(x: Any, dx: Any, z: Any, nu: Any, second: bool) -> None:
    """Write the targets nu S^{-1} and nu / a, less the second-order terms of the predictor."""
    if second:
        _times_dual(z, dx.Y)
    for i in range(len(z.V)):
        for j in range(len(z.V)):
            z.target[i, j] = nu * z.V[i, j]
            if second:
                z.target[i, j] += 0.25 * (z.F[i, j] + z.F[j, i])
    for k in range(len(x.s)):
        curve = dx.a[k] * dx.s[k] if second else fill(0.0)
        z.complement[k] = (nu - curve) * z.inverse_a[k]


@subroutine
def _times_dual(z: Any, Y: Any) -> None:
    """Write F = Y A V, A = [[0, dM], [dM^T, 0]]: twice Y A [[I, 0], [0, 0]] + (Y A C) C^T.

    A C = [dM T; dM^T B].
    """
    p = len(z.M)
    multiply(z.AC[:p], z.dM, z.C[p:])
    multiply(z.AC[p:], z.dM.T, z.C[:p])
    multiply(z.YAC, Y, z.AC)
    multiply(z.X[:, :p], Y[:, p:], z.dM.T)
    multiply(z.F, z.YAC, z.C.T)
    for i in range(len(Y)):
        for j in range(len(Y)):
            z.F[i, j] = 2 * (z.F[i, j] + z.X[i, j] if j < p else z.F[i, j])


@subroutine
def _find_direction(rows: Any, x: Any, dx: Any, z: Any, system: Any, refine: Any) -> None:
    """Write the step to the targets; refined, in the lanes of `refine`, by the KKT residual."""
    p, N, P = len(z.M), len(x.s), len(x.Y)
    z.W[:] = z.target[:p, p:]
    kernels.margins_block(rows.D, rows.Z, z.W, z.f, z.moved)
    for k in range(N):
        z.f0[k] = (rows.h[k] - z.f[k] + z.complement[k]) * rows.real[k]
    cholesky.solve(system, z.f0, dx.a, 0)
    kernels.combine_block(rows.D, rows.Z, dx.a, z.dM, z.moved)
    if any_lane(refine):
        for _ in range(loop.REFINEMENTS):
            _times_dual(z, x.Y)
            for i in range(p):
                for j in range(P - p):
                    z.W[i, j] = 0.25 * (z.F[i, p + j] + z.F[p + j, i])
            kernels.margins_block(rows.D, rows.Z, z.W, z.f, z.moved)
            for k in range(N):
                left = z.f[k] + x.s[k] * z.inverse_a[k] * dx.a[k]
                z.f[k] = where(refine & (rows.real[k] > 0.5), z.f0[k] - left, 0)
            cholesky.solve(system, z.f, z.correction, 0)
            add(dx.a, z.correction, 1.0)
            kernels.combine_block(rows.D, rows.Z, dx.a, z.dM, z.moved)
    _times_dual(z, x.Y)
    for i in range(P):
        for j in range(P):
            change = 0.25 * (z.F[i, j] + z.F[j, i])
            dx.Y[i, j] = z.target[i, j] - x.Y[i, j] + change
    for k in range(N):
        ds = z.complement[k] - x.s[k] - x.s[k] * z.inverse_a[k] * dx.a[k]
        dx.s[k] = ds * rows.inequality[k]


@subroutine
def _dual_length(z: Any, longest: Any) -> Any:
    """Return a length to which I - M^T M, hence S, stays positive definite."""
    q = len(z.G)
    multiply(z.G1, z.M.T, z.dM)
    multiply(z.G2, z.dM.T, z.dM)
    for i in range(q):
        for j in range(i + 1):
            z.G1[i, j], z.G2[i, j] = -(z.G1[i, j] + z.G1[j, i]), -z.G2[i, j]
    work = z.X[:q, :q], z.L[:q, :q], z.pivot[:q], z.panel[:q]
    return largest_definite_step(z.G, z.G1, z.G2, work, longest)
