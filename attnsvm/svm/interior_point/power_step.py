"""The method of `power` in compiled code, for blocks of eight instances, one in each lane."""

from collections import namedtuple
from typing import Any

from numba import njit

from attnsvm.linalg.jit import compiled, subroutine
from attnsvm.linalg.simd import cholesky
from attnsvm.linalg.simd.arithmetic import any_lane, exp, fill, logarithm, maximum, where
from attnsvm.linalg.simd.array import LaneArray, arrays
from attnsvm.linalg.simd.cholesky import System
from attnsvm.linalg.simd.matmul import add
from attnsvm.linalg.simd.matmul import matmul as multiply
from attnsvm.linalg.simd.svd import full_svd
from attnsvm.svm.interior_point import kernels
from attnsvm.svm.interior_point.loop import BOUNDARY, CLOSE, PATIENCE, SMALL, STEPS

Iterate: Any = arrays(namedtuple("Iterate", "W s a", module=__name__))
"""W (p, q), s, a (N,): a point, or a step."""

Work = kernels.workspace(
    __name__,
    """
    p q: M X Y theta rest
    r r: beta E
    p p: U
    q q: V
    r: sigma powers first second
    N p: D
    n q: Z
    N: shift cs
    pq: columns
    """,
)
"""U, V are those of W or M, column after column; D, Z are the rows in these bases."""


@compiled("solver of a norm", "50 s", **kernels.KERNEL)
def solve(
    rows: Any, x: Any, best: Any, dx: Any, z: Any, gap: float,
    schatten: bool, p: float, q: float, system: System,
) -> None:  # fmt: skip
    """Follow the central path from x, block by block, the first axis of rows, x and best."""
    for g in range(len(x.s)):
        block, kept = kernels.block_of(rows, best, g)
        point = Iterate(x.W[g], x.s[g], x.a[g])
        left = fill(PATIENCE)
        z.D[:], z.Z[:], z.beta[:] = block.D, block.Z, 0.0
        for _ in range(STEPS):
            kernels.combine_block(block.D, block.Z, point.a, z.M, z.moved)
            sizes = _sizes(point, z, schatten, p, q)
            kernels.margins_block(block.D, block.Z, point.W, z.margin, z.moved)
            left = kernels.judged(block, point.W, point, z.margin, sizes, kept, left, gap)
            if not any_lane(left > 0):
                break
            _step(block, point, dx, z, system, schatten, p, q)


@njit(inline="always")
def _raised(x: Any, exponent: float) -> Any:
    """Return x^exponent for x >= 0."""
    return exp(exponent * logarithm(x))


@subroutine
def _sizes(x: Any, z: Any, schatten: bool, p: float, q: float) -> Any:
    """Return norm(W) and dual_norm(M); for p < 2, write W = Psi^{-1}(M) before."""
    work = z.columns, z.first, z.second
    if schatten:
        full_svd(z.M, z.U, z.V, z.sigma, work)
        of_M = _power_norm(z.sigma, q)
        if p < 2:
            for i in range(len(z.sigma)):
                z.powers[i] = _raised(z.sigma[i], q - 1)
            _recompose(z.powers, x.W, z)
            return _power_norm(z.powers, p), of_M
        full_svd(x.W, z.U, z.V, z.sigma, work)
        return _power_norm(z.sigma, p), of_M
    M, W = z.M.flat, x.W.flat
    if p < 2:
        for i in range(len(M)):
            size = _raised(abs(M[i]), q - 1)
            W[i] = where(M[i] < 0, -size, size)
    return _power_norm(W, p), _power_norm(M, q)


@subroutine
def _power_norm(x: LaneArray, p: float) -> Any:
    """Return (sum |x|^p)^(1/p), without overflow of the powers."""
    top, total = fill(0.0), fill(0.0)
    for i in range(len(x)):
        top = maximum(abs(x[i]), top)
    unit = 1 / where(top > 0, top, 1)
    for i in range(len(x)):
        total += _raised(abs(x[i]) * unit, p)
    return _raised(total, 1 / p) * top


@subroutine
def _recompose(values: LaneArray, X: LaneArray, z: Any) -> None:
    """Write U diag(values) V^T."""
    r = len(values)
    for i in range(r):
        for j in range(X.shape[0]):
            z.Y[j, i] = z.U[i, j] * values[i]
    multiply(X, z.Y[:, :r], z.V[:r])


@subroutine
def _step(
    rows: Any, x: Any, dx: Any, z: Any, system: Any, schatten: bool, p: float, q: float
) -> None:
    N, order, now, after = len(x.s), fill(0.0), fill(0.0), fill(0.0)
    if schatten:
        _differentiate_spectrum(z, p, q)
        multiply(z.D, rows.D, z.U.T)
        multiply(z.Z, rows.Z, z.V.T)
    else:
        _differentiate_entries(x.W.flat, z.M.flat, z.theta.flat, z.rest.flat, p, q)
    kernels.gram_block(
        z.D, z.Z, z.theta, z.beta, schatten, system.K, (z.weight, z.both, z.block, z.E)
    )
    kernels.add_slacks(rows, x, z.inverse_a, system.K)
    for k in range(N):
        z.shift[k] = 0.0
        z.cs[k] = -x.s[k] * x.a[k]
        now -= z.cs[k] * rows.inequality[k]
        order += rows.inequality[k]
    cholesky.factor(system)
    if p > 2:
        kernels.weigh(z.theta, z.beta, z.rest, z.X)
        kernels.margins_block(z.D, z.Z, z.X, z.shift, z.moved)
    _find_direction(rows, x, dx, z, system)
    t = _length(x, dx, z, 1.0)
    for k in range(N):
        after += (x.s[k] + t * dx.s[k]) * (x.a[k] + t * dx.a[k]) * rows.inequality[k]
    now, after = where(now > 0, now, 1), where(after > 0, after, 1)
    order = maximum(order, fill(1.0))
    ratio = where(after < now, after / now, 1)
    aim = now / order * ratio * ratio * ratio
    for k in range(N):
        z.cs[k] += aim - dx.s[k] * dx.a[k]
    _find_direction(rows, x, dx, z, system)
    t = _length(x, dx, z, BOUNDARY)
    add(x.s, dx.s, t)
    add(x.a, dx.a, t)
    if p > 2:
        _move(x, dx, z, t, schatten)


@subroutine
def _find_direction(rows: Any, x: Any, dx: Any, z: Any, system: Any) -> None:
    for k in range(len(x.s)):
        z.f[k] = z.shift[k]
    kernels.find_slacks(rows, x, dx, z, system)


@subroutine
def _length(x: Any, dx: Any, z: Any, back: float) -> Any:
    """Return `back` times the largest step, at most one."""
    primal, dual = kernels.inverse_lengths(x, dx, z, back)
    return back / maximum(primal, dual)


@subroutine
def _move(x: Any, dx: Any, z: Any, t: Any, schatten: bool) -> None:
    """Add t U Theta(M(da) + rest) V^T to W."""
    kernels.combine_block(z.D, z.Z, dx.a, z.X, z.moved)
    add(z.X.flat, z.rest.flat, 1.0)
    kernels.weigh(z.theta, z.beta, z.X, z.Y)
    if schatten:
        multiply(z.X, z.U.T, z.Y)
        multiply(z.Y, z.X, z.V)
    add(x.W.flat, z.Y.flat, t)


@subroutine
def _differentiate_entries(
    W: LaneArray, M: LaneArray, theta: LaneArray, rest: LaneArray, p: float, q: float
) -> None:
    e, top = p - 1, fill(0.0)
    for i in range(len(W)):
        top = maximum(abs(W[i]), top)
    floor = _raised(SMALL * top, e)
    for i in range(len(W)):
        if p < 2:
            theta[i], rest[i] = (q - 1) * _raised(abs(M[i]), q - 2), fill(0.0)
        else:
            power = _raised(abs(W[i]), e)
            away = maximum(maximum(power, abs(M[i])), floor)
            theta[i] = _raised(away, (1 - e) / e) / e
            rest[i] = M[i] - where(W[i] < 0, -power, power)


@subroutine
def _differentiate_spectrum(z: Any, p: float, q: float) -> None:
    """Write theta, beta and rest, in the bases U and V, from the SVD of W (p > 2) or of M."""
    r, e, inverse = len(z.sigma), (p - 1 if p > 2 else q - 1), p > 2
    z.rest[:] = 0.0
    if inverse:
        multiply(z.X, z.U, z.M)
        multiply(z.rest, z.X, z.V.T)
        for i in range(r):
            z.rest[i, i] -= _raised(z.sigma[i], e)
    least = SMALL * z.sigma[0]
    for i in range(r):
        z.sigma[i] = maximum(z.sigma[i], least)
        z.powers[i] = _raised(z.sigma[i], e)
    for i in range(z.theta.shape[0]):
        for j in range(z.theta.shape[1]):
            k, l = min(i, r - 1), min(j, r - 1)
            x, y, f, g = z.sigma[k], z.sigma[l], z.powers[k], z.powers[l]
            if i >= r or j >= r:
                single = g / y if i >= r else f / x
                z.theta[i, j] = 1 / single if inverse else single
            else:
                plus = (f + g) / (x + y)
                apart = abs(x - y) > CLOSE * maximum(x, y)
                slope = where(apart, (f - g) / where(apart, x - y, 1), e * plus)
                if inverse:
                    plus, slope = 1 / plus, 1 / slope
                z.theta[i, j], z.beta[i, j] = 0.5 * (slope + plus), 0.5 * (slope - plus)
