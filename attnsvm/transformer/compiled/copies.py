"""Differences of rows that become copies of each other, compiled: eight instances a vector.

The same formulas as `network.differences`. Softmax s_kt is kept as e^logit / sum too, logits less
the largest; so factor and exponent of a weight are known. Differences of two rows are kept once,
for p < q.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import (
    any_greater,
    at,
    exp,
    expm1,
    fill,
    fma,
    load,
    log1p,
    logarithm,
    magnitude,
    most,
    store,
    where_equal,
    where_greater,
)
from attnsvm.linalg.simd.matmul import product
from attnsvm.transformer.compiled.layout import Data, Sizes, Space, of_head
from attnsvm.transformer.compiled.mlp import expand_difference
from attnsvm.transformer.compiled.scaled import add_scaled, log_size, normalize

SMALLEST = 1e-30
"""Changes of a logit below this are small enough for first order, and may underflow as float64."""

NEAR = 1 / 64
"""The difference of two rounded rows is exact to some 64 ulp if it is larger than this, relatively.
"""


@njit  # type: ignore[untyped-decorator]
def compare_rows(data: Data, space: Space, sizes: Sizes, W: int, layer: int, i: int) -> None:
    """Write the differences of the rows after a layer, exactly also where they are copies."""
    n, T, d = sizes.n, sizes.T, sizes.d
    rows = at(space.x, ((layer + 1) * n + i) * T * d)
    zero, one = fill(0.0), fill(1.0)
    for p in range(T):
        height = zero
        for j in range(d):
            height = most(magnitude(load(rows, p * d + j)), height)
        store(space.heights, p, fill(NEAR) * height)
    for p in range(T):
        for q in range(p + 1, T):
            place = ((layer * n + i) * T + p) * T + q
            found, exponent = at(space.pairs, place * d), at(space.apart, place)
            size, bound = zero, most(load(space.heights, p), load(space.heights, q))
            for j in range(d):
                apart = load(rows, p * d + j) - load(rows, q * d + j)
                store(found, j, apart)
                size = most(magnitude(apart), size)
            store(exponent, 0, zero)
            near = where_greater(size, bound, zero, one)
            if any_greater(near, zero):
                _compare_copies(data, space, sizes, W, (layer, i, p, q))
                for j in range(d + 1):
                    target = exponent if j == d else at(found, j)
                    exact = load(space.exact, j)
                    store(target, 0, where_equal(near, one, exact, load(target, 0)))


@njit  # type: ignore[untyped-decorator]
def _compare_copies(data: Data, space: Space, sizes: Sizes, W: int, which: Any) -> None:
    """Write y_p - y_q at `exact`, with its exponent; `which` is (layer, sequence, p, q)."""
    d, residual = sizes.d, sizes.residual
    pair, exact = space.pair, space.exact
    _input_difference(space, sizes, which)
    root = fill(np.sqrt(2.0))
    for j in range(d):
        store(exact, j, load(pair, j) if residual else fill(0.0))
    store(exact, d, load(pair, d) if residual else fill(-np.inf))
    may_swap = residual and sizes.H == 1
    for h in range(sizes.H):
        _add_attended(data, space, sizes, W, which, h, sizes.values and not may_swap)
    if may_swap:
        _replace_swapped(space, sizes, which)
        if sizes.values:
            _through_values(data, space, sizes, which)
    for j in range(d if residual else 0):
        store(exact, j, load(exact, j) / root)
    normalize(exact, at(exact, d), d)
    if sizes.width > 0:
        layer, i, p, q = which
        first = (layer * sizes.n + i) * sizes.T
        expand_difference(data, space, sizes, layer, first + p, first + q)
        normalize(exact, at(exact, d), d)


@njit  # type: ignore[untyped-decorator]
def _through_values(data: Data, space: Space, sizes: Sizes, which: Any) -> None:
    """Turn the difference of x + m at `exact` into that of (I - V)^T x + V^T (x + m)."""
    d = sizes.d
    V, pair, exact = at(data.V, which[0] * d * d), space.pair, space.exact
    moved, rest = space.back, space.part
    product((moved, 1, 0), (V, 1, d), (exact, 1, 0), (d, 1, d))
    for j in range(d):
        store(exact, j, load(moved, j))
        value = fill(0.0)
        for e in range(d):
            apart = fill(1.0 if e == j else 0.0) - load(V, e * d + j)
            value = fma(apart, load(pair, e), value)
        store(rest, j, value)
    store(rest, d, load(pair, d))
    normalize(rest, at(rest, d), d)
    add_scaled(exact, at(exact, d), rest, load(rest, d), 1.0, d)


@njit  # type: ignore[untyped-decorator]
def _input_difference(space: Space, sizes: Sizes, which: Any) -> None:
    """Write x_p - x_q at `pair`, with its exponent."""
    n, T, d = sizes.n, sizes.T, sizes.d
    layer, i, p, q = which
    pair = space.pair
    if layer > 0:
        place = (((layer - 1) * n + i) * T + p) * T + q
        for j in range(d):
            store(pair, j, load(space.pairs, place * d + j))
        store(pair, d, load(space.apart, place))
        return
    x = at(space.x, i * T * d)
    for j in range(d):
        store(pair, j, load(x, p * d + j) - load(x, q * d + j))
    store(pair, d, fill(0.0))
    normalize(pair, at(pair, d), d)


@njit  # type: ignore[untyped-decorator]
def find_away(space: Space, sizes: Sizes, layer: int, i: int, row: int, second: bool) -> Any:
    """Return the address of x_t - x_top (T, d) of a row; in the first layer write it there.

    Then `second` chooses one of two places.
    """
    T, d = sizes.T, sizes.d
    if layer > 0:
        return at(space.away, (row - sizes.H * sizes.n * T) * T * d)
    found, x = at(space.leave, T * d if second else 0), at(space.x, i * T * d)
    for t in range(T):
        for j in range(d):
            store(found, t * d + j, load(x, t * d + j) - load(space.x_top, row * d + j))
    return found


@njit  # type: ignore[untyped-decorator]
def gather_away(space: Space, sizes: Sizes, layer: int, i: int, row: int) -> None:
    """Write x_t - x_top (T, d) and its exponents (T,) of a row, from differences of two rows."""
    n, T, d = sizes.n, sizes.T, sizes.d
    top, size = load(space.top, row), at(space.size, row * T)
    away = find_away(space, sizes, layer, i, row, False)
    first = ((layer - 1) * n + i) * T * T
    zero = fill(0.0)
    for t in range(T):
        e = fill(-np.inf)
        for j in range(d):
            store(away, t * d + j, zero)
        for u in range(T):
            if u != t:
                place = first + (t * T + u if t < u else u * T + t)
                is_top = fill(float(u))
                e = where_equal(top, is_top, load(space.apart, place), e)
                sign = where_equal(top, is_top, fill(1.0 if t < u else -1.0), zero)
                for j in range(d):
                    value = fma(sign, load(space.pairs, place * d + j), load(away, t * d + j))
                    store(away, t * d + j, value)
        store(size, t, e)


@njit  # type: ignore[untyped-decorator]
def change_of_attention(
    change: int, size: int, apart: Any, ours: Any, theirs: Any, found: int, T: int
) -> None:
    """Write factors (T,) and exponents (T,) of s_pj - s_qj at `found`, from changes of logits.

    Parameters
    ----------
    change, size : int
        Change of the centred logits from q to p is v_j e^(size_j + apart), v_j at `change`.
    ours, theirs : (int, int, lanes)
        Centred logits (T,), attention (T,) and 1 / sum e^logit of the rows p and q.
    """
    (logits_p, weights_p, inverse_p), (logits_q, weights_q, inverse_q) = ours, theirs
    zero, one, none = fill(0.0), fill(1.0), fill(-np.inf)
    rises, new, kept = zero, zero, zero
    largest, mean_size = zero, none
    for j in range(T):
        l_p, l_q = load(logits_p, j), load(logits_q, j)
        s_p, s_q = load(weights_p, j), load(weights_q, j)
        x = load(change, j) * exp(load(size, j) + apart)
        both = where_greater(l_p, none, where_greater(l_q, none, one, zero), zero)
        gained = where_equal(l_q, none, where_greater(l_p, none, one, zero), zero)
        lost = where_equal(l_p, none, where_greater(l_q, none, one, zero), zero)
        # s_q (e^x - 1), which does not overflow: e^(l_q + x) is at most about sum e^logit of p
        up = inverse_q * exp(l_q + x) * (zero - expm1(zero - x))
        rise = where_greater(x, zero, up, s_q * expm1(x))
        rises = rises + where_equal(both, one, rise, zero) - where_equal(lost, one, s_q, zero)
        new = new + where_equal(gained, one, s_p, zero)
        kept = kept + where_equal(both, one, s_p, zero)
        alone = where_equal(gained, one, s_p, where_equal(lost, one, s_q, zero))
        largest = most(where_equal(both, one, magnitude(x), alone), largest)
        term = where_equal(both, one, l_q + load(size, j) + apart, most(l_p, l_q))
        mean_size = most(term, mean_size)
    log_mass = log1p(rises) - where_greater(fill(0.5), new, log1p(zero - new), logarithm(kept))
    mean = zero
    for j in range(T):
        l_p, l_q = load(logits_p, j), load(logits_q, j)
        only = where_equal(l_q, none, inverse_p, zero - inverse_q)
        inside = where_greater(l_p, none, where_greater(l_q, none, one, zero), zero)
        factor = where_equal(inside, one, inverse_q * load(change, j), only)
        term = where_equal(inside, one, l_q + load(size, j) + apart, most(l_p, l_q))
        mean = fma(factor, exp(term - mean_size), mean)
    for j in range(T):
        l_p, l_q = load(logits_p, j), load(logits_q, j)
        e = load(size, j) + apart
        moved = load(change, j) * exp(e) - log_mass
        larger = most(l_p, l_q)
        far = inverse_p * exp(l_p - larger) - inverse_q * exp(l_q - larger)
        near = where_greater(
            one, magnitude(moved), where_greater(one, magnitude(log_mass), one, zero), zero
        )
        value = where_equal(near, one, inverse_q * expm1(moved), far)
        exponent = where_equal(near, one, l_q, larger)
        scale = most(e, mean_size)
        first = load(change, j) * exp(e - scale) - mean * exp(mean_size - scale)
        small = where_greater(fill(SMALLEST), largest, one, zero)
        value = where_equal(small, one, inverse_q * first, value)
        exponent = where_equal(small, one, l_q + scale, exponent)
        outside = where_equal(l_p, none, one, where_equal(l_q, none, one, zero))
        only = where_equal(l_q, none, inverse_p, zero - inverse_q)
        value, exponent = (
            where_equal(outside, one, only, value),
            where_equal(outside, one, larger, exponent),
        )
        store(found, j, value)
        store(found, T + j, where_equal(value, zero, none, exponent))


@njit  # type: ignore[untyped-decorator]
def _add_attended(
    data: Data, space: Space, sizes: Sizes, W: int, which: Any, h: int, values: bool
) -> None:
    """Add the part of one head to o_p - o_q at `exact`; through its values if `values`."""
    T, d, H = sizes.T, sizes.d, sizes.H
    layer, i, p, q = which
    row, other = of_head(sizes, layer, h, i, p), of_head(sizes, layer, h, i, q)
    away, size = find_away(space, sizes, layer, i, row, False), at(space.size, row * T)
    U, change, part, mean = space.back, space.square, space.part, space.back
    head = layer * H + h
    product((U, 1, 0), (at(W, head * d * d), d, 1), (space.pair, 1, 0), (d, 1, d))
    product((change, 1, 0), (away, d, 1), (U, 1, 0), (T, 1, d))
    ours = at(space.logits, row * T), at(space.s, row * T), load(space.inverse, row)
    theirs = at(space.logits, other * T), at(space.s, other * T), load(space.inverse, other)
    change_of_attention(change, size, load(space.pair, d), ours, theirs, part, T)
    largest = fill(-np.inf)
    for t in range(T):
        largest = most(load(part, T + t) + load(size, t), largest)
    for t in range(T):
        share = exp(load(part, T + t) + load(size, t) - largest)
        store(part, t, fill(1 / np.sqrt(H)) * load(part, t) * share)
    product((mean, 1, 0), (away, 1, d), (part, 1, 0), (d, 1, T))
    if values:
        product((part, 1, 0), (at(data.V, head * d * d), 1, d), (mean, 1, 0), (d, 1, d))
        mean = part
    add_scaled(space.exact, at(space.exact, d), mean, largest, 1.0, d)


@njit  # type: ignore[untyped-decorator]
def _replace_swapped(space: Space, sizes: Sizes, which: Any) -> None:
    """Replace x_p - x_q + o_p - o_q at `exact` where p and q swap: `network._with_swaps`."""
    T, d = sizes.T, sizes.d
    layer, i, p, q = which
    row, other = of_head(sizes, layer, 0, i, p), of_head(sizes, layer, 0, i, q)
    of_row = find_away(space, sizes, layer, i, row, False)
    of_other = find_away(space, sizes, layer, i, other, True)
    first, second = at(of_other, p * d), at(of_row, q * d)
    sizes_of = load(space.size, other * T + p), load(space.size, row * T + q)
    crossed = most(log_size(first, sizes_of[0], d), log_size(second, sizes_of[1], d))
    own = log_size(space.pair, load(space.pair, d), d)
    one = fill(1.0)
    swapped = where_greater(own - one, crossed, one, fill(0.0))
    if not any_greater(swapped, fill(0.0)):
        return
    means, sums = space.means, space.back
    a, b = at(means, 0), at(means, d + 1)
    mean_away(space, sizes, row, of_row, a)
    mean_away(space, sizes, other, of_other, b)
    scale = at(space.part, 0)
    store(scale, 0, fill(-np.inf))
    for j in range(d):
        store(sums, j, fill(0.0))
    add_scaled(sums, scale, first, sizes_of[0], 1.0, d)
    add_scaled(sums, scale, second, sizes_of[1], -1.0, d)
    add_scaled(sums, scale, a, load(a, d), 1.0, d)
    add_scaled(sums, scale, b, load(b, d), -1.0, d)
    for j in range(d):
        store(space.exact, j, where_equal(swapped, one, load(sums, j), load(space.exact, j)))
    e = where_equal(swapped, one, load(scale, 0), load(space.exact, d))
    store(space.exact, d, e)


@njit  # type: ignore[untyped-decorator]
def mean_away(space: Space, sizes: Sizes, row: int, away: int, found: int) -> None:
    """Write a = sum_t s_t (x_t - x_top), (d,), of a row, and its exponent behind it."""
    T, d = sizes.T, sizes.d
    size, logits = at(space.size, row * T), row * T
    largest, weights = fill(-np.inf), space.square
    for t in range(T):
        largest = most(load(space.logits, logits + t) + load(size, t), largest)
    for t in range(T):
        share = exp(load(space.logits, logits + t) + load(size, t) - largest)
        store(weights, t, load(space.inverse, row) * share)
    product((found, 1, 0), (away, 1, d), (weights, 1, 0), (d, 1, T))
    store(found, d, largest)
