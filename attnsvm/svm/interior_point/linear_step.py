"""The method of `linear` in compiled code, for blocks of eight instances, one in each lane."""

from collections import namedtuple
from typing import Any

from numba import njit

from attnsvm.linalg.jit import compiled, subroutine
from attnsvm.linalg.simd import cholesky
from attnsvm.linalg.simd.arithmetic import any_lane, fill, maximum, where
from attnsvm.linalg.simd.array import LaneArray, arrays
from attnsvm.linalg.simd.cholesky import System
from attnsvm.linalg.simd.matmul import add
from attnsvm.svm.interior_point import kernels
from attnsvm.svm.interior_point.loop import BOUNDARY, PATIENCE, STEPS

Iterate: Any = arrays(namedtuple("Iterate", "W s a t U V YU YV", module=__name__))
"""A point, or a step: W (p, q), s, a (N,), t (1,) or (p q,), the others (p q,)."""

Work = kernels.workspace(
    __name__,
    """
    p q: M dM theta skew c fixed g shift cU cV
    N: b cs
    1 1: E
    """,
)
"""Of c, the max norm needs one entry; E is for `gram_block`."""


@compiled("solver of a norm", "50 s", **kernels.KERNEL)
def solve(
    rows: Any, x: Any, best: Any, dx: Any, z: Any, gap: float,
    is_max: bool, system: System,
) -> None:  # fmt: skip
    """Follow the central path from x, block by block, the first axis of rows, x and best."""
    for g in range(len(x.s)):
        block, kept = kernels.block_of(rows, best, g)
        point = Iterate(x.W[g], x.s[g], x.a[g], x.t[g], x.U[g], x.V[g], x.YU[g], x.YV[g])
        left = fill(PATIENCE)
        for _ in range(STEPS):
            kernels.combine_block(block.D, block.Z, point.a, z.M, z.moved)
            kernels.margins_block(block.D, block.Z, point.W, z.margin, z.moved)
            sizes = _sizes(point.W.flat, z.M.flat, is_max)
            left = kernels.judged(block, point.W, point, z.margin, sizes, kept, left, gap)
            if not any_lane(left > 0):
                break
            _step(block, point, dx, z, system, is_max)


@subroutine
def _sizes(W: LaneArray, M: LaneArray, is_max: bool) -> Any:
    """Return norm(W) and dual_norm(M)."""
    most = sum_W = most_M = sum_M = fill(0.0)
    for i in range(len(W)):
        most, sum_W = maximum(abs(W[i]), most), sum_W + abs(W[i])
        most_M, sum_M = maximum(abs(M[i]), most_M), sum_M + abs(M[i])
    return (most, sum_M) if is_max else (sum_W, most_M)


@subroutine
def _step(rows: Any, x: Any, dx: Any, z: Any, system: Any, is_max: bool) -> None:
    m, N, cU, cV = len(x.U), len(x.s), z.cU.flat, z.cV.flat
    _factor(rows, x, z, system, is_max)
    now, after, order = fill(0.0), fill(0.0), fill(2.0 * m)
    for i in range(m):
        cU[i], cV[i] = -x.U[i] * x.YU[i], -x.V[i] * x.YV[i]
        now -= cU[i] + cV[i]
    for k in range(N):
        z.cs[k] = -x.s[k] * x.a[k]
        now -= z.cs[k] * rows.inequality[k]
        order += rows.inequality[k]
    _find_direction(rows, x, dx, z, system, is_max)
    primal, dual = _lengths(x, dx, z, 1.0)
    for i in range(m):
        after += (x.U[i] + primal * dx.U[i]) * (x.YU[i] + dual * dx.YU[i])
        after += (x.V[i] + primal * dx.V[i]) * (x.YV[i] + dual * dx.YV[i])
    for k in range(N):
        product = (x.s[k] + primal * dx.s[k]) * (x.a[k] + dual * dx.a[k])
        after += product * rows.inequality[k]
    ratio = where(after < now, after / now, 1)
    aim = now / order * ratio * ratio * ratio
    for i in range(m):
        cU[i] += aim - dx.U[i] * dx.YU[i]
        cV[i] += aim - dx.V[i] * dx.YV[i]
    for k in range(N):
        z.cs[k] += aim - dx.s[k] * dx.a[k]
    _find_direction(rows, x, dx, z, system, is_max)
    primal, dual = _lengths(x, dx, z, BOUNDARY)
    add(x.W.flat, dx.W.flat, primal)
    add(x.t, dx.t, primal)
    add(x.U, dx.U, primal)
    add(x.V, dx.V, primal)
    add(x.YU, dx.YU, dual)
    add(x.YV, dx.YV, dual)
    add(x.s, dx.s, primal)
    add(x.a, dx.a, dual)


@subroutine
def _factor(rows: Any, x: Any, z: Any, system: Any, is_max: bool) -> None:
    """Factor the matrix of the Newton system; write theta, skew, c and 1 / a."""
    theta, skew, c, total = z.theta.flat, z.skew.flat, z.c.flat, fill(0.0)
    for i in range(len(theta)):
        P, Q = x.YU[i] / x.U[i], x.YV[i] / x.V[i]
        theta[i] = 1 / (P + Q)
        skew[i] = (P - Q) * theta[i]
        curve = 4 * P * Q * theta[i]
        total += curve
        c[i] = 1 / curve
    work = z.weight, z.both, z.block, z.E
    kernels.gram_block(rows.D, rows.Z, z.theta if is_max else z.c, z.E, False, system.K, work)
    if is_max:
        c[0] = 1 / total
        kernels.margins_block(rows.D, rows.Z, z.skew, z.b, z.moved)
        for k in range(len(z.b)):
            for j in range(k + 1):
                system.K[k, j] += c[0] * z.b[k] * z.b[j]
    kernels.add_slacks(rows, x, z.inverse_a, system.K)
    cholesky.factor(system)


@subroutine
def _find_direction(rows: Any, x: Any, dx: Any, z: Any, system: Any, is_max: bool) -> None:
    """Write the step to the products U Y_U + cU, V Y_V + cV, s a + cs."""
    m, total, dW = len(x.U), fill(-1.0), dx.W.flat
    M, theta, skew, c, fixed, g = (
        z.M.flat, z.theta.flat, z.skew.flat, z.c.flat, z.fixed.flat, z.g.flat,
    )  # fmt: skip
    shift, dM, cU, cV = z.shift.flat, z.dM.flat, z.cU.flat, z.cV.flat
    for i in range(m):
        rU, rV = _residuals(x, i, is_max)
        xU, xV = (cU[i] + x.YU[i] * rU) / x.U[i], (cV[i] + x.YV[i] * rV) / x.V[i]
        fixed[i] = M[i] - x.YU[i] + x.YV[i] - xU + xV
        g[i] = x.YU[i] + x.YV[i] + xU + xV + skew[i] * fixed[i]
        total += g[i]
    for i in range(m):
        along = c[0] * total if is_max else c[i] * (g[i] - 1)
        shift[i] = theta[i] * fixed[i] + skew[i] * along
    kernels.margins_block(rows.D, rows.Z, z.shift, z.f, z.moved)
    kernels.find_slacks(rows, x, dx, z, system)
    kernels.combine_block(rows.D, rows.Z, dx.a, z.dM, z.moved)
    if is_max:
        for i in range(m):
            total += skew[i] * dM[i]
        dx.t[0] = c[0] * total
    for i in range(m):
        rU, rV = _residuals(x, i, is_max)
        if not is_max:
            dx.t[i] = c[i] * (g[i] - 1 + skew[i] * dM[i])
        dt = dx.t[0 if is_max else i]
        dW[i] = theta[i] * (dM[i] + fixed[i]) + skew[i] * dt
        dx.U[i], dx.V[i] = dt - dW[i] - rU, dt + dW[i] - rV
        dx.YU[i] = (cU[i] - x.YU[i] * dx.U[i]) / x.U[i]
        dx.YV[i] = (cV[i] - x.YV[i] * dx.V[i]) / x.V[i]


@njit(inline="always")
def _residuals(x: Any, i: int, is_max: bool) -> Any:
    """Return U - (t - W) and V - (t + W)."""
    t, W = x.t[0 if is_max else i], x.W.flat
    return x.U[i] - (t - W[i]), x.V[i] - (t + W[i])


@subroutine
def _lengths(x: Any, dx: Any, z: Any, back: float) -> Any:
    """Return `back` times the largest primal and dual steps, at most one."""
    primal, dual = kernels.inverse_lengths(x, dx, z, back)
    for i in range(len(x.U)):
        primal = maximum(maximum(-dx.U[i] / x.U[i], -dx.V[i] / x.V[i]), primal)
        dual = maximum(maximum(-dx.YU[i] / x.YU[i], -dx.YV[i] / x.YV[i]), dual)
    return back / primal, back / dual
