r"""Mehrotra's predictor-corrector method for the max and l1 norms, eight instances at a time.

With M(a) = sum_k a_k d_k z_k^T, the margins A W, (A W)_k = d_k^T W z_k, and U = t - W, V = t + W:

    max:  min t           s.t.  U, V >= 0,  s = A W - h >= 0        t a number
    l1:   min sum_ij t_ij                                           t a matrix

    dual: Y_U - Y_V = M(a),  a, Y_U, Y_V >= 0,  sum(Y_U + Y_V) = 1 (max), Y_U + Y_V = 1 (l1)

With P = Y_U / U, Q = Y_V / V the Newton system reduces to (A diag(theta) A^T + diag(s / a)) da = f,
theta = 1 / (P + Q), plus a rank-one term (max), or theta = (P + Q) / (4 P Q) (l1).
S. Wright, Primal-Dual Interior-Point Methods, chapter 10.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, cholesky, matmul
from attnsvm.linalg.simd.arithmetic import (
    any_greater,
    fill,
    fma,
    load,
    magnitude,
    most,
    store,
    where_greater,
)
from attnsvm.linalg.simd.cholesky import System, factor, solve
from attnsvm.linalg.simd.matmul import dot
from attnsvm.svm import laned
from attnsvm.svm.laned import (
    NO_BOUND,
    PATIENCE,
    Rows,
    add_slack,
    combine,
    keep_better,
    least_margin,
    margins,
    slack_products,
    slack_step,
    slack_targets,
    weighted_gram,
)

STEPS = 60
BACK = 0.995
"""Share of the largest step that keeps all variables positive."""

MAX, L1 = 0, 1


class Point(NamedTuple):
    """Addresses of t, W, U, V, Y_U, Y_V (d, d) and s, a (N,): an iterate, or a step."""

    t: int
    W: int
    U: int
    V: int
    YU: int
    YV: int
    s: int
    a: int


class Linear(NamedTuple):
    """Addresses of what one step needs: reciprocals, residuals, weights, targets and workspace."""

    iU: int
    iV: int
    rU: int
    rV: int
    rW: int
    rt: int
    theta: int
    skew: int  # (P - Q) / (P + Q)
    ic: int  # l1: (P + Q) / (4 P Q)
    cU: int  # targets of U Y_U, V Y_V, s a less their values
    cV: int
    M: int
    fixed: int
    weighted: int
    g: int
    cs: int
    ia: int
    si: int
    rs: int
    b: int  # max: A skew
    f: int
    margin: int


class Best(NamedTuple):
    """Addresses of W (d, d) and a (N,) of the least upper and the greatest lower bound."""

    W: int
    a: int


MATRICES = 15
"""The first fields of `Linear` are (d, d), the others (N,)."""


@compiled(arithmetic, matmul, cholesky, laned, nogil=True, error_model="numpy")
def solve_group(
    rows: Rows, x: Point, dx: Point, z: Linear, system: System, best: Best, norm: int, gap: float
) -> None:
    """Overwrite W and a of `best`, the Frobenius solution, by the best found."""
    bounds, running = _bracket(rows, best.W, best.a, z, norm), fill(PATIENCE)
    _start(rows, best, x, z, norm)
    for _ in range(STEPS):
        mu, count, it = _linearise(rows, x, z, norm)
        _factor(rows, x, z, system, it[1], norm)
        _aim(rows, x, dx, z, fill(0.0), False)
        _direction(rows, x, dx, z, system, it, norm)
        primal, dual = _lengths(rows, x, dx, z, fill(1.0))
        after = _complementarity(rows, x, dx, primal, dual) / count
        ratio = after / mu
        _aim(rows, x, dx, z, mu * ratio * ratio * ratio, True)
        _direction(rows, x, dx, z, system, it, norm)
        primal, dual = _lengths(rows, x, dx, z, fill(BACK))
        _advance(rows, x, dx, primal, dual)
        found = _bracket(rows, x.W, x.a, z, norm)
        kept, new = (best.W, best.a), (x.W, x.a)
        bounds, running = keep_better(rows, kept, new, bounds, found, running, gap)
        if not any_greater(running, fill(0.0)):
            break


@njit(inline="always")
def _bracket(rows: Any, W: int, a: int, z: Any, norm: int) -> Any:
    """Return norm(W) / min margin and h^T a / dual_norm(M(a)); leave the margins and M in z."""
    margins(rows, W, z.margin)
    combine(rows, a, z.M)
    least_ratio = least_margin(rows, z.margin)
    least_ratio = where_greater(least_ratio, fill(0.5 * NO_BOUND), fill(1.0), least_ratio)
    size = dual = sums = fill(0.0)
    for j in range(rows.p * rows.q):
        w, m = magnitude(load(W, j)), magnitude(load(z.M, j))
        sums = sums + (w + m)
        if norm == MAX:
            size, dual = most(w, size), dual + m
        else:
            size, dual = size + w, most(m, dual)
    value = dot(rows.h, a, rows.n * rows.R)
    zero, infinite = fill(0.0), fill(NO_BOUND)
    size = size + zero * sums  # NaN where an entry is: a maximum passes over NaN
    dual = dual + zero * sums
    upper = where_greater(least_ratio, zero, size / least_ratio, infinite)
    return upper, where_greater(dual, zero, value / dual, zero)


@njit(inline="always")
def _start(rows: Any, given: Any, x: Any, z: Any, norm: int) -> None:
    """Set a strictly positive point near the Frobenius solution; z has its margins and M."""
    m, N, zero, one, half = rows.p * rows.q, rows.n * rows.R, fill(0.0), fill(1.0), fill(0.5)
    fixed = zero  # largest |h_k| of the equalities: with any, W has a scale
    for k in range(N):
        h = where_greater(load(rows.inequality, k), half, zero, load(rows.h, k))
        fixed = most(magnitude(h), fixed)
    stretch = least_margin(rows, z.margin)
    stretch = where_greater(stretch, fill(0.5 * NO_BOUND), one, stretch)
    stretch = one / where_greater(fixed, zero, one, stretch)
    largest = total = of_M = zero
    for j in range(m):
        w, M = load(given.W, j) * stretch, magnitude(load(z.M, j))
        store(x.W, j, w)
        largest, total = most(magnitude(w), largest), total + magnitude(w)
        of_M = of_M + M if norm == MAX else most(M, of_M)
    slack = top = zero
    for k in range(N):
        is_one = load(rows.inequality, k)
        s = most(load(z.margin, k) * stretch - load(rows.h, k), zero) * is_one
        store(x.s, k, s)
        slack = most(most(s, magnitude(load(rows.h, k))), slack)
        top = most(load(given.a, k) * is_one, top)
    scale = half / of_M
    for k in range(N):
        is_one, a = load(rows.inequality, k), load(given.a, k)
        lifted = load(x.s, k) + fill(0.1) * slack
        store(x.s, k, where_greater(is_one, half, lifted, one))
        a = where_greater(is_one, half, most(a, zero) + fill(0.1) * top, a)
        store(x.a, k, a * scale * load(rows.real, k))
    mean = total * fill(1.0 / m)
    for j in range(m):
        w, M = load(x.W, j), load(z.M, j) * scale
        t = fill(1.5) * largest if norm == MAX else magnitude(w) + mean
        rest = fill(0.25 / m) if norm == MAX else fill(0.25)
        store(x.t, j, t)
        store(x.U, j, t - w)
        store(x.V, j, t + w)
        store(x.YU, j, most(M, zero) + rest)
        store(x.YV, j, most(zero - M, zero) + rest)


@njit(inline="always")
def _linearise(rows: Any, x: Any, z: Any, norm: int) -> Any:
    """Write residuals, reciprocals and weights; return mu, its count, and the sums over entries."""
    m, N, zero, one = rows.p * rows.q, rows.n * rows.R, fill(0.0), fill(1.0)
    margins(rows, x.W, z.margin)
    combine(rows, x.a, z.M)
    product = weight = both = zero
    for j in range(m):
        t, w, U, V = load(x.t, j), load(x.W, j), load(x.U, j), load(x.V, j)
        YU, YV = load(x.YU, j), load(x.YV, j)
        store(z.rU, j, U - (t - w))
        store(z.rV, j, V - (t + w))
        store(z.rW, j, load(z.M, j) - YU + YV)
        store(z.rt, j, YU + YV - one)
        both = both + (YU + YV)
        iU, iV = one / U, one / V
        store(z.iU, j, iU)
        store(z.iV, j, iV)
        P, Q = YU * iU, YV * iV
        theta = one / (P + Q)
        store(z.theta, j, theta)
        store(z.skew, j, (P - Q) * theta)
        if norm == MAX:
            weight = weight + P * Q * theta
        else:
            store(z.ic, j, fill(0.25) / (P * Q) * (P + Q))
        product = product + (U * YU + V * YV)
    count = fill(2.0 * m)
    for k in range(N):
        is_one, s, a = load(rows.inequality, k), load(x.s, k), load(x.a, k)
        product, count = product + s * a * is_one, count + is_one
        gap = (load(rows.h, k) - load(z.margin, k)) * load(rows.real, k)
        store(z.rs, k, gap + s * is_one)
        store(z.ia, k, where_greater(is_one, fill(0.5), one / a, one))
        store(z.si, k, one / s)
    return product / count, count, (both - one, fill(0.25) / weight)


@njit(inline="always")
def _factor(rows: Any, x: Any, z: Any, system: Any, inverse: Any, norm: int) -> None:
    """Factor the Newton system."""
    K, N = system.K, rows.n * rows.R
    if norm == MAX:
        weighted_gram(rows, z.theta, K)
        margins(rows, z.skew, z.b)
        for k in range(N):
            b = load(z.b, k) * inverse
            for j in range(k + 1):
                store(K, k * N + j, fma(b, load(z.b, j), load(K, k * N + j)))
    else:
        weighted_gram(rows, z.ic, K)
    add_slack(rows, K, x.s, z.ia)
    factor(system)


@njit(inline="always")
def _aim(rows: Any, x: Any, dx: Any, z: Any, mu: Any, second: bool) -> None:
    """Write the targets: mu less the products, and less those of the predictor's step."""
    for j in range(rows.p * rows.q):
        cU, cV = mu - load(x.U, j) * load(x.YU, j), mu - load(x.V, j) * load(x.YV, j)
        if second:
            cU = cU - load(dx.U, j) * load(dx.YU, j)
            cV = cV - load(dx.V, j) * load(dx.YV, j)
        store(z.cU, j, cU)
        store(z.cV, j, cV)
    slack_targets(rows, (x.s, x.a), (dx.s, dx.a), mu, second, z.cs)


@njit(inline="always")
def _direction(rows: Any, x: Any, dx: Any, z: Any, system: Any, sums: Any, norm: int) -> None:
    """Write the step that solves the linearised conditions for the targets."""
    m, N = rows.p * rows.q, rows.n * rows.R
    g, inverse = sums
    for j in range(m):
        xU = fma(load(x.YU, j), load(z.rU, j), load(z.cU, j)) * load(z.iU, j)
        xV = fma(load(x.YV, j), load(z.rV, j), load(z.cV, j)) * load(z.iV, j)
        fixed = load(z.rW, j) - xU + xV
        store(z.fixed, j, fixed)
        g_j = fma(load(z.skew, j), fixed, xU + xV)
        weighted = load(z.theta, j) * fixed
        if norm == MAX:
            g = g + g_j
        else:
            g_j = g_j + load(z.rt, j)
            store(z.g, j, g_j)
            weighted = fma(load(z.skew, j) * g_j, load(z.ic, j), weighted)
        store(z.weighted, j, weighted)
    margins(rows, z.weighted, z.f)
    for k in range(N):
        f = fma(load(z.cs, k), load(z.ia, k), load(z.rs, k) - load(z.f, k))
        if norm == MAX:
            f = f - load(z.b, k) * g * inverse
        store(z.f, k, f * load(rows.real, k))
    solve(system, z.f, dx.a)
    combine(rows, dx.a, z.M)
    t = (g + dot(z.b, dx.a, N)) * inverse if norm == MAX else fill(0.0)
    for j in range(m):
        M, skew = load(z.M, j), load(z.skew, j)
        if norm != MAX:
            t = fma(skew, M, load(z.g, j)) * load(z.ic, j)
        w = fma(load(z.theta, j), M + load(z.fixed, j), skew * t)
        U, V = t - w - load(z.rU, j), t + w - load(z.rV, j)
        store(dx.t, j, t)
        store(dx.W, j, w)
        store(dx.U, j, U)
        store(dx.V, j, V)
        store(dx.YU, j, (load(z.cU, j) - load(x.YU, j) * U) * load(z.iU, j))
        store(dx.YV, j, (load(z.cV, j) - load(x.YV, j) * V) * load(z.iV, j))
    slack_step(rows, x.s, dx.a, z.ia, z.cs, dx.s)


@njit(inline="always")
def _lengths(rows: Any, x: Any, dx: Any, z: Any, back: Any) -> Any:
    """Return the primal and dual step lengths, at most one: `back` times the way to zero."""
    primal = dual = fill(0.0)
    zero, one = fill(0.0), fill(1.0)
    for j in range(rows.p * rows.q):
        primal = most((zero - load(dx.U, j)) * load(z.iU, j), primal)
        primal = most((zero - load(dx.V, j)) * load(z.iV, j), primal)
        dual = most((zero - load(dx.YU, j)) / load(x.YU, j), dual)
        dual = most((zero - load(dx.YV, j)) / load(x.YV, j), dual)
    for k in range(rows.n * rows.R):
        primal = most((zero - load(dx.s, k)) * load(z.si, k), primal)
        toward = (zero - load(dx.a, k)) * load(z.ia, k)
        dual = most(toward * load(rows.inequality, k), dual)
    return one / most(primal / back, one), one / most(dual / back, one)


@njit(inline="always")
def _complementarity(rows: Any, x: Any, dx: Any, primal: Any, dual: Any) -> Any:
    """Return U Y_U + V Y_V + s a, summed, after a step of these lengths."""
    total = fill(0.0)
    for j in range(rows.p * rows.q):
        U, YU = fma(primal, load(dx.U, j), load(x.U, j)), fma(dual, load(dx.YU, j), load(x.YU, j))
        V, YV = fma(primal, load(dx.V, j), load(x.V, j)), fma(dual, load(dx.YV, j), load(x.YV, j))
        total = total + (U * YU + V * YV)
    return slack_products(rows, (x.s, x.a), (dx.s, dx.a), primal, dual, total)


@njit(inline="always")
def _advance(rows: Any, x: Any, dx: Any, primal: Any, dual: Any) -> None:
    for j in range(rows.p * rows.q):
        store(x.t, j, fma(primal, load(dx.t, j), load(x.t, j)))
        store(x.W, j, fma(primal, load(dx.W, j), load(x.W, j)))
        store(x.U, j, fma(primal, load(dx.U, j), load(x.U, j)))
        store(x.V, j, fma(primal, load(dx.V, j), load(x.V, j)))
        store(x.YU, j, fma(dual, load(dx.YU, j), load(x.YU, j)))
        store(x.YV, j, fma(dual, load(dx.YV, j), load(x.YV, j)))
    for k in range(rows.n * rows.R):
        store(x.s, k, fma(primal, load(dx.s, k), load(x.s, k)))
        store(x.a, k, fma(dual, load(dx.a, k), load(x.a, k)))
