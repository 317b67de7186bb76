"""The backward pass of one layer, compiled: eight instances a vector."""

from __future__ import annotations

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import (
    at,
    exp,
    fill,
    fma,
    load,
    most,
    store,
    where_equal,
    where_greater,
)
from attnsvm.linalg.simd.loss import slope
from attnsvm.linalg.simd.matmul import product
from attnsvm.transformer.compiled.copies import find_away
from attnsvm.transformer.compiled.layout import (
    EVERY,
    MEAN,
    Data,
    Sizes,
    Space,
    of_head,
    queries,
)
from attnsvm.transformer.compiled.scaled import forget_zeros


@njit  # type: ignore[untyped-decorator]
def readout(data: Data, space: Space, sizes: Sizes) -> None:
    """Write the adjoints of the last rows and their exponents, and what the head reads."""
    n, T, d, k = sizes.n, sizes.T, sizes.d, sizes.k
    last = at(space.x, sizes.L * n * T * d)
    zero = fill(0.0)
    count = T if sizes.readout == EVERY else 1
    g = space.dW
    for i in range(n):
        for position in range(count):
            at_row, sample = i * T + position, i * count + position
            o, w = at(space.read, sample * d), at(space.w, sample * k)
            for j in range(d):
                value = load(last, at_row * d + j)
                if sizes.readout == MEAN:
                    for t in range(1, T):
                        value = value + load(last, (at_row + t) * d + j)
                    value = value * fill(1.0 / T)
                store(o, j, value)
            value = zero
            for p in range(k):
                projected = zero
                for j in range(d):
                    projected = fma(load(o, j), load(data.F, j * k + p), projected)
                alpha, beta = load(data.kinds, p), load(data.kinds, k + p)
                kink = where_greater(projected, zero, load(data.kinds, 2 * k + p), zero)
                value = value + projected * (alpha + fill(0.5) * beta * projected + kink)
                store(w, p, alpha + beta * projected + kink)
            factor, exponent = slope(load(data.Y, sample) * value, sizes.loss, sizes.target)
            factor = factor * load(data.weights, sample)
            if sizes.readout == MEAN:
                factor = factor * fill(1.0 / T)
            for j in range(d):
                total = zero
                for p in range(k):
                    total = fma(load(w, p), load(data.F, j * k + p), total)
                store(g, j, total * factor)
            store(space.w_exponent, sample, exponent)
            for p in range(k):
                store(w, p, factor * load(w, p))
            for t in range(T):
                seen = sizes.readout == MEAN or t == position
                if sizes.readout != EVERY or seen:
                    store(space.c, i * T + t, exponent if seen else fill(-np.inf))
                    for j in range(d):
                        store(space.g, (i * T + t) * d + j, load(g, j) if seen else zero)
    forget_zeros(space.g, space.c, n * T, d)


@njit  # type: ignore[untyped-decorator]
def backward(data: Data, space: Space, sizes: Sizes, W: int, layer: int) -> None:
    """Write P and, above the first layer, the adjoints of the layer's input."""
    n, T, d, H = sizes.n, sizes.T, sizes.d, sizes.H
    R = queries(sizes, layer)
    stride = (T // R) * d
    share = fill((np.sqrt(0.5) if sizes.residual else 1.0) / np.sqrt(H))
    for h in range(H):
        r, g = at(space.r, h * n * T * d), space.g
        if sizes.values:
            V = at(data.V, (layer * H + h) * d * d)
            product((r, stride, 1), (g, stride, 1), (V, 1, d), (n * R, d, d))
            g = r
        for row in range(0, n * T, T // R):
            for j in range(row * d, (row + 1) * d):
                store(r, j, load(g, j) * share)
    for i in range(n):
        for h in range(H):
            for k in range(R):
                if layer == 0:
                    _pull_first(space, sizes, h, i, k)
                else:
                    _pull(space, sizes, layer, h, i, k)
        if layer > 0:
            _begin_below(space, sizes, layer, i, R)
            for h in range(H):
                _add_as_keys(space, sizes, layer, i, h, R)
    if layer > 0:
        for h in range(H):
            _add_as_queries(space, sizes, W, layer, h, R)
        for j in range(n * T * d):
            store(space.g, j, load(space.g_below, j))
        for j in range(n * T):
            store(space.c, j, load(space.c_below, j))
        forget_zeros(space.g, space.c, n * T, d)


@njit  # type: ignore[untyped-decorator]
def _pull_first(space: Space, sizes: Sizes, h: int, i: int, k: int) -> None:
    """Write P of a row of the first layer and its exponent; rows as drawn need no other ones."""
    n, T, d = sizes.n, sizes.T, sizes.d
    row, place = of_head(sizes, 0, h, i, k), (h * n + i) * T + k
    logits, s = at(space.logits, row * T), at(space.s, row * T)
    away = find_away(space, sizes, 0, i, row, False)
    rise, q, r, P = space.square, space.part, at(space.r, place * d), at(space.P, place * d)
    top, zero, none = load(space.top, row), fill(0.0), fill(-np.inf)
    product((rise, 1, 0), (away, d, 1), (r, 1, 0), (T, 1, d))
    largest, mean = none, zero
    for t in range(T):
        logit = where_equal(load(rise, t), zero, none, load(logits, t))
        largest = most(logit, largest)
    # e^-largest times s_t (x_t - x_top)^T r; its sum is the mean
    for t in range(T):
        score = load(rise, t) * exp(load(logits, t) - largest) * load(space.inverse, row)
        store(q, t, score)
        mean = mean + score
    for t in range(T):
        value = load(q, t) - load(s, t) * mean
        store(q, t, where_equal(top, fill(float(t)), zero, value))
    product((P, 1, 0), (away, 1, d), (q, 1, 0), (d, 1, T))
    store(space.P_exponent, place, largest + load(space.c, i * T + k))


@njit  # type: ignore[untyped-decorator]
def _pull(space: Space, sizes: Sizes, layer: int, h: int, i: int, k: int) -> None:
    """Write q and P of a row, with their exponents."""
    n, T, d = sizes.n, sizes.T, sizes.d
    row, place = of_head(sizes, layer, h, i, k), (h * n + i) * T + k
    logits, size = row * T, at(space.size, row * T)
    away = find_away(space, sizes, layer, i, row, False)
    q, exponent = at(space.q, (h * T + k) * T), at(space.q_exponent, (h * T + k) * T)
    rise, r, P = space.square, at(space.r, place * d), at(space.P, place * d)
    top, inverse, c = load(space.top, row), load(space.inverse, row), load(space.c, i * T + k)
    zero, none = fill(0.0), fill(-np.inf)
    product((rise, 1, 0), (away, d, 1), (r, 1, 0), (T, 1, d))
    # x_t - x_top = away e^size, and the score of t is above that of the top by rise e^size
    log_mean, mean = none, zero
    for t in range(T):
        term = load(space.logits, logits + t) + load(size, t)
        log_mean = most(log_mean, where_equal(load(rise, t), zero, none, term))
    for t in range(T):
        share = exp(load(space.logits, logits + t) + load(size, t) - log_mean)
        mean = fma(load(rise, t), share, mean)
    mean = mean * inverse
    # q = s (rise - mean) e^c; at the top token only the mean is left
    largest = none
    for t in range(T):
        is_top, e = fill(float(t)), load(size, t)
        scale = most(e, log_mean)
        pull = load(rise, t) * exp(e - scale) - mean * exp(log_mean - scale)
        pull = where_equal(top, is_top, zero - mean, pull)
        power = load(space.logits, logits + t) + (scale + c)
        power = where_equal(top, is_top, log_mean + c, power)
        power = where_equal(pull, zero, none, power)
        store(q, t, pull * inverse)
        store(exponent, t, power)
        largest = most(largest, where_equal(top, is_top, none, power + e))
    for t in range(T):
        store(rise, t, load(q, t) * exp(load(exponent, t) + load(size, t) - largest))
    product((P, 1, 0), (away, 1, d), (rise, 1, 0), (d, 1, T))
    store(space.P_exponent, place, largest)


@njit  # type: ignore[untyped-decorator]
def _begin_below(space: Space, sizes: Sizes, layer: int, i: int, R: int) -> None:
    """Write the exponents of the adjoints of the rows, and what the residual connection adds."""
    n, T, d, H = sizes.n, sizes.T, sizes.d, sizes.H
    for t in range(T):
        place = i * T + t
        c, largest = load(space.c, place), fill(-np.inf)
        if sizes.residual:
            largest = c
        for h in range(H):
            logits = at(space.logits, of_head(sizes, layer, h, i, 0) * T)
            if t < R:
                largest = most(load(space.P_exponent, (h * n + i) * T + t), largest)
            for k in range(R):
                largest = most(load(logits, k * T + t) + load(space.c, i * T + k), largest)
                largest = most(load(space.q_exponent, (h * T + k) * T + t), largest)
        store(space.c_below, place, largest)
        share = exp(c - largest) * fill(np.sqrt(0.5)) if sizes.residual else fill(0.0)
        for j in range(place * d, (place + 1) * d):
            store(space.g_below, j, share * load(space.g, j))


@njit  # type: ignore[untyped-decorator]
def _add_as_keys(space: Space, sizes: Sizes, layer: int, i: int, h: int, R: int) -> None:
    """Add the terms of one head to the adjoints of a sequence: as values and as keys."""
    n, T, d = sizes.n, sizes.T, sizes.d
    first = of_head(sizes, layer, h, i, 0)
    below, logits = at(space.g_below, i * T * d), at(space.logits, first * T)
    as_value, as_key = space.square, at(space.q, h * T * T)
    for k in range(R):
        inverse, c = load(space.inverse, first + k), load(space.c, i * T + k)
        for t in range(T):
            common, place = load(space.c_below, i * T + t), k * T + t
            size = load(space.q_exponent, h * T * T + place)
            store(as_value, place, inverse * exp(load(logits, place) + c - common))
            store(as_key, place, load(as_key, place) * exp(size - common))
    r = at(space.r, (h * n + i) * T * d)
    product((space.rows, d, 1), (as_value, 1, T), (r, d, 1), (T, d, R))
    _add(below, space.rows, T * d)
    product((space.rows, d, 1), (as_key, 1, T), (at(space.U, first * d), d, 1), (T, d, R))
    _add(below, space.rows, T * d)


@njit  # type: ignore[untyped-decorator]
def _add_as_queries(space: Space, sizes: Sizes, W: int, layer: int, h: int, R: int) -> None:
    """Add the terms of one head to the adjoints of all rows: as queries."""
    n, T, d = sizes.n, sizes.T, sizes.d
    P, W_head, stride = (
        at(space.P, h * n * T * d),
        at(W, (layer * sizes.H + h) * d * d),
        (T // R) * d,
    )
    product((space.back, stride, 1), (P, stride, 1), (W_head, d, 1), (n * R, d, d))
    for i in range(n):
        for place in range(i * T, i * T + R):
            size = load(space.P_exponent, h * n * T + place)
            share = exp(size - load(space.c_below, place))
            for j in range(place * d, (place + 1) * d):
                store(space.g_below, j, fma(share, load(space.back, j), load(space.g_below, j)))


@njit  # type: ignore[untyped-decorator]
def _add(target: int, source: int, count: int) -> None:
    for j in range(count):
        store(target, j, load(target, j) + load(source, j))
