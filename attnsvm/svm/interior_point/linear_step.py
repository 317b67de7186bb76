"""The method of `linear` in compiled code, for blocks of eight instances, one in each lane."""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from collections import namedtuple
from typing import Any

from numba import njit

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import cholesky
from attnsvm.linalg.simd.arithmetic import any_lane, fill, maximum, where
from attnsvm.linalg.simd.array import LaneArray, arrays
from attnsvm.linalg.simd.cholesky import System
from attnsvm.svm.interior_point.constants import BOUNDARY, PATIENCE, STEPS
from attnsvm.svm.interior_point.kernels import (
    KERNEL,
    add_slacks,
    block_of,
    combine_block,
    find_slacks,
    gram_block,
    inverse_lengths,
    judged,
    margins_block,
    workspace,
)

Iterate: Any = arrays(namedtuple("Iterate", "W s a t U V YU YV", module=__name__))
"""A point, or a step: s, a (N,), t (1, 1) or (p, q), the others (p, q)."""

Work = workspace(
    __name__,
    """
    p q: M dM theta skew c fixed g shift cU cV
    N: margin b f cs inverse_a
    n p: moved
    p: weight
    q: both
    R p: block
    1 1: E
    """,
)
"""Of c, the max norm needs one entry; weight, both, block and E are for `gram_block`."""


@compiled(**KERNEL)
def solve(
    rows: Any, x: Any, best: Any, dx: Any, z: Any, gap: float,
    is_max: bool, system: System,
) -> None:  # fmt: skip
    """Follow the central path from x, block by block, the first axis of rows, x and best."""
    step = _flat(dx.W, dx.s, dx.a, dx.t, dx.U, dx.V, dx.YU, dx.YV)
    for g in range(len(x.s)):
        block, kept = block_of(rows, best, g)
        point = _flat(x.W[g], x.s[g], x.a[g], x.t[g], x.U[g], x.V[g], x.YU[g], x.YV[g])
        left = fill(PATIENCE)
        for _ in range(STEPS):
            combine_block(block.D, block.Z, point.a, z.M, z.moved)
            margins_block(block.D, block.Z, x.W[g], z.margin, z.moved)
            sizes = _sizes(point.W, z.M.flat, is_max)
            left = judged(block, x.W[g], point.s, point.a, z.margin, sizes, kept, left, gap)
            if not any_lane(left > 0):
                break
            _step(block, point, step, z, system, is_max)


@njit
def _flat(W: Any, s: Any, a: Any, t: Any, U: Any, V: Any, YU: Any, YV: Any) -> Any:
    """Return a point whose matrices are vectors."""
    return Iterate(W.flat, s, a, t.flat, U.flat, V.flat, YU.flat, YV.flat)


@njit
def _sizes(W: LaneArray, M: LaneArray, is_max: bool) -> Any:
    """Return norm(W) and dual_norm(M)."""
    most = sum_W = most_M = sum_M = fill(0.0)
    for i in range(len(W)):
        most, sum_W = maximum(abs(W[i]), most), sum_W + abs(W[i])
        most_M, sum_M = maximum(abs(M[i]), most_M), sum_M + abs(M[i])
    return (most, sum_M) if is_max else (sum_W, most_M)


@njit
def _step(rows: Any, x: Any, dx: Any, z: Any, system: Any, is_max: bool) -> None:
    m, N, cU, cV = len(x.W), len(x.s), z.cU.flat, z.cV.flat
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
    for i in range(m):
        x.W[i] += primal * dx.W[i]
        x.U[i] += primal * dx.U[i]
        x.V[i] += primal * dx.V[i]
        x.YU[i] += dual * dx.YU[i]
        x.YV[i] += dual * dx.YV[i]
    for i in range(len(x.t)):
        x.t[i] += primal * dx.t[i]
    for k in range(N):
        x.s[k] += primal * dx.s[k]
        x.a[k] += dual * dx.a[k]


@njit
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
    gram_block(rows.D, rows.Z, z.theta if is_max else z.c, z.E, False, system.K, work)
    if is_max:
        c[0] = 1 / total
        margins_block(rows.D, rows.Z, z.skew, z.b, z.moved)
        for k in range(len(z.b)):
            for j in range(k + 1):
                system.K[k, j] += c[0] * z.b[k] * z.b[j]
    add_slacks(rows, x, z.inverse_a, system.K)
    cholesky.factor(system)


@njit
def _find_direction(rows: Any, x: Any, dx: Any, z: Any, system: Any, is_max: bool) -> None:
    """Write the step to the products U Y_U + cU, V Y_V + cV, s a + cs."""
    m, total = len(x.W), fill(-1.0)
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
    margins_block(rows.D, rows.Z, z.shift, z.f, z.moved)
    find_slacks(rows, x, dx, z, system)
    combine_block(rows.D, rows.Z, dx.a, z.dM, z.moved)
    if is_max:
        for i in range(m):
            total += skew[i] * dM[i]
        dx.t[0] = c[0] * total
    for i in range(m):
        rU, rV = _residuals(x, i, is_max)
        if not is_max:
            dx.t[i] = c[i] * (g[i] - 1 + skew[i] * dM[i])
        dt = dx.t[0 if is_max else i]
        dx.W[i] = theta[i] * (dM[i] + fixed[i]) + skew[i] * dt
        dx.U[i], dx.V[i] = dt - dx.W[i] - rU, dt + dx.W[i] - rV
        dx.YU[i] = (cU[i] - x.YU[i] * dx.U[i]) / x.U[i]
        dx.YV[i] = (cV[i] - x.YV[i] * dx.V[i]) / x.V[i]


@njit(inline="always")
def _residuals(x: Any, i: int, is_max: bool) -> Any:
    """Return U - (t - W) and V - (t + W)."""
    t = x.t[0 if is_max else i]
    return x.U[i] - (t - x.W[i]), x.V[i] - (t + x.W[i])


@njit
def _lengths(x: Any, dx: Any, z: Any, back: float) -> Any:
    """Return `back` times the largest primal and dual steps, at most one."""
    primal, dual = inverse_lengths(x, dx, z, back)
    for i in range(len(x.W)):
        primal = maximum(maximum(-dx.U[i] / x.U[i], -dx.V[i] / x.V[i]), primal)
        dual = maximum(maximum(-dx.YU[i] / x.YU[i], -dx.YV[i] / x.YV[i]), dual)
    return back / primal, back / dual
