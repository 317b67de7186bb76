"""The end of the compiled loop: the error of the last gradient, and the slope along it.

`attnsvm.training.ending` has the definitions. This is the part that every instance needs.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from attnsvm.linalg import EPS
from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd.arithmetic import (
    at,
    exp,
    fill,
    fma,
    load,
    magnitude,
    most,
    root,
    store,
    where_equal,
    where_greater,
)
from attnsvm.linalg.simd.loss import slope
from attnsvm.linalg.simd.matmul import dot
from attnsvm.training.compiled import steps
from attnsvm.training.compiled.gradient import Instance, Sizes, Space, Update, of_block, score
from attnsvm.training.compiled.steps import COMPILED_IN, from_queries, gradient_kq, gradient_w
from attnsvm.training.ending import NEAR


class End(NamedTuple):
    """Addresses of one entry for each block.

    Given: `logits`, ||W|| times the largest ||x_it|| ||z_i||, and `reach`, the length of a step.
    Found: `error` of the gradient's direction; `slope`, the derivative of the risk after that step
    along the negative gradient in the direction of the gradient, up to a positive factor; and
    `outwards`, that along the ray through the weights at a little more than these, relative to the
    length of the gradient there.
    """

    logits: int
    reach: int
    error: int
    slope: int
    outwards: int


@njit(inline="always")
def _error(
    here: Instance, space: Space, sizes: Sizes, update: Update, scale: Any, logits: Any
) -> Any:
    """Return the rounding error of the gradient in W, to be called after `gradient`; P is lost."""
    n, T, r, k, c, _ = sizes
    zero, one, error = fill(0.0), fill(1.0), fill(0.0)
    for i in range(n):
        X, q, x_top = at(here.X, i * T * r), at(space.E, i * T), at(space.P, i * r)
        F, w, row = at(here.F, i * T * k), at(space.w, i * k), at(space.logits, i * T)
        place, largest, g, square = load(space.place, i), fill(-np.inf), zero, zero
        c_top = score(w, at(space.best, i * k), k)
        for j in range(r):
            store(x_top, j, zero)
        for t in range(T):
            largest = most(load(row, t), largest)
            g = most(magnitude(score(w, at(F, t * k), k)), g)
            for j in range(r):
                store(
                    x_top, j, where_equal(place, fill(float(t)), load(X, t * r + j), load(x_top, j))
                )
        for j in range(c):
            square = fma(load(here.R, j * n + i), load(here.R, j * n + i), square)
        _, exponent = slope(load(space.margin, i), update.loss, update.target)
        share = exp(load(space.size, i) - scale)
        attention = load(space.top, i)
        total = zero
        for t in range(T):
            apart, size = zero, zero
            for j in range(r):
                x = load(X, t * r + j)
                size, difference = fma(x, x, size), x - load(x_top, j)
                apart = fma(difference, difference, apart)
            other = attention * exp(load(row, t) - largest + (exponent - scale))
            other = where_equal(score(w, at(F, t * k), k), c_top, zero, other)
            here_q = share * magnitude(load(q, t))
            of_q = fma(one + logits, here_q, g * other)
            total = total + fma(of_q, root(apart), here_q * root(size))
        error = fma(root(square), total, error)
    return fill(EPS) * error


@njit(inline="always")
def _relative(error: Any, square: Any) -> Any:
    """Return error / sqrt(square), 0 where the error is 0."""
    return where_greater(error, fill(0.0), error / root(square), fill(0.0))


@njit(inline="always")
def _scale(V: int, count: int, factor: float) -> None:
    """V <- factor V."""
    for j in range(count):
        store(V, j, fill(factor) * load(V, j))


@njit(inline="always")
def _shift(V: int, G: int, count: int, length: Any) -> None:
    """V <- V - length G."""
    for j in range(count):
        store(V, j, load(V, j) - length * load(G, j))


@compiled(*COMPILED_IN, steps, NEAR, nogil=True, error_model="numpy")
def end_w(
    first: int, last: int, data: Instance, space: Space, before: int, variables: Any, end: End,
    sizes: Sizes, update: Update,
) -> None:  # fmt: skip
    """Find `end` of the blocks first <= b < last.

    `variables` are the addresses of V, which is overwritten; `before` that of c r entries.
    """
    count = sizes.c * sizes.r
    for b in range(first, last):
        here, V = of_block(data, sizes, b), at(variables[0], b * count)
        scale = gradient_w(here, V, space, sizes, update)
        square = dot(space.H, space.H, count)
        for j in range(count):
            store(before, j, load(space.H, j))
        error = _error(here, space, sizes, update, scale, load(end.logits, b))
        store(end.error, b, _relative(error, square))
        _scale(V, count, 1 + NEAR)
        gradient_w(here, V, space, sizes, update)
        store(end.outwards, b, dot(space.H, V, count) / root(dot(space.H, space.H, count)))
        _scale(V, count, 1 / (1 + NEAR))
        _shift(V, before, count, load(end.reach, b) / root(square))
        gradient_w(here, V, space, sizes, update)
        store(end.slope, b, dot(space.H, before, count))


@compiled(*COMPILED_IN, steps, NEAR, nogil=True, error_model="numpy")
def end_kq(
    first: int, last: int, data: Instance, space: Space, before: int, variables: Any, end: End,
    sizes: Sizes, update: Update,
) -> None:  # fmt: skip
    """Find `end` of the blocks first <= b < last.

    `variables` are the addresses of K and Q, which are overwritten; `before` that of as many
    entries as both have, and at least c r.
    """
    _, _, r, _, c, m = sizes
    of_K, of_Q = r * m, c * m
    for b in range(first, last):
        here = of_block(data, sizes, b)
        K, Q = at(variables[0], b * of_K), at(variables[1], b * of_Q)
        scale = gradient_kq(here, K, Q, space, sizes, update)
        from_queries(before, space.P, here.R, sizes, r, update.triangular)
        square = dot(before, before, c * r)
        error = _error(here, space, sizes, update, scale, load(end.logits, b))
        store(end.error, b, _relative(error, square))
        square = dot(space.G, space.G, of_K) + dot(space.H, space.H, of_Q)
        for j in range(of_K):
            store(before, j, load(space.G, j))
        for j in range(of_Q):
            store(before, of_K + j, load(space.H, j))
        _scale(K, of_K, 1 + NEAR)
        _scale(Q, of_Q, 1 + NEAR)
        gradient_kq(here, K, Q, space, sizes, update)
        there = dot(space.G, space.G, of_K) + dot(space.H, space.H, of_Q)
        rise = dot(space.G, K, of_K) + dot(space.H, Q, of_Q)
        store(end.outwards, b, rise / root(there))
        _scale(K, of_K, 1 / (1 + NEAR))
        _scale(Q, of_Q, 1 / (1 + NEAR))
        length = load(end.reach, b) / root(square)
        _shift(K, before, of_K, length)
        _shift(Q, at(before, of_K), of_Q, length)
        gradient_kq(here, K, Q, space, sizes, update)
        rise = dot(space.G, before, of_K) + dot(space.H, at(before, of_K), of_Q)
        store(end.slope, b, rise)
