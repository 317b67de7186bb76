r"""The primal-dual method of `attnsvm.svm.nuclear.interior_point`, eight instances at a time.

The same iteration in compiled code. It differs in three ways:

- S^{-1} comes from the Schur complement G = I - M^T M (q x q) of S = [[I, -M], [-M^T, I]] / 2.
- The way to the boundary of the cone is found by bisection, with a Cholesky factor as the test.
- The start needs no singular values: with any C > 0, Y = [[W C^{-1} W^T, W], [W^T, C]] >= 0, and a
  few Newton steps give a C near (W^T W)^{1/2}.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from attnsvm.jit import compiled
from attnsvm.lanes import arithmetic, cholesky, matmul
from attnsvm.lanes.arithmetic import (
    any_greater,
    at,
    fill,
    fma,
    load,
    magnitude,
    most,
    root,
    store,
    where_greater,
)
from attnsvm.lanes.cholesky import PANEL, System, decompose, factor, substitute
from attnsvm.lanes.matmul import dot, product
from attnsvm.svm import laned
from attnsvm.svm.laned import NO_BOUND, PATIENCE, Rows, combine, keep_better, least_margin, margins

STEPS = 60
BOUNDARY = 0.98
"""Share of the way to the boundary of the cone."""

RESOLVED = 0.01
"""Relative uncertainty at which the way to the boundary is known."""

BISECTIONS = 40
CENTRING = 0.1
REFINE_BELOW = 1e-6
"""Relative complementarity below which directions are refined."""

REFINEMENTS = 2
SMALLEST_STEP = 1e-8
SQUARINGS = 5
"""||M||_op <= tr((M^T M)^k)^(1/2k) with k = 2^SQUARINGS."""

ROOTS = 6
"""Newton steps for (W^T W)^{1/2}."""


class Iterate(NamedTuple):
    """Addresses of Y (P, P), s (N,), a (N,): an iterate, or a step."""

    Y: int
    s: int
    a: int


class Best(NamedTuple):
    """Addresses of W (p, q) and a (N,) of the least upper and greatest lower bound, and the gap.

    First they hold the Frobenius solution.
    """

    W: int
    a: int
    gap: int  # a single entry: upper / lower - 1


class Work(NamedTuple):
    """Addresses of the workspace; P = p + q."""

    V: int  # (P, P): S^{-1}
    X: int
    F: int
    target: int
    L: int
    M: int  # (p, q)
    dM: int
    W: int
    B: int
    G: int  # (q, q)
    G1: int
    G2: int
    T: int
    Y_rows: int  # (N, p): D Y_11
    V_rows: int
    Y_cross: int  # (N, n): D Y_12 Q^T
    V_cross: int
    right: int  # (max(p, q), n)
    Y_queries: int  # (n, n): Q Y_22 Q^T
    V_queries: int
    inverse_a: int  # (N,): 1 / a on inequalities, else zero
    complement: int
    f: int
    f0: int
    correction: int
    margin: int
    pivot: int  # (P,)
    panel: int  # (P, PANEL)

    @staticmethod
    def entries(n: int, R: int, p: int, q: int) -> tuple[int, ...]:
        """Return the number of entries of each array."""
        N, P = n * R, p + q
        squares = (P * P,) * 5 + (p * q,) * 4 + (q * q,) * 4
        products = (N * p, N * p, N * n, N * n, max(p, q) * n, n * n, n * n)
        return (*squares, *products, N, N, N, N, N, N, P, P * PANEL)


@compiled(arithmetic, matmul, cholesky, laned, nogil=True, error_model="numpy")
def solve_group(
    rows: Rows, x: Iterate, dx: Iterate, z: Work, system: System, best: Best, gap: float
) -> int:
    """Overwrite W and a of `best` by the best found; return the number of steps."""
    P, N = rows.p + rows.q, rows.n * rows.R
    zero, one = fill(0.0), fill(1.0)
    scalable = _start(rows, best, x, z)
    order = fill(float(P))
    for k in range(N):
        order = order + load(rows.inequality, k)
    kept, new = (best.W, best.a), (z.W, x.a)
    bounds, running = (fill(NO_BOUND), zero), fill(PATIENCE)
    steps = 0
    while steps < STEPS and any_greater(running, zero):
        steps += 1
        alive = where_greater(running, zero, one, zero)
        _combine(rows, x.a, z.M)
        _invert_slack(rows, z)
        _factor(rows, x, z, system)
        trace, now = _complementarity(rows, x, z)
        nu = fill(CENTRING) * now / order
        refine = where_greater(fill(REFINE_BELOW) * trace, now, alive, zero)
        _aim(rows, x, dx, z, zero, False)
        _direction(rows, x, dx, z, system, refine)
        _aim(rows, x, dx, z, nu, True)
        _direction(rows, x, dx, z, system, refine)
        primal, dual = _ratios(rows, x, dx, z)
        primal = _primal_length(rows, x, dx, z, primal * alive)
        dual = _dual_length(rows, z, dual * alive)
        _advance(rows, x, dx, primal, dual)
        found = _bracket(rows, x, z, scalable)
        bounds, running = keep_better(rows, kept, new, bounds, found, running, gap)
        running = where_greater(most(primal, dual), fill(SMALLEST_STEP), running, zero)
    store(best.gap, 0, bounds[0] / bounds[1] - one)
    return steps


@njit
def _combine(rows: Any, a: int, M: int) -> None:
    combine(rows, a, M)


@njit
def _margins(rows: Any, W: int, result: int) -> None:
    margins(rows, W, result)


@njit
def _start(rows: Any, given: Any, x: Any, z: Any) -> Any:
    """Set a strictly feasible point from the Frobenius solution: W enlarged, a reduced.

    Return one where W may be rescaled, zero where an equality has h_k != 0. The constants were
    tuned for few steps.
    """
    p, q, N = rows.p, rows.q, rows.n * rows.R
    P, zero, one, half = p + q, fill(0.0), fill(1.0), fill(0.5)
    fixed = largest = total = count = zero
    for k in range(N):
        size, is_one = magnitude(load(rows.h, k)), load(rows.inequality, k)
        fixed = most(where_greater(is_one, half, zero, size), fixed)
        largest = most(size, largest)
        total, count = total + magnitude(load(given.a, k)), count + is_one
    scalable = where_greater(fixed, zero, zero, one)
    stretch = where_greater(fixed, zero, one, fill(1.1))
    for i in range(p * q):
        store(z.W, i, load(given.W, i) * stretch)
    _square_root(z, z.W, p, q)
    trace = zero
    for i in range(q):
        trace = trace + load(z.G, i * q + i)
    lift = fill(0.1 / q) * trace
    product((z.B, q, 1), (z.W, q, 1), (z.T, q, 1), (p, q, q))
    product((x.Y, P, 1), (z.B, q, 1), (z.B, 1, q), (p, p, q))
    for i in range(p):
        store(x.Y, i * P + i, load(x.Y, i * P + i) + lift)
        for j in range(q):
            store(x.Y, i * P + p + j, load(z.W, i * q + j))
            store(x.Y, (p + j) * P + i, load(z.W, i * q + j))
    for i in range(q):
        for j in range(q):
            entry = load(z.G, i * q + j)
            store(x.Y, (p + i) * P + p + j, entry + lift if i == j else entry)
    _margins(rows, z.W, z.margin)
    floor = fill(0.1) * largest
    share = fill(0.3) * total / most(count, one)
    for k in range(N):
        is_one, a = load(rows.inequality, k), load(given.a, k)
        slack = most(load(z.margin, k) - load(rows.h, k), floor)
        store(x.s, k, where_greater(is_one, half, slack, one))
        a = where_greater(is_one, half, most(a, zero) + share, a)
        store(x.a, k, a * load(rows.real, k))
    _combine(rows, x.a, z.M)
    top = _size_bound(z, z.M, p, q)
    scale = fill(0.95) / where_greater(top, zero, top, one)
    for k in range(N):
        real = load(rows.real, k)
        store(x.a, k, where_greater(real, half, load(x.a, k) * scale, one))
    return scalable


@njit
def _square_root(z: Any, W: int, p: int, q: int) -> None:
    """Write C > 0, about (W^T W)^{1/2}, to z.G, and L^{-T} of C = L L^T to z.T."""
    product((z.G1, q, 1), (W, 1, q), (W, q, 1), (q, q, p))
    trace = fill(0.0)
    for i in range(q):
        trace = trace + load(z.G1, i * q + i)
    size = root(trace)
    for i in range(q):
        store(z.G1, i * q + i, load(z.G1, i * q + i) + fill(1e-4) * trace)
        for j in range(q):
            store(z.G, i * q + j, size if i == j else fill(0.0))
    for _ in range(ROOTS):
        _inverse_factor(z, q)
        product((z.G2, q, 1), (z.T, q, 1), (z.T, 1, q), (q, q, q))
        product((z.L, q, 1), (z.G1, q, 1), (z.G2, q, 1), (q, q, q))
        for i in range(q):
            for j in range(i + 1):
                mean = fill(0.5) * (load(z.L, i * q + j) + load(z.L, j * q + i))
                entry = fill(0.5) * (load(z.G, i * q + j) + mean)
                store(z.G, i * q + j, entry)
                store(z.G, j * q + i, entry)
    _inverse_factor(z, q)


@njit
def _size_bound(z: Any, M: int, p: int, q: int) -> Any:
    """Return an upper bound of ||M||_op, at most q^(1/64) times it."""
    product((z.G, q, 1), (M, 1, q), (M, q, 1), (q, q, p))
    bound = fill(1.0)
    for power in range(SQUARINGS + 1):
        trace = fill(0.0)
        for i in range(q):
            trace = trace + load(z.G, i * q + i)
        positive = where_greater(trace, fill(0.0), trace, fill(1.0))
        for i in range(q * q):
            store(z.G, i, load(z.G, i) / positive)
        for _ in range(power + 1):
            trace = root(trace)
        bound = bound * trace
        if power < SQUARINGS:
            product((z.G1, q, 1), (z.G, q, 1), (z.G, q, 1), (q, q, q))
            for i in range(q * q):
                store(z.G, i, load(z.G1, i))
    return bound


@njit
def _inverse_factor(z: Any, size: int) -> None:
    """Write T = L^{-T}, with zeros below its diagonal; G = L L^T, G^{-1} = T T^T."""
    L, T, pivot = z.L, z.T, z.pivot
    decompose(z.G, L, pivot, z.panel, size, 0.0)
    for j in range(size):
        for i in range(j):
            store(T, j * size + i, fill(0.0))
        store(T, j * size + j, load(pivot, j))
        for i in range(j + 1, size):
            total = dot(at(L, i * size + j), at(T, j * size + j), i - j)
            store(T, j * size + i, fill(0.0) - total * load(pivot, i))


@njit
def _invert_slack(rows: Any, z: Any) -> None:
    """Write V = S^{-1} = 2 [[I, 0], [0, 0]] + 2 [M; I] G^{-1} [M^T, I], G = I - M^T M."""
    p, q = rows.p, rows.q
    P, two = p + q, fill(2.0)
    product((z.G, q, 1), (z.M, 1, q), (z.M, q, 1), (q, q, p))
    for i in range(q):
        for j in range(q):
            store(z.G, i * q + j, fill(1.0 if i == j else 0.0) - load(z.G, i * q + j))
    _inverse_factor(z, q)
    product((z.B, q, 1), (z.M, q, 1), (z.T, q, 1), (p, q, q))
    product((z.V, P, 1), (z.B, q, 1), (z.B, 1, q), (p, p, q))
    product((at(z.V, p), P, 1), (z.B, q, 1), (z.T, 1, q), (p, q, q))
    product((at(z.V, p * P + p), P, 1), (z.T, q, 1), (z.T, 1, q), (q, q, q))
    for i in range(p):
        for j in range(p):
            entry = load(z.V, i * P + j)
            store(z.V, i * P + j, two * (entry + fill(1.0) if i == j else entry))
        for j in range(p, P):
            entry = two * load(z.V, i * P + j)
            store(z.V, i * P + j, entry)
            store(z.V, j * P + i, entry)
    for i in range(p, P):
        for j in range(p, P):
            store(z.V, i * P + j, two * load(z.V, i * P + j))


@njit
def _factor(rows: Any, x: Any, z: Any, system: Any) -> None:
    """Factor the Schur complement H + diag(s / a).

    With d_k, z_i of row k and sample i:  4 H_kl = d_k^T (Y_11 (z_i^T V_22 z_j) + V_11 (z_i^T Y_22
    z_j)) d_l + (d_k^T Y_12 z_j) (d_l^T V_12 z_i) + (d_l^T Y_12 z_i) (d_k^T V_12 z_j).
    """
    n, R, p, N = rows.n, rows.R, rows.p, rows.n * rows.R
    _congruence(rows, x.Y, z, z.Y_rows, z.Y_cross, z.Y_queries)
    _congruence(rows, z.V, z, z.V_rows, z.V_cross, z.V_queries)
    for i in range(n):
        for j in range(i + 1):
            by_V, by_Y = load(z.V_queries, i * n + j), load(z.Y_queries, i * n + j)
            first = j * R * p
            for e in range(R * p):
                weighted = load(z.Y_rows, first + e) * by_V
                store(rows.block, e, fma(load(z.V_rows, first + e), by_Y, weighted))
            block = (at(system.K, i * R * N + j * R), N, 1)
            product(block, (at(rows.D, i * R * p), p, 1), (rows.block, 1, p), (R, R, p))
            for k in range(i * R, i * R + R):
                Y_k, V_k = load(z.Y_cross, k * n + j), load(z.V_cross, k * n + j)
                for m in range(j * R, j * R + R):
                    entry = fma(Y_k, load(z.V_cross, m * n + i), load(system.K, k * N + m))
                    entry = fma(V_k, load(z.Y_cross, m * n + i), entry)
                    store(system.K, k * N + m, fill(0.25) * entry)
    for k in range(N):
        is_one = load(rows.inequality, k)
        inverse = where_greater(is_one, fill(0.5), fill(1.0) / load(x.a, k), fill(0.0))
        store(z.inverse_a, k, inverse)
        added = load(x.s, k) * inverse
        padding = fill(1.0) - load(rows.real, k)  # whose row and column of H are zero
        store(system.K, k * N + k, load(system.K, k * N + k) + added + padding)
    factor(system)


@njit
def _congruence(rows: Any, Y: int, z: Any, of_rows: int, cross: int, of_queries: int) -> None:
    """Write D Y_11 (N, p), D Y_12 Q^T (N, n) and Q Y_22 Q^T (n, n)."""
    n, p, q, N = rows.n, rows.p, rows.q, rows.n * rows.R
    P = p + q
    product((of_rows, p, 1), (rows.D, p, 1), (Y, P, 1), (N, p, p))
    product((z.right, n, 1), (at(Y, p), P, 1), (rows.Z, 1, q), (p, n, q))
    product((cross, n, 1), (rows.D, p, 1), (z.right, n, 1), (N, n, p))
    product((z.right, n, 1), (at(Y, p * P + p), P, 1), (rows.Z, 1, q), (q, n, q))
    product((of_queries, n, 1), (rows.Z, q, 1), (z.right, n, 1), (n, n, q))


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
def _aim(rows: Any, x: Any, dx: Any, z: Any, nu: Any, second: bool) -> None:
    """Write the targets nu S^{-1} and nu / a, less the second-order terms of the predictor."""
    P = rows.p + rows.q
    if second:
        _times_dual(rows, z, dx.Y)
    for i in range(P):
        for j in range(P):
            entry = nu * load(z.V, i * P + j)
            if second:
                curve = load(z.F, i * P + j) + load(z.F, j * P + i)
                entry = fma(fill(0.25), curve, entry)
            store(z.target, i * P + j, entry)
    for k in range(rows.n * rows.R):
        aim = nu
        if second:
            aim = aim - load(dx.a, k) * load(dx.s, k)
        store(z.complement, k, aim * load(z.inverse_a, k))


@njit
def _times_dual(rows: Any, z: Any, Y: int) -> None:
    """Write F = Y [[0, dM], [dM^T, 0]] S^{-1} with the dM in z."""
    p, q = rows.p, rows.q
    P = p + q
    product((z.X, P, 1), (at(Y, p), P, 1), (z.dM, 1, q), (P, p, q))
    product((at(z.X, p), P, 1), (Y, P, 1), (z.dM, q, 1), (P, q, p))
    product((z.F, P, 1), (z.X, P, 1), (z.V, P, 1), (P, P, P))


@njit
def _direction(rows: Any, x: Any, dx: Any, z: Any, system: Any, refine: Any) -> None:
    """Write the step to the targets; refined, where `refine` is one, by the KKT residual."""
    p, q, N, half = rows.p, rows.q, rows.n * rows.R, fill(0.5)
    P = p + q
    for i in range(p):
        for j in range(q):
            store(z.W, i * q + j, load(z.target, i * P + p + j))
    _margins(rows, z.W, z.f)
    for k in range(N):
        f = load(rows.h, k) - load(z.f, k) + load(z.complement, k)
        store(z.f0, k, f * load(rows.real, k))
    _solve(system, z.f0, dx.a)
    _combine(rows, dx.a, z.dM)
    _times_dual(rows, z, x.Y)
    if any_greater(refine, half):
        for _ in range(REFINEMENTS):
            for i in range(p):
                for j in range(q):
                    twice = load(z.F, i * P + p + j) + load(z.F, (p + j) * P + i)
                    store(z.W, i * q + j, fill(0.25) * twice)
            _margins(rows, z.W, z.f)
            for k in range(N):
                diagonal = load(x.s, k) * load(z.inverse_a, k)
                left = fma(diagonal, load(dx.a, k), load(z.f, k))
                asked = load(rows.real, k) * refine
                store(z.f, k, where_greater(asked, half, load(z.f0, k) - left, fill(0.0)))
            _solve(system, z.f, z.correction)
            for k in range(N):
                store(dx.a, k, load(dx.a, k) + load(z.correction, k))
            _combine(rows, dx.a, z.dM)
            _times_dual(rows, z, x.Y)
    for i in range(P):
        for j in range(P):
            change = fill(0.25) * (load(z.F, i * P + j) + load(z.F, j * P + i))
            store(dx.Y, i * P + j, load(z.target, i * P + j) - load(x.Y, i * P + j) + change)
    for k in range(N):
        s = load(x.s, k)
        ds = load(z.complement, k) - s - s * load(z.inverse_a, k) * load(dx.a, k)
        store(dx.s, k, ds * load(rows.inequality, k))


@njit
def _solve(system: Any, f: int, x: int) -> None:
    """Write H^{-1} f without refinement."""
    for k in range(system.N):
        store(x, k, load(f, k) * load(system.scale, k))
    substitute(system, x)
    for k in range(system.N):
        store(x, k, load(x, k) * load(system.scale, k))


@njit
def _ratios(rows: Any, x: Any, dx: Any, z: Any) -> Any:
    """Return the lengths, at most 1 / BOUNDARY, to which s and a stay non-negative."""
    primal = dual = fill(BOUNDARY)
    for k in range(rows.n * rows.R):
        is_one, zero = load(rows.inequality, k), fill(0.0)
        primal = most((zero - load(dx.s, k)) / load(x.s, k) * is_one, primal)
        dual = most((zero - load(dx.a, k)) * load(z.inverse_a, k), dual)
    return fill(1.0) / primal, fill(1.0) / dual


@njit
def _primal_length(rows: Any, x: Any, dx: Any, z: Any, longest: Any) -> Any:
    """Return BOUNDARY times a length, at most `longest`, to which Y stays positive definite."""
    P, low, high, t = rows.p + rows.q, fill(0.0), longest, longest
    for _ in range(BISECTIONS):
        for i in range(P):
            for j in range(i + 1):
                store(z.X, i * P + j, fma(t, load(dx.Y, i * P + j), load(x.Y, i * P + j)))
        inside = decompose(z.X, z.L, z.pivot, z.panel, P, 0.0)
        low, high, t = _bisected(low, high, t, inside)
        if not any_greater(high - low, fill(RESOLVED) * high):
            break
    return fill(BOUNDARY) * low


@njit
def _bisected(low: Any, high: Any, t: Any, inside: Any) -> Any:
    """Return the bracket of the length after the test of t, and the next length to test.

    `inside` is the last pivot of a Cholesky factor: NaN or infinite outside of the cone.
    """
    limit, open_at = fill(NO_BOUND), fill(RESOLVED) * high
    new_low, new_high = where_greater(limit, inside, t, low), where_greater(limit, inside, high, t)
    width = high - low
    low, high = (
        where_greater(width, open_at, new_low, low),
        where_greater(width, open_at, new_high, high),
    )
    return low, high, fill(0.5) * (low + high)


@njit
def _dual_length(rows: Any, z: Any, longest: Any) -> Any:
    """Return BOUNDARY times a length to which I - M^T M, hence S, stays positive definite."""
    p, q, low, high, t = rows.p, rows.q, fill(0.0), longest, longest
    product((z.G1, q, 1), (z.M, 1, q), (z.dM, q, 1), (q, q, p))
    product((z.G2, q, 1), (z.dM, 1, q), (z.dM, q, 1), (q, q, p))
    for _ in range(BISECTIONS):
        for i in range(q):
            for j in range(i + 1):
                linear = load(z.G1, i * q + j) + load(z.G1, j * q + i)
                less = t * fma(t, load(z.G2, i * q + j), linear)
                store(z.X, i * q + j, load(z.G, i * q + j) - less)
        inside = decompose(z.X, z.L, z.pivot, z.panel, q, 0.0)
        low, high, t = _bisected(low, high, t, inside)
        if not any_greater(high - low, fill(RESOLVED) * high):
            break
    return fill(BOUNDARY) * low


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
    _margins(rows, z.W, z.margin)
    mu = least_margin(rows, z.margin)
    mu = where_greater(mu, fill(0.5 * NO_BOUND), one, mu)
    mu = where_greater(scalable, zero, mu, one)
    upper = where_greater(mu, zero, fill(0.5) * trace / mu, fill(NO_BOUND))
    return upper, dot(rows.h, x.a, rows.n * rows.R)
