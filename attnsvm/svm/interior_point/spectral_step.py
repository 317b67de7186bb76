"""The method of `spectral` in compiled code, for blocks of eight instances, one in each lane."""

from collections import namedtuple
from typing import Any

from attnsvm.linalg.jit import compiled, subroutine
from attnsvm.linalg.simd import cholesky, matmul
from attnsvm.linalg.simd.arithmetic import any_lane, fill, sqrt
from attnsvm.linalg.simd.array import LaneArray, arrays
from attnsvm.linalg.simd.cholesky import System, inverse_cholesky, largest_definite_step
from attnsvm.linalg.simd.matmul import add
from attnsvm.linalg.simd.matmul import matmul as multiply
from attnsvm.linalg.simd.svd import full_svd
from attnsvm.svm.interior_point import kernels
from attnsvm.svm.interior_point.loop import BOUNDARY, CENTRING, PATIENCE, STEPS

Iterate: Any = arrays(namedtuple("Iterate", "W s a t Y delta G", module=__name__))
"""W (p, q), s, a (N,), t (1,), Y (P, P), delta (P,), G (P, P).

Of a step, W is X, and Y and G are the changes of Y and S in the scaling.
"""

Work = kernels.workspace(
    __name__,
    """
    P P: R S T L U V
    p p: T_1 X_1
    q q: T_2 X_2
    p P: G_1 H_1
    q P: G_2 H_2
    p q: M C HC rho theta X XH
    r r: beta E
    r: cosine
    N p: D
    n q: Z
    N: c cs
    PP: columns
    P: first second pivot
    P panel: panel
    """,
)
"""U, V are those of an SVD, column after column; rho, D, Z are in the bases X_1, X_2."""


@compiled("solver of a norm", "50 s", **kernels.KERNEL)
def solve(
    rows: Any, x: Any, best: Any, dx: Any, z: Any, gap: float,
    system: System,
) -> None:  # fmt: skip
    """Follow the central path from x, block by block, the first axis of rows, x and best."""
    p, q = z.M.shape
    r = min(p, q)
    for g in range(len(x.s)):
        block, kept = kernels.block_of(rows, best, g)
        point = Iterate(x.W[g], x.s[g], x.a[g], x.t[g], x.Y[g], x.delta[g], x.G[g])
        left = fill(PATIENCE)
        for _ in range(STEPS):
            kernels.combine_block(block.D, block.Z, point.a, z.M, z.moved)
            kernels.margins_block(block.D, block.Z, point.W, z.margin, z.moved)
            _decompose(z.M, z.cosine, z)
            dual = fill(0.0)
            for i in range(r):
                dual += z.cosine[i]
            sizes = point.t[0], dual
            left = kernels.judged(block, point.W, point, z.margin, sizes, kept, left, gap)
            if not any_lane(left > 0):
                break
            _step(block, point, dx, z, system)


@subroutine
def _decompose(A: LaneArray, sigma: LaneArray, z: Any) -> None:
    """Write U (p, p) and V (q, q), column after column, and sigma of a matrix."""
    p, q = A.shape
    r = min(p, q)
    full_svd(A, z.U[:p, :p], z.V[:q, :q], sigma, (z.columns[: p * q], z.first[:r], z.second[:r]))


@subroutine
def _step(rows: Any, x: Any, dx: Any, z: Any, system: Any) -> None:
    P, N, t = len(x.Y), len(x.s), x.t[0]
    _scale(x, z)
    inner, left, order = fill(0.0), fill(1.0), fill(1.0 * P)
    for i in range(P):
        inner += x.delta[i] * x.delta[i]
        left -= x.Y[i, i]
    kappa = inner / (t * t) - 2 * _inner(z.C, z.HC)
    along = _turned_rho(x, z)
    _factor(rows, x, z, system, t, kappa)
    products = inner
    for k in range(N):
        z.cs[k] = -x.s[k] * x.a[k]
        products -= z.cs[k] * rows.inequality[k]
        order += rows.inequality[k]
    nu = CENTRING * products / order
    z.R[:] = 0.0
    for i in range(P):
        z.R[i, i] = -x.delta[i]
    _find_direction(rows, x, dx, z, system, kappa, along, left)
    multiply(z.S, dx.G, dx.Y)
    for i in range(P):
        for j in range(P):
            z.R[i, j] = -(z.S[i, j] + z.S[j, i]) / (x.delta[i] + x.delta[j])
        z.R[i, i] += nu / x.delta[i] - x.delta[i]
    for k in range(N):
        z.cs[k] += nu - dx.s[k] * dx.a[k]
    _find_direction(rows, x, dx, z, system, kappa, along, left)
    _move(x, dx, z)


@subroutine
def _scale(x: Any, z: Any) -> None:
    """Write X_1, X_2, H_1, H_2, theta, beta, and C and H^{-1} C in these bases."""
    p, q = z.M.shape
    for G, T, H in ((x.G[:p], z.T_1, z.G_1), (x.G[p:], z.T_2, z.G_2)):
        size = len(T)
        multiply(z.S[:size, :size], G, G.T)
        work = z.L[:size, :size], z.pivot[:size], z.panel[:size]
        inverse_cholesky(z.S[:size, :size], work, T)
        multiply(H, T.T, G)
    multiply(z.X, z.G_1, z.G_2.T)
    _decompose(z.X, z.cosine, z)
    multiply(z.X_1, z.T_1, z.U[:p, :p].T)
    multiply(z.X_2, z.T_2, z.V[:q, :q].T)
    multiply(z.H_1, z.U[:p, :p], z.G_1)
    multiply(z.H_2, z.V[:q, :q], z.G_2)
    z.theta[:] = 1.0
    for i in range(len(z.cosine)):
        for j in range(len(z.cosine)):
            both = z.cosine[i] * z.cosine[j]
            z.theta[i, j] = 1 / ((1 - both) * (1 + both))
            z.beta[i, j] = -both * z.theta[i, j]
    _turn(z, x.Y[:p, p:], z.C)
    for i in range(p):
        for j in range(q):
            z.C[i, j] /= x.t[0]
    kernels.weigh(z.theta, z.beta, z.C, z.HC)


@subroutine
def _turn(z: Any, X: LaneArray, turned: LaneArray) -> None:
    """Write X_1^T X X_2."""
    multiply(z.XH, z.X_1.T, X)
    multiply(turned, z.XH, z.X_2)


@subroutine
def _inner(A: LaneArray, B: LaneArray) -> Any:
    """Return <A, B> of two matrices."""
    total = fill(0.0)
    for i in range(A.shape[0]):
        total += matmul.inner(A[i], B[i])
    return total


@subroutine
def _turned_rho(x: Any, z: Any) -> Any:
    """Write X_1^T rho X_2, rho = M / 2 - Y_12; return 2 <W, rho>."""
    p, q = z.M.shape
    for i in range(p):
        for j in range(q):
            z.X[i, j] = 0.5 * z.M[i, j] - x.Y[i, p + j]
    _turn(z, z.X, z.rho)
    return 2 * _inner(x.W, z.X)


@subroutine
def _factor(rows: Any, x: Any, z: Any, system: Any, t: Any, kappa: Any) -> None:
    """Factor the matrix of the Newton system; write the turned rows, c and 1 / a."""
    K = system.K
    multiply(z.D, rows.D, z.X_1)
    multiply(z.Z, rows.Z, z.X_2)
    kernels.margins_block(z.D, z.Z, z.HC, z.c, z.moved)
    kernels.gram_block(z.D, z.Z, z.theta, z.beta, True, K, (z.weight, z.both, z.block, z.E))
    for k in range(len(x.s)):
        z.c[k] += z.margin[k] / t
        for j in range(k + 1):
            K[k, j] = 0.5 * K[k, j] + z.c[k] * z.c[j] / kappa
    kernels.add_slacks(rows, x, z.inverse_a, K)
    cholesky.factor(system)


@subroutine
def _find_direction(
    rows: Any, x: Any, dx: Any, z: Any, system: Any, kappa: Any, along: Any, left: Any
) -> None:
    """Write the step to the products Y S + R in the scaling, and s a + cs."""
    P, (p, q), t = len(x.Y), z.M.shape, x.t[0]
    multiply(z.G_1, z.H_1, z.R)
    multiply(z.X, z.G_1, z.H_2.T)
    for i in range(p):
        for j in range(q):
            z.X[i, j] = z.rho[i, j] - z.X[i, j]
    kernels.weigh(z.theta, z.beta, z.X, dx.W)
    tau = along
    for i in range(P):
        tau += x.delta[i] * z.R[i, i]
    tau = tau / t - left + 2 * _inner(z.C, dx.W)
    kernels.margins_block(z.D, z.Z, dx.W, z.f, z.moved)
    for k in range(len(x.s)):
        z.f[k] += z.c[k] * tau / kappa
    kernels.find_slacks(rows, x, dx, z, system)
    dt = (tau + matmul.inner(z.c, dx.a)) / kappa
    dx.t[0] = dt
    kernels.combine_block(z.D, z.Z, dx.a, z.X, z.moved)
    kernels.weigh(z.theta, z.beta, z.X, z.XH)
    for i in range(p):
        for j in range(q):
            dx.W[i, j] += 0.5 * z.XH[i, j] + dt * z.HC[i, j]
    multiply(z.G_1, dx.W, z.H_2)
    multiply(z.S, z.H_1.T, z.G_1)
    for i in range(P):
        for j in range(P):
            dx.G[i, j] = -(z.S[i, j] + z.S[j, i])
        dx.G[i, i] += dt / t * x.delta[i]
        for j in range(P):
            dx.Y[i, j] = z.R[i, j] - dx.G[i, j]
    multiply(z.XH, z.X_1, dx.W)
    multiply(dx.W, z.XH, z.X_2.T)


@subroutine
def _move(x: Any, dx: Any, z: Any) -> None:
    """Take most of the largest primal and dual steps, and find the next scaling."""
    P, (primal, dual) = len(x.Y), kernels.inverse_lengths(x, dx, z, BOUNDARY)
    z.R[:] = 0.0
    for i in range(P):
        z.R[i, i] = x.delta[i]
    work = z.S, z.L, z.pivot, z.panel
    primal = BOUNDARY * largest_definite_step(z.R, dx.G, None, work, 1 / primal)
    dual = BOUNDARY * largest_definite_step(z.R, dx.Y, None, work, 1 / dual)
    multiply(z.S, x.G, dx.Y)
    multiply(z.T, z.S, x.G.T)
    for i in range(P):
        for j in range(P):
            x.Y[i, j] += 0.5 * dual * (z.T[i, j] + z.T[j, i])
    _cholesky(z, dx.G, primal, z.T)
    _cholesky(z, dx.Y, dual, dx.G)
    multiply(z.S, z.T.T, dx.G)
    full_svd(z.S, z.U, z.V, x.delta, (z.columns, z.first, z.second))
    multiply(z.T, x.G, dx.G)
    multiply(x.G, z.T, z.V.T)
    for j in range(P):
        inverse = 1 / sqrt(x.delta[j])
        for i in range(P):
            x.G[i, j] *= inverse
    stretch = 1 + primal * dx.t[0] / x.t[0]
    for i in range(x.W.shape[0]):
        for j in range(x.W.shape[1]):
            x.W[i, j] = stretch * x.W[i, j] + primal * dx.W[i, j]
    x.t[0] *= stretch
    add(x.s, dx.s, primal)
    add(x.a, dx.a, dual)


@subroutine
def _cholesky(z: Any, step: LaneArray, length: Any, L: LaneArray) -> None:
    """Write L, with its diagonal and zeros above, of diag(delta) + length step; R = diag(delta)."""
    P = len(L)
    for i in range(P):
        for j in range(P):
            z.S[i, j] = z.R[i, j] + length * step[i, j]
    cholesky.cholesky(z.S, L, z.pivot, z.panel, 0.0)
    for i in range(P):
        L[i, i] = 1 / z.pivot[i]
        L[i, i + 1 :] = 0.0
