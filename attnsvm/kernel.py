"""The fused training loop: eight instances in the lanes of each value, compiled by numba.

The attention of sample i sees W only through U_i = W z_i. A step changes W by sum_i P_i z_i^T, P_i
the token-space gradient, hence U by sum_j (z_i^T z_j) P_j: the loop needs the Gram matrix of the
queries and never W itself. It keeps V with W = a W0 + sum_i V_i z_i^T, from which W follows.

What the loop reads and writes is given by addresses: counted references to arrays would cost more
than a small step. All is flat, entry by entry of eight lanes, block after block: X (n, T, r),
F (n, T, k), gram (n, n), bias (n, T), Y (n,), U, U0, V, P (n, r), K (r, m), B, B0, VQ, A (n, m).
"""

from __future__ import annotations

from hashlib import sha256
from inspect import getsource
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from attnsvm import product, simd
from attnsvm.config import MACHINE_EPS
from attnsvm.loss import LARGE_MARGIN
from attnsvm.product import dot, multiply
from attnsvm.simd import at, exp, fill, fma, load, root, store, where_equal, where_greater

LOGISTIC, EXPONENTIAL = 0, 1
"""Codes of the losses; any other number is the linear loss."""

TINY = 1e-300
FAST = {"nogil": True, "error_model": "numpy"}


def compiled(function: Any) -> Any:
    """Return the function compiled at its first call, and kept on disk where numba may write.

    Numba notices a change of this file alone, but files its code by name: the digest of all else
    that is compiled in is part of the name.
    """
    try:
        function.__qualname__ = f"{function.__name__}_{_digest()}"
        return njit(cache=True, **FAST)(function)
    except (RuntimeError, OSError):  # there is no folder to write to, or no source
        return njit(**FAST)(function)


def _digest() -> str:
    """Return a digest of the code and the constants of other files in compiled functions."""
    parts = (getsource(simd), getsource(product), LARGE_MARGIN, MACHINE_EPS)
    return sha256(repr(parts).encode()).hexdigest()[:16]


class Sizes(NamedTuple):
    """Samples, tokens of each, their dimension, features of each, columns of K and Q (0: W)."""

    n: int
    T: int
    r: int
    k: int
    m: int


class Rule(NamedTuple):
    """The update: code of the loss, log of twice the ridge, normalised or not, exact or not."""

    loss: int
    log_ridge: float
    normalized: bool
    exact: bool


class Data(NamedTuple):
    """Addresses of what the loop reads: tokens, features and their kinds, the rest of a sample.

    `kinds` is the same for all blocks: alpha, beta, rho of each feature.
    """

    X: int
    F: int
    kinds: int
    gram: int
    bias: int
    Y: int


class Space(NamedTuple):
    """Addresses of what a thread writes for itself; A, H, G are those of the factors alone.

    E, q and the logits (n, T), C (T,), top, place, value (n,), w (n, k), P, step (n, r), A and
    H (n, m), G (r, m).
    """

    E: int
    C: int
    top: int
    place: int
    value: int
    w: int
    P: int
    step: int
    A: int
    H: int
    G: int


def space_entries(sizes: Sizes) -> Space:
    """Return the number of entries of each part of the space."""
    n, T, r, k, m = sizes
    return Space(n * T, T, n, n, n, n * k, n * r, n * r, n * m, n * m, r * m)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _of_block(data: Data, sizes: Sizes, b: int) -> Data:
    """Return the addresses of block b."""
    n, T, r, k, _ = sizes
    return Data(
        at(data.X, b * n * T * r),
        at(data.F, b * n * T * k),
        data.kinds,
        at(data.gram, b * n * n),
        at(data.bias, b * n * T),
        at(data.Y, b * n),
    )


@njit(inline="always")  # type: ignore[untyped-decorator]
def _slope(u: Any, least: Any, loss: Any) -> Any:
    """Return l'(u) e^least; the linear loss's own is -1 and has no such factor."""
    if loss == LOGISTIC:
        return fill(-1.0) / (exp(fill(0.0) - least) + exp(u - least))
    if loss == EXPONENTIAL:
        return fill(-1.0) * exp(least - u)
    return fill(-1.0)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _attend(data: Data, space: Space, U: int, sizes: Sizes) -> Any:
    """Write logits and each row's maximum and its first place; return the shift.

    The shift is the largest difference of a second to a largest logit of a row, 0 without any.
    """
    n, T, r, _, _ = sizes
    shift = fill(-np.inf)
    for i in range(n):
        row, bias = at(space.E, i * T), at(data.bias, i * T)
        multiply((row, 1, 0), (at(data.X, i * T * r), r, 1), (at(U, i * r), 1, 0), (T, 1, r))
        top, second, place = fill(-np.inf), fill(-np.inf), fill(0.0)
        for t in range(T):
            logit = load(row, t) + load(bias, t)
            store(row, t, logit)
            second = where_greater(logit, top, top, where_greater(logit, second, logit, second))
            place = where_greater(logit, top, fill(float(t)), place)
            top = where_greater(logit, top, logit, top)
        store(space.top, i, top)
        store(space.place, i, place)
        gap = second - top
        shift = where_greater(gap, shift, gap, shift)
    return where_greater(shift, fill(-1e300), shift, fill(0.0))


@compiled
def _pull(data: Data, space: Space, U: int, sizes: Sizes, rule: Rule) -> Any:
    """Write P_i exp(-scale), return the scale: of the attention, and of large margins' slopes.

    Exact: the largest softmax of a row is 1 minus the others', its gradient minus the sum of
    theirs. Not exact, as published: no row has such a place, and the shift is zero.

    A sample's exponentials wait for its logits, its slope for them, and so on; each such stage is
    a loop over the samples, so that the processor always has several of them at hand.
    """
    n, T, r, k, _ = sizes
    zero, one, apart = fill(0.0), fill(1.0), fill(1.0)
    shift = _attend(data, space, U, sizes)
    if not rule.exact:
        shift, apart = zero, zero
        for i in range(n):
            store(space.place, i, fill(-1.0))
    big, least = exp(shift), fill(np.inf)
    for i in range(n):
        E, top, place = at(space.E, i * T), load(space.top, i) + shift, load(space.place, i)
        for t in range(T):
            e = exp(load(E, t) - top)
            store(E, t, where_equal(place, fill(float(t)), zero, e))
    for i in range(n):
        E, F, w = at(space.E, i * T), at(data.F, i * T * k), at(space.w, i * k)
        place, total, value = load(space.place, i), zero, zero
        for t in range(T):
            total = total + load(E, t)
        inverse = one / fma(big, total, apart)
        for j in range(k):
            p = zero
            for t in range(T):
                s = where_equal(place, fill(float(t)), one, big * load(E, t))
                p = fma(s, load(F, t * k + j), p)
            p = p * inverse
            alpha, beta = load(data.kinds, j), load(data.kinds, k + j)
            kink = where_greater(p, zero, load(data.kinds, 2 * k + j), zero)
            value = value + p * (alpha + fill(0.5) * beta * p + kink)
            store(w, j, alpha + beta * p + kink)
        margin = load(data.Y, i) * value
        least = where_greater(least, margin, margin, least)
        store(space.top, i, inverse)
        store(space.value, i, margin)
    least = where_greater(least, fill(LARGE_MARGIN), least, zero)
    if rule.loss not in (LOGISTIC, EXPONENTIAL) or not rule.exact:
        least = zero
    for i in range(n):
        slope = _slope(load(space.value, i), least, rule.loss)
        store(space.value, i, slope * load(data.Y, i) * fill(1.0 / n))
    for i in range(n):
        E, F, w = at(space.E, i * T), at(data.F, i * T * k), at(space.w, i * k)
        place, inverse, slope = load(space.place, i), load(space.top, i), load(space.value, i)
        c_top, mean, rest = zero, zero, zero
        for t in range(T):
            c = zero
            for j in range(k):
                c = fma(load(w, j), load(F, t * k + j), c)
            c = c * slope
            store(space.C, t, c)
            c_top = where_equal(place, fill(float(t)), c, c_top)
        for t in range(T):
            mean = fma(load(E, t), load(space.C, t) - c_top, mean)
        mean = mean * big * inverse
        for t in range(T):
            q = load(E, t) * inverse * (load(space.C, t) - c_top - mean)
            store(E, t, q)
            rest = rest - q
        for t in range(T):
            store(E, t, where_equal(place, fill(float(t)), rest, load(E, t)))
        X, P = at(data.X, i * T * r), at(space.P, i * r)
        multiply((P, 1, 0), (X, 1, r), (E, 1, 0), (r, 1, T))
    return shift - least


@njit(inline="always")  # type: ignore[untyped-decorator]
def _weights(shift: Any, log_ridge: float) -> Any:
    """Return log-scale, factor of the risk's and factor of the ridge's gradient."""
    ridge = fill(log_ridge)
    scale = where_greater(shift, ridge, shift, ridge)
    return scale, exp(shift - scale), exp(ridge - scale)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _length(square: Any, scale: Any, eta: float, normalized: bool, eps: float) -> Any:
    """Return the factor of the scaled gradient in a step."""
    if normalized:
        positive = where_greater(square, fill(0.0), square, fill(0.0))
        return fill(eta) / (root(positive) + fill(eps))
    return fill(eta) * exp(scale)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _move(V: int, P: int, keep: Any, step: Any, count: int) -> None:
    """V <- keep V + step P."""
    for j in range(count):
        store(V, j, fma(step, load(P, j), keep * load(V, j)))


@compiled
def train_w(
    first: int, last: int, data: Data, space: Space, variables: Any, etas: Any, sizes: Sizes,
    rule: Rule,
) -> None:  # fmt: skip
    """Take len(etas) steps of W in the blocks first <= b < last.

    `variables` are the addresses of U, V and a, which are updated, U0 and the square of ||W0||.
    """
    n, r = sizes.n, sizes.r
    eps = TINY if rule.exact else MACHINE_EPS
    P, H = space.P, space.step
    for b in range(first, last):
        here = _of_block(data, sizes, b)
        U, V, a, U0, square0 = variables
        U, V, U0 = at(U, b * n * r), at(V, b * n * r), at(U0, b * n * r)
        for eta in etas:
            shift = _pull(here, space, U, sizes, rule)
            scale, risk, ridge = _weights(shift, rule.log_ridge)
            share = load(a, b)
            multiply((H, 1, r), (P, 1, r), (here.gram, n, 1), (r, n, n))
            square = risk * risk * dot(P, H, n * r)
            if rule.log_ridge > -np.inf:
                size = share * share * load(square0, b)
                for j in range(n * r):
                    size = fma(load(V, j), fma(share, load(U0, j), load(U, j)), size)
                cross = dot(P, U, n * r)
                square = square + ridge * (fill(2.0) * risk * cross + ridge * size)
            step = _length(square, scale, eta, rule.normalized, eps)
            keep = fill(1.0) - step * ridge
            step = fill(0.0) - step * risk
            _move(U, H, keep, step, n * r)
            _move(V, P, keep, step, n * r)
            store(a, b, share * keep)


@compiled
def train_kq(
    first: int, last: int, data: Data, space: Space, variables: Any, etas: Any, sizes: Sizes,
    rule: Rule,
) -> None:  # fmt: skip
    """Take len(etas) steps of (K, Q) in the blocks first <= b < last.

    `variables` are the addresses of K, B, VQ and a, which are updated, B0 and `square0`.
    B_i = Q^T z_i and Q = a[1] Q0 + sum_i z_i VQ_i^T; K is that in the span of the tokens, what is
    outside of it is a[0] times its start. `square0` holds the squares of both at the start.
    """
    n, _, r, _, m = sizes
    U, P, A, H, G = space.step, space.P, space.A, space.H, space.G
    one, ridged = fill(1.0), rule.log_ridge > -np.inf
    for b in range(first, last):
        here = _of_block(data, sizes, b)
        K, B, VQ, a, B0, square0 = variables
        K, B, VQ, B0 = at(K, b * r * m), at(B, b * n * m), at(VQ, b * n * m), at(B0, b * n * m)
        a, square0 = at(a, 2 * b), at(square0, 2 * b)
        for eta in etas:
            multiply((U, 1, r), (K, m, 1), (B, 1, m), (r, n, m))
            shift = _pull(here, space, U, sizes, rule)
            scale, risk, ridge = _weights(shift, rule.log_ridge)
            share_K, share_Q = load(a, 0), load(a, 1)
            multiply((A, 1, m), (K, 1, m), (P, 1, r), (m, n, r))
            multiply((H, 1, m), (A, 1, m), (here.gram, n, 1), (m, n, n))
            multiply((G, 1, m), (B, 1, m), (P, r, 1), (m, r, n))
            square_Q = risk * risk * dot(A, H, n * m)
            if ridged:
                _move(G, K, risk, ridge, r * m)
                size = share_Q * share_Q * load(square0, 1)
                for j in range(n * m):
                    size = fma(load(VQ, j), fma(share_Q, load(B0, j), load(B, j)), size)
                cross = dot(A, B, n * m)
                square_Q = square_Q + ridge * (fill(2.0) * risk * cross + ridge * size)
            square_K = dot(G, G, r * m)
            if ridged:
                outside = ridge * share_K
                square_K = fma(outside * outside, load(square0, 0), square_K)
            step_K = _length(square_K, scale, eta, rule.normalized, TINY)
            step_Q = _length(square_Q, scale, eta, rule.normalized, TINY)
            _move(K, G, one, fill(0.0) - step_K, r * m)
            keep = one - step_Q * ridge
            step = fill(0.0) - step_Q * risk
            _move(B, H, keep, step, n * m)
            _move(VQ, A, keep, step, n * m)
            store(a, 0, share_K * (one - step_K * ridge))
            store(a, 1, share_Q * keep)
