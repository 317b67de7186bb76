"""The gradient of the compiled training loop: each value holds eight instances in its lanes.

The attention of sample i depends on W only through U_i = W z_i, and the gradient in W is
sum_i P_i z_i^T. This file computes the P_i from the U_i; `steps` the next U_i from the P_i.

Arrays are passed as addresses: reference counts would cost more time than a small step. All arrays
are flat: entries of eight lanes, one block after the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from attnsvm.linalg import EPS
from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, matmul
from attnsvm.linalg.simd import loss as losses
from attnsvm.linalg.simd.arithmetic import (
    any_equal,
    any_greater,
    at,
    exp,
    fill,
    fma,
    least,
    load,
    most,
    store,
    where_equal,
    where_greater,
)
from attnsvm.linalg.simd.loss import slope
from attnsvm.linalg.simd.matmul import multiply

TILE = 384
"""Token entries that are processed together: 384 of 64 bytes, 24 KB, fit the L1 cache."""


class Sizes(NamedTuple):
    """n, T, token dimension r, features per token k, query dimension c, columns of K and Q m.

    m is 0 where W is trained.
    """

    n: int
    T: int
    r: int
    k: int
    c: int
    m: int


class Update(NamedTuple):
    """The update: the loss, log(2 ridge), exact gradient or not, and the rule of steps.

    The loss has its code and, if it is the squared one, its target.

    Steps are along the gradient, divided by its norm if `normalised`, or along its `direction`. The
    momentum has its decay rate `beta` (0: none), the logarithm of beta, and whether steps are along
    gradient + beta momentum. R may be triangular.
    """

    loss: int
    target: float
    log_ridge: float
    exact: bool
    normalised: bool
    beta: float
    log_beta: float
    nesterov: bool
    triangular: bool
    direction: Any  # Direction or None


class Instance(NamedTuple):
    """Addresses of the input of each block.

    Tokens X (n, T, r), features F (n, T, k), the queries' triangle R (c, n), bias (n, T), Y and
    weights -Y / n (n,), 0 where the query is 0.
    `kinds` is the same for all blocks: alpha, beta, rho of each feature, (3, k).
    """

    X: int
    F: int
    kinds: int
    R: int
    bias: int
    Y: int
    weights: int


class Space(NamedTuple):
    """Addresses of the work arrays of a thread; A, B and G are used for (K, Q) only.

    The logits and E, which becomes q, (n, T), E (C - C_top) (T,), top, place, big, margin, total,
    size (n,), w and best (n, k), U and P (n, r), H, the gradient in V or Q, (c, r or m),
    A = K^T P and B = Q^T z (n, m), G, the gradient in K, (r, m). For singular values: a copy of a
    gradient, its right singular vectors and its singular values.
    """

    logits: int
    E: int
    C: int
    top: int
    place: int
    big: int
    margin: int
    total: int
    size: int
    w: int
    best: int
    U: int
    P: int
    H: int
    A: int
    B: int
    G: int
    copy: int
    right: int
    sigma: int


def space_entries(sizes: Sizes) -> Space:
    """Return the number of entries of each part of the space."""
    n, T, r, k, c, m = sizes
    of_samples, of_vectors = (n,) * 6, (n * k, n * k, n * r, n * r, c * (m or r))
    most, least = max(r, c) * (m or r), min(max(r, c), m or r)
    singular = (most, least * least, least)
    return Space(n * T, n * T, T, *of_samples, *of_vectors, n * m, n * m, r * m, *singular)


@njit(inline="always")  # type: ignore[untyped-decorator]
def of_block(data: Instance, sizes: Sizes, b: int) -> Instance:
    """Return the addresses of block b."""
    n, T, r, k, c, _ = sizes
    return Instance(
        at(data.X, b * n * T * r),
        at(data.F, b * n * T * k),
        data.kinds,
        at(data.R, b * c * n),
        at(data.bias, b * n * T),
        at(data.Y, b * n),
        at(data.weights, b * n),
    )


@njit(inline="always")  # type: ignore[untyped-decorator]
def _attend(data: Instance, space: Space, sizes: Sizes, exact: bool, first: int, last: int) -> None:
    """Write logits, E, `total` = sum E, `place`, `big` and size = log big, of first <= i < last.

    E = e^(logit - top), but 0 at `place`. Exact gradient: `place` is the index of the largest logit
    and `top` the second largest logit; big = e^(top - largest), and the largest attention is
    1 / (1 + big sum E). If there is no second logit, E and big are 0 and size is -inf. Published
    gradient: top is the largest logit, big is 1 and place is -1.
    """
    _, T, r, _, _, _ = sizes
    for i in range(first, last):
        row, bias = at(space.logits, i * T), at(data.bias, i * T)
        X, U = at(data.X, i * T * r), at(space.U, i * r)
        multiply((row, 1, 0), (X, r, 1), (U, 1, 0), (T, 1, r))
        top, second, place = fill(-np.inf), fill(-np.inf), fill(0.0)
        for t in range(T):
            logit = load(row, t) + load(bias, t)
            store(row, t, logit)
            second = most(least(logit, top), second)
            place = where_greater(logit, top, fill(float(t)), place)
            top = most(logit, top)
        if not exact:
            second, place = top, fill(-1.0)
        store(space.top, i, second)
        store(space.size, i, second - top)
        store(space.place, i, place)
    for i in range(first, last):
        row, E, place = at(space.logits, i * T), at(space.E, i * T), load(space.place, i)
        top, gap = load(space.top, i), load(space.size, i)
        big, total = fill(1.0), fill(0.0)
        for t in range(T):
            here = fill(float(t))
            e = exp(where_equal(place, here, gap, load(row, t) - top))
            big = where_equal(place, here, e, big)
            e = where_equal(place, here, fill(0.0), e)
            total = total + e
            store(E, t, e)
        store(space.big, i, big)
        store(space.total, i, total)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _predict(
    data: Instance, space: Space, sizes: Sizes, update: Update, first: int, last: int
) -> None:
    """Write margins and w, the slopes of the loss in the features of the attended mean.

    The exponents of the slopes are added to `size`. `top` becomes the attention of the token at
    `place`; published gradient: 1 / sum E. `best` are the features of that token, or 0.
    """
    _, T, _, k, _, _ = sizes
    zero, one = fill(0.0), fill(1.0)
    apart = one if update.exact else zero
    for i in range(first, last):
        E, F, w, best = (
            at(space.E, i * T),
            at(data.F, i * T * k),
            at(space.w, i * k),
            at(space.best, i * k),
        )
        place, big, value = load(space.place, i), load(space.big, i), zero
        inverse = one / fma(big, load(space.total, i), apart)
        for j in range(k):
            rest, f_top = zero, zero
            for t in range(T):
                f = load(F, t * k + j)
                rest = fma(load(E, t), f, rest)
                f_top = where_equal(place, fill(float(t)), f, f_top)
            p = fma(big, rest, f_top) * inverse
            alpha, beta = load(data.kinds, j), load(data.kinds, k + j)
            kink = where_greater(p, zero, load(data.kinds, 2 * k + j), zero)
            value = value + p * (alpha + fill(0.5) * beta * p + kink)
            store(w, j, alpha + beta * p + kink)
            store(best, j, f_top)
        store(space.top, i, inverse)
        store(space.margin, i, load(data.Y, i) * value)
    for i in range(first, last):
        factor, exponent = slope(load(space.margin, i), update.loss, update.target)
        if not update.exact:
            factor, exponent = factor * exp(exponent), zero
        factor = factor * load(data.weights, i)
        for j in range(i * k, (i + 1) * k):
            store(space.w, j, factor * load(space.w, j))
        store(space.size, i, load(space.size, i) + exponent)


@njit(inline="always")  # type: ignore[untyped-decorator]
def score(w: int, F: int, k: int) -> Any:
    """Return <w, F>."""
    c = fill(0.0)
    for j in range(k):
        c = fma(load(w, j), load(F, j), c)
    return c


@njit(inline="always")  # type: ignore[untyped-decorator]
def _pull(
    data: Instance, space: Space, sizes: Sizes, update: Update, first: int, last: int
) -> None:
    """Write P_i e^-size; `size` is -inf for a sample that does not contribute to the gradient.

    The entry at the largest softmax of a row is minus the sum of the other entries.
    """
    _, T, r, k, _, _ = sizes
    one = fill(1.0)
    for i in range(first, last):
        E, F, w = at(space.E, i * T), at(data.F, i * T * k), at(space.w, i * k)
        place, inverse = load(space.place, i), load(space.top, i)
        c_top, c_second, total = score(w, at(space.best, i * k), k), fill(np.nan), fill(0.0)
        for t in range(T):
            c, e = score(w, at(F, t * k), k), load(E, t)
            c_second = where_equal(e, one, c, c_second)
            c = e * (c - c_top)
            total = total + c
            store(space.C, t, c)
        if update.exact and any_equal(c_second, c_top):
            total = _weigh_untied(data, space, sizes, i, c_top, total)
        minus_mean, rest = fill(0.0) - total * load(space.big, i) * inverse, fill(0.0)
        for t in range(T):
            q = inverse * fma(minus_mean, load(E, t), load(space.C, t))
            store(E, t, q)
            rest = rest - q
        for t in range(T):
            store(E, t, where_equal(place, fill(float(t)), rest, load(E, t)))
        X, P = at(data.X, i * T * r), at(space.P, i * r)
        multiply((P, 1, 0), (X, 1, r), (E, 1, 0), (r, 1, T))


@njit(inline="always")  # type: ignore[untyped-decorator]
def _weigh_untied(
    data: Instance, space: Space, sizes: Sizes, i: int, c_top: Any, total: Any
) -> Any:
    """Set `size` by the tokens with C != c_top: only they contribute to the gradient.

    If the second largest logit is not one of theirs (it may be a copy of the top token), their E
    may underflow. Then write e^(logit - their largest logit) (C - c_top) and return the sum.
    """
    T, k = sizes.T, sizes.k
    logits, F, w = at(space.logits, i * T), at(data.F, i * T * k), at(space.w, i * k)
    place, none = load(space.place, i), fill(-np.inf)
    second, largest = none, none
    for t in range(T):
        logit = load(logits, t)
        second = where_equal(place, fill(float(t)), second, most(logit, second))
        other = most(logit, largest)
        largest = where_equal(score(w, at(F, t * k), k), c_top, largest, other)
    second = where_greater(largest, none, second, none)
    size = load(space.size, i) + (largest - second)
    store(space.size, i, where_greater(largest, none, size, none))
    if not any_greater(second, largest):
        return total
    total = fill(0.0)
    for t in range(T):
        c = exp(load(logits, t) - largest) * (score(w, at(F, t * k), k) - c_top)
        total = total + c
        store(space.C, t, c)
    return total


@compiled(arithmetic, losses, matmul, EPS, nogil=True, error_model="numpy")
def gradient(data: Instance, space: Space, sizes: Sizes, update: Update) -> Any:
    """Write P_i e^-scale and return the scale, the largest `size` of a contributing sample.

    A few samples are processed together: as many as keep their tokens in the cache for both
    products. Within a sample each stage (logits, exponentials, slope, ...) depends on the one
    before. Each stage is a loop over these samples, so the processor has independent work.
    """
    n, T, r, _, _, _ = sizes
    few = max(1, TILE // (T * r))
    for first in range(0, n, few):
        last = min(first + few, n)
        _attend(data, space, sizes, update.exact, first, last)
        _predict(data, space, sizes, update, first, last)
        _pull(data, space, sizes, update, first, last)
    scale = fill(-np.inf)
    for i in range(n):
        size = load(space.size, i)
        scale = where_greater(size, scale, size, scale)
    scale = where_greater(scale, fill(-np.inf), scale, fill(0.0))
    for i in range(n):
        share = exp(load(space.size, i) - scale)
        for j in range(i * r, (i + 1) * r):
            store(space.P, j, share * load(space.P, j))
    return scale
