r"""Least spectral norm: a primal-dual interior-point method, eight instances at a time.

    primal  min t       s.t.  S = [[t I, -W], [-W^T, t I]] >= 0,  d_k^T W z_k - s_k = h_k,  s_k >= 0
    dual    max h^T a   s.t.  Y = [[Y_1, M / 2], [M^T / 2, Y_2]] >= 0,  tr Y = 1,
                              M = sum_k a_k d_k z_k^T,  a_k >= 0

(s_k = 0 and a_k free on equalities). Optimality: Y S = nu I, a_k s_k = nu, nu -> 0. The direction
is Nesterov's and Todd's, with Mehrotra's second-order correction (M. Todd, K. Toh, R. Tutuncu, SIAM
J. Optim. 8, 1998). With dW = dt W / t + X the step in t is along S / t, whose image under the
scaling is Y / t; hence nothing cancels where S is almost singular. Eliminating X, dt and ds leaves
the N x N system

    (A H^{-1} A^T / 2 + c c^T / kappa + diag(s / a)) da = f

with H X = V_11 X V_22 + V_12 X^T V_12 (`attnsvm.svm.schatten.scaling`), (A X)_k = d_k^T X z_k,
C = Y_12 / t, c = A (W / t + H^{-1} C) and kappa = <S, Y> / t^2 - 2 <C, H^{-1} C>.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, cholesky, definite, matmul, svd
from attnsvm.linalg.simd.arithmetic import (
    any_greater,
    at,
    fill,
    fma,
    load,
    most,
    store,
    where_greater,
)
from attnsvm.linalg.simd.cholesky import System, factor, solve
from attnsvm.linalg.simd.definite import way
from attnsvm.linalg.simd.matmul import dot, product
from attnsvm.linalg.simd.svd import decompose_columns
from attnsvm.svm import laned
from attnsvm.svm.laned import (
    NO_BOUND,
    PATIENCE,
    Rows,
    add_slack,
    keep_better,
    least_margin,
    set_slacks,
    slack_step,
    slack_targets,
    start_sizes,
)
from attnsvm.svm.nuclear.compiled import arrays
from attnsvm.svm.nuclear.compiled.arrays import dual_matrix, margins_of
from attnsvm.svm.schatten import scaling, turned
from attnsvm.svm.schatten.scaling import diagonalise, rescale, scale
from attnsvm.svm.schatten.turned import Weights, pair_gram, weigh

STEPS = 60
CENTRING = 0.1
BOUNDARY = 0.95
"""Share of the way to the boundary of the cone."""

SMALLEST_STEP = 1e-8
INCLUDED = (arithmetic, matmul, cholesky, svd, definite, laned, arrays, turned, scaling)


class Point(NamedTuple):
    """Addresses of t, W (p, q), Y (P, P), s, a (N,): an iterate."""

    t: int
    W: int
    Y: int
    s: int
    a: int

    @staticmethod
    def entries(N: int, p: int, q: int) -> tuple[int, ...]:
        """Return the number of entries of each array."""
        return 1, p * q, (p + q) ** 2, N, N


class Work(NamedTuple):
    """Addresses of the workspace; P = p + q, r = min(p, q)."""

    F: int  # (P, P)
    V: int
    G: int
    S_root: int  # later T, R - dS
    Y_root: int
    R: int  # targets
    dS: int  # scaled
    dY: int
    L: int
    delta: int  # (P,)
    pivot: int
    panel: int  # (P, PANEL)
    T_1: int  # (p, p)
    U_1: int
    X_1: int
    T_2: int  # (q, q)
    U_2: int
    X_2: int
    H_1: int  # (p, P)
    right: int
    H_2: int  # (q, P)
    M: int  # (p, q)
    C: int
    HC: int
    rho: int
    X: int
    dX: int
    cosine: int  # (r,)
    reflected: int
    flips: int
    ds: int  # (N,)
    da: int
    c: int
    rp: int
    rc: int
    ia: int
    f: int
    margin: int

    @staticmethod
    def entries(N: int, p: int, q: int) -> tuple[int, ...]:
        """Return the number of entries of each array."""
        P, r = p + q, min(p, q)
        whole = (P * P,) * 9 + (P, P, P * cholesky.PANEL)
        parts = (p * p,) * 3 + (q * q,) * 3 + (p * P, p * P, q * P) + (p * q,) * 6
        return (*whole, *parts, r, r, r, *(N,) * 8)


class Best(NamedTuple):
    """Addresses of W (p, q) and a (N,) of the least upper and greatest lower bound.

    First they hold the Frobenius solution.
    """

    W: int
    a: int


@compiled(*INCLUDED, nogil=True, error_model="numpy")
def solve_group(
    rows: Rows,
    turned: Rows,
    x: Point,
    z: Work,
    weights: Weights,
    system: System,
    best: Best,
    gap: float,
) -> None:
    """Overwrite W and a of `best` by the best found."""
    zero = fill(0.0)
    scalable = _set_start(rows, best, x, z)
    scale(rows, x, z)
    bounds, running = (fill(NO_BOUND), zero), fill(PATIENCE)
    pair, step = (x.s, x.a), (z.ds, z.da)
    for _ in range(STEPS):
        if not any_greater(running, zero):
            break
        diagonalise(rows, turned, z, weights)
        inner, trace_left = _prepare(rows, turned, x, z, weights)
        kappa = _factor_schur(rows, turned, x, z, weights, system, inner)
        numbers = trace_left, kappa
        nu = fill(CENTRING) * _mean(rows, x, inner)
        _aim(rows, z, nu, False)
        slack_targets(rows, pair, step, zero, False, z.rc)
        _direction(rows, turned, x, z, weights, system, numbers)
        _aim(rows, z, nu, True)
        slack_targets(rows, pair, step, nu, True, z.rc)
        dt = _direction(rows, turned, x, z, weights, system, numbers)
        primal, dual = _lengths(rows, x, z)
        _advance(rows, x, z, dt, primal, dual)
        rescale(z, primal, dual, rows.p + rows.q)
        found = _bracket(rows, x, z, scalable)
        bounds, running = keep_better(
            rows, (best.W, best.a), (x.W, x.a), bounds, found, running, gap
        )
        running = where_greater(most(primal, dual), fill(SMALLEST_STEP), running, zero)


@njit
def _set_start(rows: Any, given: Any, x: Any, z: Any) -> Any:
    """Set a strictly feasible point from the Frobenius solution.

    Return one where W may be rescaled, zero where an equality has h_k != 0.
    """
    p, q, N = rows.p, rows.q, rows.n * rows.R
    P, one, half = p + q, fill(1.0), fill(0.5)
    sizes = start_sizes(rows, given.a)
    scalable, stretch, _, _ = sizes
    for i in range(p * q):
        store(x.W, i, load(given.W, i) * stretch)
    _decompose(x.W, z, p, q)
    store(x.t, 0, fill(1.3) * load(z.cosine, 0))
    margins_of(rows, x.W, z.margin)
    set_slacks(rows, given.a, z.margin, sizes, x.s, x.a)
    dual_matrix(rows, x.a, z.M)
    size = _decompose(z.M, z, p, q)
    lift = fill(0.3 / P) * size
    unit = one / (fill(1.3) * size)
    long, short = max(p, q), min(p, q)
    for j in range(short):
        half_sigma = fill(0.5) * load(z.cosine, j)
        for i in range(long):
            store(z.G, j * long + i, load(z.F, j * long + i) * half_sigma)
        for i in range(short):
            store(z.R, j * short + i, load(z.V, j * short + i) * half_sigma)
    of_long = (x.Y if p >= q else at(x.Y, p * P + p), P, 1)
    of_short = (at(x.Y, p * P + p) if p >= q else x.Y, P, 1)
    product(of_long, (z.F, 1, long), (z.G, long, 1), (long, long, short))
    product(of_short, (z.V, 1, short), (z.R, short, 1), (short, short, short))
    for i in range(P):
        store(x.Y, i * P + i, load(x.Y, i * P + i) + lift)
    for i in range(p):
        for j in range(q):
            entry = half * load(z.M, i * q + j)
            store(x.Y, i * P + p + j, entry)
            store(x.Y, (p + j) * P + i, entry)
    for i in range(P * P):
        store(x.Y, i, load(x.Y, i) * unit)
    for k in range(N):
        store(x.a, k, load(x.a, k) * unit)
    return scalable


@njit
def _decompose(M: int, z: Any, p: int, q: int) -> Any:
    """Write the singular values of M to z.cosine and vectors to z.F and z.V; return their sum."""
    total, long, short = fill(0.0), max(p, q), min(p, q)
    for i in range(p):
        for j in range(q):
            store(z.F, j * p + i if p >= q else i * q + j, load(M, i * q + j))
    decompose_columns(z.F, z.V, z.cosine, long, short)
    for j in range(short):
        total = total + load(z.cosine, j)
    return total


@njit
def _prepare(rows: Any, turned: Any, x: Any, z: Any, weights: Any) -> Any:
    """Write the residuals of rows and of Y_12 = M / 2, C and H^{-1} C.

    Return <S, Y> and 1 - tr Y.
    """
    p, q, t = rows.p, rows.q, load(x.t, 0)
    P, inner, left = p + q, fill(0.0), fill(1.0)
    for i in range(P):
        inner = fma(load(z.delta, i), load(z.delta, i), inner)
        left = left - load(x.Y, i * P + i)
    dual_matrix(rows, x.a, z.M)
    for i in range(p):
        for j in range(q):
            Y_12 = load(x.Y, i * P + p + j)
            store(z.rho, i * q + j, fill(0.5) * load(z.M, i * q + j) - Y_12)
            store(z.C, i * q + j, Y_12 / t)
    _turn_matrix(z, z.C, z.C, p, q)
    weigh(weights, z.C, z.HC, p, q)
    margins_of(rows, x.W, z.margin)
    for k in range(rows.n * rows.R):
        is_one, s = load(rows.inequality, k), load(x.s, k)
        missing = (load(rows.h, k) - load(z.margin, k)) * load(rows.real, k)
        store(z.rp, k, fma(s, is_one, missing))
        inverse = fill(1.0) / load(x.a, k)
        store(z.ia, k, where_greater(is_one, fill(0.5), inverse, fill(0.0)))
    return inner, left


@njit
def _turn_matrix(z: Any, X: int, result: int, p: int, q: int) -> None:
    """Write X_1^T X X_2, (p, q)."""
    product((z.right, q, 1), (X, q, 1), (z.X_2, q, 1), (p, q, q))
    product((result, q, 1), (z.X_1, 1, p), (z.right, q, 1), (p, q, p))


@njit
def _factor_schur(
    rows: Any, turned: Any, x: Any, z: Any, weights: Any, system: Any, inner: Any
) -> Any:
    """Factor the system of da; return kappa."""
    p, q, N, t = rows.p, rows.q, rows.n * rows.R, load(x.t, 0)
    kappa = inner / (t * t) - fill(2.0) * dot(z.C, z.HC, p * q)
    margins_of(turned, z.HC, z.c)
    for k in range(N):
        store(z.c, k, load(z.c, k) + load(z.margin, k) / t)
    pair_gram(turned, weights, system.K)
    for k in range(N):
        weight = load(z.c, k) / kappa
        for m in range(k + 1):
            entry = fma(weight, load(z.c, m), fill(0.5) * load(system.K, k * N + m))
            store(system.K, k * N + m, entry)
    add_slack(rows, system.K, x.s, z.ia)
    factor(system)
    return kappa


@njit
def _mean(rows: Any, x: Any, inner: Any) -> Any:
    """Return the mean of the products that go to zero, <S, Y> + a^T s by their number."""
    total, count = inner, fill(float(rows.p + rows.q))
    for k in range(rows.n * rows.R):
        is_one = load(rows.inequality, k)
        total = fma(load(x.a, k) * is_one, load(x.s, k), total)
        count = count + is_one
    return total / count


@njit
def _aim(rows: Any, z: Any, nu: Any, second: bool) -> None:
    """Write the target of dS + dY in the scaling: of products zero, or nu less the curvature."""
    P, zero = rows.p + rows.q, fill(0.0)
    if second:
        for i in range(P * P):
            store(z.dY, i, load(z.R, i) - load(z.dS, i))
        product((z.F, P, 1), (z.dS, P, 1), (z.dY, P, 1), (P, P, P))
    for i in range(P):
        delta = load(z.delta, i)
        for j in range(i):
            target = zero
            if second:
                curve = load(z.F, i * P + j) + load(z.F, j * P + i)
                target = zero - curve / (delta + load(z.delta, j))
            store(z.R, i * P + j, target)
            store(z.R, j * P + i, target)
        target = zero - delta
        if second:
            target = (nu - load(z.F, i * P + i)) / delta - delta
        store(z.R, i * P + i, target)


@njit
def _direction(
    rows: Any, turned: Any, x: Any, z: Any, weights: Any, system: Any, numbers: Any
) -> Any:
    """Write X, da, ds and the scaled dS for the targets; return dt."""
    p, q, N, t, half = rows.p, rows.q, rows.n * rows.R, load(x.t, 0), fill(0.5)
    (trace_left, kappa), P = numbers, p + q
    _turn_matrix(z, z.rho, z.M, p, q)
    product((z.right, P, 1), (z.H_1, P, 1), (z.R, P, 1), (p, P, P))
    product((z.dX, q, 1), (z.right, P, 1), (z.H_2, 1, P), (p, q, P))
    for i in range(p * q):
        store(z.M, i, load(z.M, i) - load(z.dX, i))
    weigh(weights, z.M, z.X, p, q)
    tau = fill(2.0) * dot(x.W, z.rho, p * q)
    for i in range(P):
        tau = fma(load(z.delta, i), load(z.R, i * P + i), tau)
    tau = tau / t - trace_left + fill(2.0) * dot(z.C, z.X, p * q)
    margins_of(turned, z.X, z.f)
    for k in range(N):
        f = fma(load(z.rc, k), load(z.ia, k), load(z.rp, k) - load(z.f, k))
        store(z.f, k, (f - load(z.c, k) * tau / kappa) * load(rows.real, k))
    solve(system, z.f, z.da)
    slack_step(rows, x.s, z.da, z.ia, z.rc, z.ds)
    dt = (tau + dot(z.c, z.da, N)) / kappa
    dual_matrix(turned, z.da, z.M)
    weigh(weights, z.M, z.dX, p, q)
    for i in range(p * q):
        entry = fma(half, load(z.dX, i), load(z.X, i))
        store(z.X, i, fma(dt, load(z.HC, i), entry))
    product((z.right, P, 1), (z.X, q, 1), (z.H_2, P, 1), (p, P, q))
    product((z.dS, P, 1), (z.H_1, 1, P), (z.right, P, 1), (P, P, p))
    for i in range(P):
        for j in range(i + 1):
            entry = fill(0.0) - load(z.dS, i * P + j) - load(z.dS, j * P + i)
            if i == j:
                entry = fma(dt / t, load(z.delta, i), entry)
            store(z.dS, i * P + j, entry)
            store(z.dS, j * P + i, entry)
    return dt


@njit
def _lengths(rows: Any, x: Any, z: Any) -> Any:
    """Return the primal and dual step lengths that stay inside the cone, at most 1; leave dY."""
    P, zero, back = rows.p + rows.q, fill(0.0), fill(BOUNDARY)
    primal = dual = back
    for k in range(rows.n * rows.R):
        is_one = load(rows.inequality, k)
        primal = most((zero - load(z.ds, k)) / load(x.s, k) * is_one, primal)
        dual = most((zero - load(z.da, k)) * load(z.ia, k), dual)
    for i in range(P):
        for j in range(P):
            store(z.dY, i * P + j, load(z.R, i * P + j) - load(z.dS, i * P + j))
            store(z.V, i * P + j, load(z.delta, i) if i == j else zero)
    work = (z.F, z.L, z.pivot, z.panel)
    primal = back * way(z.V, z.dS, work, P, fill(1.0) / primal)
    return primal, back * way(z.V, z.dY, work, P, fill(1.0) / dual)


@njit
def _advance(rows: Any, x: Any, z: Any, dt: Any, primal: Any, dual: Any) -> None:
    p, q = rows.p, rows.q
    P, stretch = p + q, fma(primal, dt / load(x.t, 0), fill(1.0))
    product((z.right, q, 1), (z.X_1, p, 1), (z.X, q, 1), (p, q, p))
    product((z.M, q, 1), (z.right, q, 1), (z.X_2, 1, q), (p, q, q))
    for i in range(p * q):
        store(x.W, i, fma(primal, load(z.M, i), load(x.W, i) * stretch))
    store(x.t, 0, load(x.t, 0) * stretch)
    product((z.V, P, 1), (z.G, P, 1), (z.dY, P, 1), (P, P, P))
    product((z.F, P, 1), (z.V, P, 1), (z.G, 1, P), (P, P, P))
    for i in range(P):
        for j in range(i + 1):
            mean = fill(0.5) * (load(z.F, i * P + j) + load(z.F, j * P + i))
            entry = fma(dual, mean, load(x.Y, i * P + j))
            store(x.Y, i * P + j, entry)
            store(x.Y, j * P + i, entry)
    for k in range(rows.n * rows.R):
        store(x.s, k, fma(primal, load(z.ds, k), load(x.s, k)))
        store(x.a, k, fma(dual, load(z.da, k), load(x.a, k)))


@njit
def _bracket(rows: Any, x: Any, z: Any, scalable: Any) -> Any:
    """Return the bounds that the point proves, t / mu and h^T a / ||M(a)||_*."""
    p, q, zero, one = rows.p, rows.q, fill(0.0), fill(1.0)
    margins_of(rows, x.W, z.margin)
    mu = least_margin(rows, z.margin)
    mu = where_greater(mu, fill(0.5 * NO_BOUND), one, mu)
    mu = where_greater(scalable, zero, mu, one)
    upper = where_greater(mu, zero, load(x.t, 0) / mu, fill(NO_BOUND))
    dual_matrix(rows, x.a, z.M)
    size = _decompose(z.M, z, p, q)
    lower = where_greater(size, zero, dot(rows.h, x.a, rows.n * rows.R) / size, zero)
    return upper, lower
