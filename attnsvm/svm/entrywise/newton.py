r"""The l_p norm, 1 < p < inf, by Mehrotra's predictor-corrector method, eight instances at a time.

    min sum_ij |w_ij|^p / p  s.t.  A W - s = h,  s >= 0;      psi(W) = M(a),  a s = mu

with psi(w) = sign(w) |w|^{p-1} entry by entry and (A W)_k = d_k^T W z_k. For p < 2, psi is not
smooth at 0 but its inverse is: there W = psi^{-1}(M(a)) throughout. For p > 2, W is a variable, and
psi is linearised. Both give the Newton system

    (A diag(theta) A^T + diag(s / a)) da = f,    theta = (q - 1) |m|^{q-2}  or  |w|^{2-p} / (p - 1).

In the latter |w| counts as psi^{-1}(|m|) where it is less. These agree at the optimum; before it an
entry that is nearly zero, and is not to stay so, would be sent far beyond its place.

The norm and its p-th power have the same minimisers.
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
    power,
    store,
    where_greater,
)
from attnsvm.linalg.simd.cholesky import System, factor, solve
from attnsvm.linalg.simd.matmul import dot
from attnsvm.svm import laned, powers
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
from attnsvm.svm.powers import BACK, STEPS, power_norm, residuals, start_slacks, step_length

SMALL = 1e-7
"""Relative to the largest |w|: less counts as this in theta, which would be infinite at 0."""


class Work(NamedTuple):
    """Addresses of (d, d): W, its step, M, theta, the residual of psi(W) = M; (N,): the others."""

    W: int
    dW: int
    M: int
    theta: int
    rest: int
    weighted: int
    s: int
    a: int
    ds: int
    da: int
    rs: int
    cs: int
    ia: int
    si: int
    f: int
    margin: int


MATRICES = 6
"""The first fields of `Work` are (d, d), the others (N,)."""


@compiled(arithmetic, matmul, cholesky, laned, powers, nogil=True, error_model="numpy")
def solve_group(
    rows: Rows, z: Work, system: System, best_W: int, best_a: int, p: float, gap: float
) -> None:
    """Overwrite W and a, the Frobenius solution, by the best found."""
    m, N = rows.p * rows.q, rows.n * rows.R
    margins(rows, best_W, z.margin)
    combine(rows, best_a, z.M)
    bounds, running = _bracket(rows, best_W, best_a, z, p), fill(PATIENCE)
    _start(rows, best_W, best_a, z, p)
    pair, step = (z.s, z.a), (z.ds, z.da)
    for _ in range(STEPS):
        combine(rows, z.a, z.M)
        _linearise(rows, z, p)
        found = _bracket(rows, z.W, z.a, z, p)
        kept, new = (best_W, best_a), (z.W, z.a)
        bounds, running = keep_better(rows, kept, new, bounds, found, running, gap)
        if not any_greater(running, fill(0.0)):
            break
        mu, count = residuals(rows, z)
        weighted_gram(rows, z.theta, system.K)
        add_slack(rows, system.K, z.s, z.ia)
        factor(system)
        slack_targets(rows, pair, step, fill(0.0), False, z.cs)
        _direction(rows, z, system)
        length = step_length(rows, z, fill(1.0))
        after = slack_products(rows, pair, step, length, length, fill(0.0))
        ratio = after / count / mu
        slack_targets(rows, pair, step, mu * ratio * ratio * ratio, True, z.cs)
        _direction(rows, z, system)
        length = step_length(rows, z, fill(BACK))
        for j in range(m):
            store(z.W, j, fma(length, load(z.dW, j), load(z.W, j)))
        for k in range(N):
            store(z.s, k, fma(length, load(z.ds, k), load(z.s, k)))
            store(z.a, k, fma(length, load(z.da, k), load(z.a, k)))


@njit(inline="always")
def _signed_power(x: Any, exponent: float) -> Any:
    """Return sign(x) |x|^exponent."""
    y = power(magnitude(x), fill(exponent))
    return where_greater(x, fill(0.0), y, fill(0.0) - y)


@njit(inline="always")
def _bracket(rows: Any, W: int, a: int, z: Any, p: float) -> Any:
    """Return norm(W) / min margin and h^T a / dual_norm(M(a)), from the margins and M in z."""
    m, zero = rows.p * rows.q, fill(0.0)
    ratio = least_margin(rows, z.margin)
    ratio = where_greater(ratio, fill(0.5 * NO_BOUND), fill(1.0), ratio)
    size, dual = power_norm(W, m, p), power_norm(z.M, m, p / (p - 1))
    value = dot(rows.h, a, rows.n * rows.R)
    upper = where_greater(ratio, zero, size / ratio, fill(NO_BOUND))
    return upper, where_greater(dual, zero, value / dual, zero)


@njit(inline="always")
def _start(rows: Any, W: int, a: int, z: Any, p: float) -> None:
    """Set a strictly positive point near the Frobenius solution; z has its margins."""
    m, N = rows.p * rows.q, rows.n * rows.R
    start_slacks(rows, W, a, z)
    combine(rows, z.a, z.M)
    q = p / (p - 1)
    value, total = dot(rows.h, z.a, N), fill(0.0)
    for j in range(m):
        total = total + power(magnitude(load(z.M, j)), fill(q))
    scale = power(value / total, fill(1 / (q - 1)))  # maximises h^T a - sum |M(a)|^q / q
    for k in range(N):
        store(z.a, k, load(z.a, k) * scale)


@njit(inline="always")
def _linearise(rows: Any, z: Any, p: float) -> None:
    """Write W (p < 2), theta, the residual of psi(W) = M, and the margins."""
    m, zero, q = rows.p * rows.q, fill(0.0), p / (p - 1)
    largest = zero
    for j in range(m):
        largest = most(magnitude(load(z.W, j)), largest)
    floor = power(fill(SMALL) * largest, fill(p - 1))
    for j in range(m):
        if p < 2:
            M = load(z.M, j)
            size = power(magnitude(M), fill(q - 2))
            store(z.W, j, M * size)
            store(z.theta, j, fill(q - 1) * size)
            store(z.rest, j, zero)
        else:
            w = load(z.W, j)
            size = power(magnitude(w), fill(p - 2))
            away = most(most(magnitude(w) * size, magnitude(load(z.M, j))), floor)
            smooth = power(away, fill((p - 2) / (p - 1)))
            store(z.theta, j, fill(1.0 / (p - 1)) / smooth)
            store(z.rest, j, load(z.M, j) - w * size)
    margins(rows, z.W, z.margin)


@njit(inline="always")
def _direction(rows: Any, z: Any, system: Any) -> None:
    """Write the step that solves the linearised conditions for the targets."""
    m, N = rows.p * rows.q, rows.n * rows.R
    for j in range(m):
        store(z.weighted, j, load(z.theta, j) * load(z.rest, j))
    margins(rows, z.weighted, z.f)
    for k in range(N):
        f = fma(load(z.cs, k), load(z.ia, k), load(z.rs, k) - load(z.f, k))
        store(z.f, k, f * load(rows.real, k))
    solve(system, z.f, z.da)
    combine(rows, z.da, z.weighted)
    for j in range(m):
        store(z.dW, j, load(z.theta, j) * (load(z.weighted, j) + load(z.rest, j)))
    slack_step(rows, z.s, z.da, z.ia, z.cs, z.ds)
