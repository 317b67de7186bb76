r"""The Schatten p norm, 1 < p < inf, by Mehrotra's predictor-corrector method, eight at a time.

    min sum_i sigma_i(W)^p / p  s.t.  A W - s = h,  s >= 0;      Psi(W) = M(a),  a s = mu

with (A W)_k = d_k^T W z_k and Psi(U diag(w) V^T) = U diag(w^{p-1}) V^T. As for the l_p norm
(`attnsvm.svm.entrywise.newton`), W = Psi^{-1}(M(a)) throughout for p < 2, and for p > 2 W is a
variable and Psi is linearised. For F(U diag(x) V^T) = U diag(f(x)) V^T the derivative is plain in
the bases U, V: it multiplies the parts (X_ij +- X_ji) / 2 by (f_i -+ f_j) / (x_i -+ x_j), and the
X_ij outside of the square by f_i / x_i (F. Andersson, M. Carlsson and K. Perfekt, Proc. AMS 144,
2016).
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, cholesky, matmul, svd
from attnsvm.linalg.simd.arithmetic import (
    any_greater,
    fill,
    fma,
    load,
    most,
    power,
    store,
    where_greater,
)
from attnsvm.linalg.simd.cholesky import System, factor, solve
from attnsvm.linalg.simd.matmul import dot, product
from attnsvm.linalg.simd.svd import decompose_fully
from attnsvm.svm import laned, powers
from attnsvm.svm.laned import (
    NO_BOUND,
    PATIENCE,
    Rows,
    add_slack,
    keep_better,
    least_margin,
    slack_products,
    slack_step,
    slack_targets,
)
from attnsvm.svm.nuclear.compiled import arrays
from attnsvm.svm.nuclear.compiled.arrays import dual_matrix, margins_of
from attnsvm.svm.powers import BACK, STEPS, power_norm, residuals, start_slacks, step_length
from attnsvm.svm.schatten import turned
from attnsvm.svm.schatten.turned import Weights, pair_gram, turn, weigh

SMALL = 1e-7
"""Relative to the largest: smaller singular values count as this in the derivative."""

CLOSE = 1e-6
"""Relative distance of singular values that count as equal in the derivative."""

INCLUDED = (arithmetic, matmul, cholesky, svd, laned, arrays, powers, turned)


class Work(NamedTuple):
    """Addresses of the workspace, r = min(p, q)."""

    W: int  # (p, q)
    dW: int
    M: int
    rest: int  # M - Psi(W), turned
    X: int
    A: int
    U: int  # (p, p), its columns one after the other
    V: int  # (q, q)
    sigma: int  # (r,)
    of_M: int
    power: int
    reflected: int
    flips: int
    s: int  # (N,)
    a: int
    ds: int
    da: int
    rs: int
    cs: int
    ia: int
    si: int
    f: int
    margin: int

    @staticmethod
    def entries(N: int, p: int, q: int) -> tuple[int, ...]:
        """Return the number of entries of each array."""
        return *(p * q,) * 6, p * p, q * q, *(min(p, q),) * 5, *(N,) * 10


@compiled(*INCLUDED, nogil=True, error_model="numpy")
def solve_group(
    rows: Rows,
    turned: Rows,
    z: Work,
    weights: Weights,
    system: System,
    start: tuple[int, int],
    p: float,
    gap: float,
) -> None:
    """Overwrite W and a of `start`, the Frobenius solution, by the best found."""
    N = rows.n * rows.R
    margins_of(rows, start[0], z.margin)
    _start(rows, start, z, p)
    bounds, running = (fill(NO_BOUND), fill(0.0)), fill(PATIENCE)
    pair, step = (z.s, z.a), (z.ds, z.da)
    for _ in range(STEPS):
        _linearise(rows, turned, z, weights, p)
        found = _bracket(rows, z, p)
        bounds, running = keep_better(rows, start, (z.W, z.a), bounds, found, running, gap)
        if not any_greater(running, fill(0.0)):
            break
        mu, count = residuals(rows, z)
        pair_gram(turned, weights, system.K)
        add_slack(rows, system.K, z.s, z.ia)
        factor(system)
        slack_targets(rows, pair, step, fill(0.0), False, z.cs)
        _direction(rows, turned, z, weights, system)
        length = step_length(rows, z, fill(1.0))
        after = slack_products(rows, pair, step, length, length, fill(0.0))
        ratio = after / count / mu
        slack_targets(rows, pair, step, mu * ratio * ratio * ratio, True, z.cs)
        _direction(rows, turned, z, weights, system)
        length = step_length(rows, z, fill(BACK))
        if p > 2:
            _advance(rows, z, length)
        for k in range(N):
            store(z.s, k, fma(length, load(z.ds, k), load(z.s, k)))
            store(z.a, k, fma(length, load(z.da, k), load(z.a, k)))


@njit
def _decompose(A: int, sigma: int, z: Any, p: int, q: int) -> None:
    decompose_fully(A, z.U, z.V, sigma, (z.A, z.reflected, z.flips), p, q)


@njit
def _start(rows: Any, start: Any, z: Any, p: float) -> None:
    """Set a strictly positive point near the Frobenius solution; z has its margins."""
    N, q = rows.n * rows.R, p / (p - 1)
    start_slacks(rows, start[0], start[1], z)
    dual_matrix(rows, z.a, z.M)
    _decompose(z.M, z.of_M, z, rows.p, rows.q)
    value, total = dot(rows.h, z.a, N), fill(0.0)
    for j in range(min(rows.p, rows.q)):
        total = total + power(load(z.of_M, j), fill(q))
    scale = power(value / total, fill(1 / (q - 1)))  # maximises h^T a - sum sigma(M(a))^q / q
    for k in range(N):
        store(z.a, k, load(z.a, k) * scale)


@njit
def _linearise(rows: Any, turned: Any, z: Any, weights: Any, p: float) -> None:
    """Write M, W (p < 2), bases, turned rows, weights, the residual of Psi(W) = M, and margins."""
    rank, columns = rows.p, rows.q
    r, zero = min(rank, columns), fill(0.0)
    dual_matrix(rows, z.a, z.M)
    _decompose(z.M, z.of_M, z, rank, columns)
    exponent = 1 / (p - 1)
    if p > 2:
        exponent = p - 1
        _decompose(z.W, z.sigma, z, rank, columns)
    else:
        for j in range(r):
            store(z.sigma, j, load(z.of_M, j))
    for j in range(r):
        store(z.power, j, power(load(z.sigma, j), fill(exponent)))
    turn(rows, turned, (z.U, 1, rank), (z.V, 1, columns))
    _derivative(z, weights, rank, columns, exponent, p > 2)
    for i in range(rank):
        for j in range(columns):
            store(z.X, i * columns + j, load(z.power, i) if i == j else zero)
    if p > 2:
        product((z.A, columns, 1), (z.M, columns, 1), (z.V, 1, columns), (rank, columns, columns))
        product((z.rest, columns, 1), (z.U, rank, 1), (z.A, columns, 1), (rank, columns, rank))
        for i in range(rank * columns):
            store(z.rest, i, load(z.rest, i) - load(z.X, i))
    else:
        _turn_back(z, z.X, z.W, rank, columns)
        for i in range(rank * columns):
            store(z.rest, i, zero)
    margins_of(rows, z.W, z.margin)


@njit
def _derivative(z: Any, weights: Any, p: int, q: int, exponent: float, inverse: bool) -> None:
    """Write the weights of the derivative of the power, or of its inverse map."""
    r, one, half = min(p, q), fill(1.0), fill(0.5)
    floor = fill(SMALL) * load(z.sigma, 0)
    least = power(floor, fill(exponent))
    for i in range(p):
        for j in range(q):
            first = i if i < r else j
            x, f = most(load(z.sigma, first), floor), most(load(z.power, first), least)
            plus = f / x
            theta = one / plus if inverse else plus
            if i < r and j < r:
                y, g = most(load(z.sigma, j), floor), most(load(z.power, j), least)
                plus = (f + g) / (x + y)
                difference = most(x - y, y - x)
                slope = (f - g) / (x - y)
                slope = where_greater(difference, fill(CLOSE) * x, slope, fill(exponent) * plus)
                if inverse:
                    plus, slope = one / plus, one / slope
                theta = half * (slope + plus)
                store(weights.beta, i * r + j, half * (slope - plus))
            store(weights.theta, i * q + j, theta)


@njit
def _turn_back(z: Any, X: int, result: int, p: int, q: int) -> None:
    """Write U X V^T, (p, q)."""
    product((z.A, q, 1), (X, q, 1), (z.V, q, 1), (p, q, q))
    product((result, q, 1), (z.U, 1, p), (z.A, q, 1), (p, q, p))


@njit
def _bracket(rows: Any, z: Any, p: float) -> Any:
    """Return norm(W) / min margin and h^T a / dual_norm(M(a)), from margins and singular values."""
    r, zero = min(rows.p, rows.q), fill(0.0)
    ratio = least_margin(rows, z.margin)
    ratio = where_greater(ratio, fill(0.5 * NO_BOUND), fill(1.0), ratio)
    size = power_norm(z.sigma if p > 2 else z.power, r, p)
    dual = power_norm(z.of_M, r, p / (p - 1))
    value = dot(rows.h, z.a, rows.n * rows.R)
    upper = where_greater(ratio, zero, size / ratio, fill(NO_BOUND))
    return upper, where_greater(dual, zero, value / dual, zero)


@njit
def _direction(rows: Any, turned: Any, z: Any, weights: Any, system: Any) -> None:
    """Write the step that solves the linearised conditions for the targets; dW is turned."""
    p, q, N = rows.p, rows.q, rows.n * rows.R
    weigh(weights, z.rest, z.X, p, q)
    margins_of(turned, z.X, z.f)
    for k in range(N):
        f = fma(load(z.cs, k), load(z.ia, k), load(z.rs, k) - load(z.f, k))
        store(z.f, k, f * load(rows.real, k))
    solve(system, z.f, z.da)
    dual_matrix(turned, z.da, z.X)
    for i in range(p * q):
        store(z.X, i, load(z.X, i) + load(z.rest, i))
    weigh(weights, z.X, z.dW, p, q)
    slack_step(rows, z.s, z.da, z.ia, z.cs, z.ds)


@njit
def _advance(rows: Any, z: Any, length: Any) -> None:
    """Move W by `length` times the turned dW."""
    p, q = rows.p, rows.q
    _turn_back(z, z.dW, z.X, p, q)
    for i in range(p * q):
        store(z.W, i, fma(length, load(z.X, i), load(z.W, i)))
