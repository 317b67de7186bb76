r"""The iteration of `attnsvm.svm.nuclear.interior_point` for eight instances at a time.

It differs in three ways: S^{-1} comes from the q x q matrix G = I - M^T M, the Schur complement of
S = [[I, -M], [-M^T, I]] / 2; the way to the boundary of the cone is found by bisection; and the
start needs no singular values.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, cholesky, definite, matmul
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
from attnsvm.linalg.simd.cholesky import System
from attnsvm.linalg.simd.matmul import dot
from attnsvm.svm import laned
from attnsvm.svm.laned import NO_BOUND, PATIENCE, Rows, keep_better, least_margin
from attnsvm.svm.nuclear.compiled import arrays, direction, length, start
from attnsvm.svm.nuclear.compiled.arrays import Best, Iterate, Work, dual_matrix, margins_of
from attnsvm.svm.nuclear.compiled.direction import aim, factor_schur, find_direction, invert_slack
from attnsvm.svm.nuclear.compiled.length import dual_length, primal_length, ratios
from attnsvm.svm.nuclear.compiled.start import set_start

STEPS = 60
CENTRING = 0.1
REFINE_BELOW = 1e-6
"""Relative complementarity below which directions are refined."""

SMALLEST_STEP = 1e-8
INCLUDED = (arithmetic, matmul, cholesky, definite, laned, arrays, start, direction, length)


@compiled(*INCLUDED, nogil=True, error_model="numpy")
def solve_group(
    rows: Rows, x: Iterate, dx: Iterate, z: Work, system: System, best: Best, gap: float
) -> int:
    """Overwrite W and a of `best` by the best found; return the number of steps."""
    P, N = rows.p + rows.q, rows.n * rows.R
    zero, one = fill(0.0), fill(1.0)
    scalable = set_start(rows, best, x, z)
    order = fill(float(P))
    for k in range(N):
        order = order + load(rows.inequality, k)
    kept, new = (best.W, best.a), (z.W, x.a)
    bounds, running = (fill(NO_BOUND), zero), fill(PATIENCE)
    steps = 0
    while steps < STEPS and any_greater(running, zero):
        steps += 1
        alive = where_greater(running, zero, one, zero)
        dual_matrix(rows, x.a, z.M)
        invert_slack(rows, z)
        factor_schur(rows, x, z, system)
        trace, now = _complementarity(rows, x, z)
        nu = fill(CENTRING) * now / order
        refine = where_greater(fill(REFINE_BELOW) * trace, now, alive, zero)
        aim(rows, x, dx, z, zero, False)
        find_direction(rows, x, dx, z, system, refine)
        aim(rows, x, dx, z, nu, True)
        find_direction(rows, x, dx, z, system, refine)
        primal, dual = ratios(rows, x, dx, z)
        primal = primal_length(rows, x, dx, z, primal * alive)
        dual = dual_length(rows, z, dual * alive)
        _advance(rows, x, dx, primal, dual)
        found = _bracket(rows, x, z, scalable)
        bounds, running = keep_better(rows, kept, new, bounds, found, running, gap)
        running = where_greater(most(primal, dual), fill(SMALLEST_STEP), running, zero)
    store(best.gap, 0, bounds[0] / bounds[1] - one)
    return steps


@njit
def _complementarity(rows: Any, x: Any, z: Any) -> Any:
    """Return tr Y, and <Y, S> + a^T s."""
    p, q = rows.p, rows.q
    P, trace, inner, products = p + q, fill(0.0), fill(0.0), fill(0.0)
    for i in range(P):
        trace = trace + load(x.Y, i * P + i)
    for i in range(p):
        inner = inner + dot(at(x.Y, i * P + p), at(z.M, i * q), q)
    for k in range(rows.n * rows.R):
        products = fma(load(x.a, k) * load(rows.inequality, k), load(x.s, k), products)
    return trace, fill(0.5) * trace - inner + products


@njit
def _advance(rows: Any, x: Any, dx: Any, primal: Any, dual: Any) -> None:
    P = rows.p + rows.q
    for i in range(P * P):
        store(x.Y, i, fma(primal, load(dx.Y, i), load(x.Y, i)))
    for k in range(rows.n * rows.R):
        store(x.s, k, fma(primal, load(dx.s, k), load(x.s, k)))
        store(x.a, k, fma(dual, load(dx.a, k), load(x.a, k)))


@njit
def _bracket(rows: Any, x: Any, z: Any, scalable: Any) -> Any:
    """Return the bounds that the iterate proves, tr(Y) / 2 / mu and h^T a; leave W in z."""
    p, q, zero, one = rows.p, rows.q, fill(0.0), fill(1.0)
    P, trace = p + q, fill(0.0)
    for i in range(p):
        for j in range(q):
            store(z.W, i * q + j, load(x.Y, i * P + p + j))
    for i in range(P):
        trace = trace + load(x.Y, i * P + i)
    margins_of(rows, z.W, z.margin)
    mu = least_margin(rows, z.margin)
    mu = where_greater(mu, fill(0.5 * NO_BOUND), one, mu)
    mu = where_greater(scalable, zero, mu, one)
    upper = where_greater(mu, zero, fill(0.5) * trace / mu, fill(NO_BOUND))
    return upper, dot(rows.h, x.a, rows.n * rows.R)
