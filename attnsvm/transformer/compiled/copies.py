"""Differences of rows that become copies of each other, compiled: eight instances a vector.

As attention saturates, rows become copies of each other: without a residual connection those that
attend to one token, with it two that attend to each other. They differ by e^-margin, which a
difference of rounded rows does not show. Yet the direction of the gradient of the next layer may
depend on it. Therefore differences x_p - x_q are carried beside the rows, as numbers v e^c, where
rounded rows are near each other:

    o_p - o_q = sum_j (s_pj - s_qj) (x_j - x_r),    r the largest attention of row p,

and the change of log s_j from row q to p is that of the centred logits, (x_j - x_r)^T W (x_p - x_q)
less their log-mean-exp. Softmax s_kt is kept as e^logit / sum too, logits less the largest; so
factor and exponent of a weight are known. Differences of two rows are kept once, for p < q.
"""

from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg.jit import subroutine
from attnsvm.linalg.simd.arithmetic import (
    any_lane,
    exp,
    expm1,
    fill,
    log1p,
    logarithm,
    maximum,
    where,
)
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import Workspace
from attnsvm.linalg.simd.matmul import add, matmul, rescale
from attnsvm.transformer.compiled.layout import (
    Data,
    Sizes,
    add_scaled,
    largest_entry,
    log_size,
    normalize,
)

SMALLEST = 1e-30
"""Changes of a logit below this are small enough for first order, and may underflow as float64."""

NEAR = 1 / 64
"""The difference of two rounded rows is exact to some 64 ulp if it is larger than this, relatively.
"""


NEAR_COPIES = -30.0
"""Rows whose log-difference is below this are on one side of every kink of a relu."""


NOT_KEPT = np.inf
"""In place of the exponent of a difference that rounded rows give: it is not kept."""


@subroutine
def begin(X: LaneArray, work: Workspace) -> None:
    """Write the rows of the first layer; they are as drawn, and so are their differences."""
    n, T, _ = X.shape
    work.x[0] = X
    for i in range(n):
        apart = work.apart[0, i]
        work.copies[0, i] = find_near(X[i], work.heights, apart)
        for p in range(T):
            for q in range(p + 1, T):
                if any_lane(apart[p, q] < NOT_KEPT):
                    size = _difference(work.pairs[0, i, p, q], X[i, p], X[i, q])
                    apart[p, q] = where(size > 0, 0, -np.inf)


@subroutine
def compare_copies(
    data: Data, work: Workspace, sizes: Sizes, W: LaneArray, layer: int, i: int
) -> None:
    """Write the differences of rows after a layer that are copies, or near each other."""
    rows, apart, d = work.x[layer + 1, i], work.apart[layer + 1, i], sizes.d
    for p in range(sizes.T):
        for q in range(p + 1, sizes.T):
            if any_lane(apart[p, q] < NOT_KEPT):
                pair = work.pairs[layer + 1, i, p, q]
                bound = maximum(work.heights[p], work.heights[q])
                near = ~(_difference(pair, rows[p], rows[q]) > bound)
                _compare_pair(data, work, sizes, W, layer, i, p, q)
                for j in range(d):
                    pair[j] = where(near, work.exact[j], pair[j])
                apart[p, q] = where(near, work.exact[d], 0)


@subroutine
def find_near(x: LaneArray, heights: LaneArray, apart: LaneArray) -> Any:
    """Return 1 where some rows are near each other, 0 in the other lanes.

    Write `heights`, the bound of each row, and `apart`: 0 for rows p < q near each other.
    """
    T, d = x.shape
    some = fill(0.0)
    for p in range(T):
        heights[p] = NEAR * largest_entry(x[p])
    for p in range(T):
        for q in range(p + 1, T):
            size, bound = fill(0.0), maximum(heights[p], heights[q])
            apart[p, q] = 0.0
            for j in range(d):
                size = maximum(abs(x[p, j] - x[q, j]), size)
                if not any_lane(~(size > bound)):
                    apart[p, q] = NOT_KEPT
                    break
            some = where((apart[p, q] < NOT_KEPT) & ~(size > bound), 1.0, some)
    return some


@njit(inline="always")
def _difference(out: LaneArray, a: LaneArray, b: LaneArray) -> Any:
    """Write a - b and return its largest magnitude."""
    size = fill(0.0)
    for j in range(len(a)):
        out[j] = a[j] - b[j]
        size = maximum(abs(out[j]), size)
    return size


@subroutine
def difference(out: LaneArray, work: Workspace, layer: int, i: int, t: int, u: int) -> Any:
    """Write x_t - x_u and return its exponent; t and u are not equal."""
    exponent, sign = work.apart[layer, i, min(t, u), max(t, u)], 1.0 if t < u else -1.0
    if not any_lane(exponent < NOT_KEPT):
        _difference(out, work.x[layer, i, t], work.x[layer, i, u])
        return fill(0.0)
    out[:] = work.pairs[layer, i, min(t, u), max(t, u)]
    rescale(out, sign)
    return exponent


@subroutine
def _compare_pair(
    data: Data, work: Workspace, sizes: Sizes, W: LaneArray, layer: int, i: int, p: int, q: int
) -> None:
    """Write y_p - y_q at `exact`, with its exponent."""
    d, pair, exact = sizes.d, work.pair, work.exact
    pair[d] = difference(pair[:d], work, layer, i, p, q)
    if sizes.residual:
        exact[:] = pair
    else:
        exact[:] = 0.0
        exact[d] = -np.inf
    may_swap = sizes.residual and sizes.H == 1
    for h in range(sizes.H):
        _add_attended(data, work, sizes, W, (layer, i, p, q, h), sizes.values and not may_swap)
    if may_swap:
        _replace_swapped(work, sizes, layer, i, p, q)
        if sizes.values:
            _through_values(data.V[layer, 0], work)
    if sizes.residual:
        rescale(exact[:d], np.sqrt(0.5))
    normalize(exact)
    if sizes.width > 0:
        _expand_difference(data, work, layer, i, p, q)
        normalize(exact)


@subroutine
def _through_values(V: LaneArray, work: Workspace) -> None:
    """Turn the difference of x + m at `exact` into that of (I - V)^T x + V^T (x + m)."""
    d, pair, exact = len(V), work.pair, work.exact
    rest, moved = work.part[: d + 1], work.back.flat[:d]
    matmul(moved, V.T, exact[:d])
    exact[:d] = moved
    for j in range(d):
        rest[j] = 0.0
        for e in range(d):
            rest[j] += ((1.0 if e == j else 0.0) - V[e, j]) * pair[e]
    rest[d] = pair[d]
    normalize(rest)
    add_scaled(exact, rest, rest[d], 1.0)


@subroutine
def gather_away(
    away: LaneArray, size: LaneArray, work: Workspace, layer: int, i: int, top: Any
) -> None:
    """Write x_t - x_top (T, d) and its exponents (T,) of a row."""
    T, pair = len(away), work.mean[: away.shape[1]]
    away[:] = 0.0
    size[:] = -np.inf
    for u in range(T):
        is_top = top == u
        if any_lane(is_top):
            for t in range(T):
                if t != u:
                    exponent = difference(pair, work, layer, i, t, u)
                    size[t] = where(is_top, exponent, size[t])
                    add(away[t], pair, where(is_top, 1.0, 0))


@subroutine
def _change_attention(work: Workspace, layer: int, h: int, i: int, p: int, q: int) -> None:
    """Write factors and exponents (T,) of s_pj - s_qj, from changes of logits.

    The centred logits change from q to p by change_j e^(size_j + apart).
    """
    logits, s, inverse = work.logits[layer, h, i], work.s[layer, h, i], work.inverse[layer, h, i]
    logits_p, s_p, inverse_p = logits[p], s[p], inverse[p]
    logits_q, s_q, inverse_q = logits[q], s[q], inverse[q]
    change, size, apart = work.square[0], work.size, work.pair[len(work.pair) - 1]
    none, T = -np.inf, len(change)
    rises, new, kept, mean = fill(0.0), fill(0.0), fill(0.0), fill(0.0)
    largest, mean_size = fill(0.0), fill(none)
    for j in range(T):
        l_p, l_q = logits_p[j], logits_q[j]
        x = change[j] * exp(size[j] + apart)
        both = (l_p > none) & (l_q > none)  # elsewhere one of s_p and s_q is 0
        # s_q (e^x - 1), which does not overflow: e^(l_q + x) is at most about sum e^logit of p
        up = -inverse_q * exp(l_q + x) * expm1(-x)
        rise = where(x > 0, up, s_q[j] * expm1(x))
        rises += where(both, rise, -s_q[j])
        new += where(both, 0, s_p[j])
        kept += where(both, s_p[j], 0)
        largest = maximum(where(both, abs(x), s_p[j] + s_q[j]), largest)
        term = where(both, l_q + size[j] + apart, maximum(l_p, l_q))
        mean_size = maximum(term, mean_size)
    log_mass = log1p(rises) - where(new < 0.5, log1p(-new), logarithm(kept))
    for j in range(T):
        l_p, l_q = logits_p[j], logits_q[j]
        both = (l_p > none) & (l_q > none)
        only = where(l_q == none, inverse_p, -inverse_q)
        factor = where(both, inverse_q * change[j], only)
        term = where(both, l_q + size[j] + apart, maximum(l_p, l_q))
        mean += factor * exp(term - mean_size)
    small = largest < SMALLEST
    for j in range(T):
        l_p, l_q, e = logits_p[j], logits_q[j], size[j] + apart
        moved = change[j] * exp(e) - log_mass
        larger = maximum(l_p, l_q)
        far = inverse_p * exp(l_p - larger) - inverse_q * exp(l_q - larger)
        both = (l_p > none) & (l_q > none)
        near = both & (abs(moved) < 1) & (abs(log_mass) < 1)
        value = where(near, inverse_q * expm1(moved), far)
        exponent = where(near, l_q, larger)
        scale = maximum(e, mean_size)
        first = change[j] * exp(e - scale) - mean * exp(mean_size - scale)
        value = where(both & small, inverse_q * first, value)
        exponent = where(both & small, l_q + scale, exponent)
        work.part[j], work.exponents[j] = value, where(value == 0, none, exponent)


@subroutine
def _add_attended(
    data: Data, work: Workspace, sizes: Sizes, W: LaneArray, which: Any, values: bool
) -> None:
    """Add the part of one head to o_p - o_q at `exact`; through its values if `values`."""
    (layer, i, p, q, h), T, d = which, sizes.T, sizes.d
    away, size, mean = work.away, work.size, work.back.flat[:d]
    gather_away(away, size, work, layer, i, work.top[layer, h, i, p])
    factors, exponents = work.part[:T], work.exponents[:T]
    matmul(mean, W[layer, h], work.pair[:d])
    matmul(work.square[0], away, mean)
    _change_attention(work, layer, h, i, p, q)
    largest = fill(-np.inf)
    for t in range(T):
        largest = maximum(exponents[t] + size[t], largest)
    for t in range(T):
        factors[t] *= exp(exponents[t] + size[t] - largest) * (1 / np.sqrt(sizes.H))
    matmul(mean, away.T, factors)
    if values:
        attended = mean
        mean = work.part[:d]
        matmul(mean, data.V[layer, h].T, attended)
    add_scaled(work.exact, mean, largest, 1.0)


@subroutine
def _replace_swapped(work: Workspace, sizes: Sizes, layer: int, i: int, p: int, q: int) -> None:
    """Replace x_p - x_q + o_p - o_q at `exact` where p and q swap.

    Where p attends to q and q to p, x_p - x_q and o_p - o_q cancel. With r_p the largest attention
    of row p, the sum is (x_p - x_{r_q}) + (x_{r_p} - x_q) + a_p - a_q, a_p = sum_j s_pj (x_j -
    x_{r_p}), whose first two terms are then zero, or tiny for copies.
    """
    d, pair, exact, total = sizes.d, work.pair, work.exact, work.total
    away, size, of_q, size_of_q = work.away, work.size, work.other_away, work.other_size
    gather_away(away, size, work, layer, i, work.top[layer, 0, i, p])
    gather_away(of_q, size_of_q, work, layer, i, work.top[layer, 0, i, q])
    crossed = maximum(log_size(of_q[p], size_of_q[p]), log_size(away[q], size[q]))
    swapped = log_size(pair[:d], pair[d]) - 1 > crossed
    if not any_lane(swapped):
        return
    total[:] = 0.0
    total[d] = -np.inf
    add_scaled(total, of_q[p], size_of_q[p], 1.0)
    add_scaled(total, away[q], size[q], -1.0)
    rows = (p, away, size, 1.0), (q, of_q, size_of_q, -1.0)
    for row, x_away, sizes_away, sign in rows:
        logits, inverse = work.logits[layer, 0, i, row], work.inverse[layer, 0, i, row]
        _mean_away(work, x_away, sizes_away, logits, inverse)
        add_scaled(total, work.mean, work.mean[d], sign)
    for j in range(d + 1):
        exact[j] = where(swapped, total[j], exact[j])


@subroutine
def _mean_away(
    work: Workspace, away: LaneArray, size: LaneArray, logits: LaneArray, inverse: Any
) -> None:
    """Write the mean sum_t s_t (x_t - x_top), (d,), of a row, and its exponent behind it."""
    (T, d), mean, weights = away.shape, work.mean, work.square[0]
    largest = fill(-np.inf)
    for t in range(T):
        largest = maximum(logits[t] + size[t], largest)
    for t in range(T):
        weights[t] = inverse * exp(logits[t] + size[t] - largest)
    matmul(mean[:d], away.T, weights)
    mean[d] = largest


@subroutine
def _expand_difference(data: Data, work: Workspace, layer: int, i: int, p: int, q: int) -> None:
    """Turn the difference of two rows before the MLP, with its exponent, into that after it."""
    exact, d = work.exact, len(work.exact) - 1
    a, b = work.hidden[layer, i, p], work.hidden[layer, i, q]
    rise, added = work.part[: len(a)], work.back.flat[:d]
    grown = exp(-maximum(exact[d], NEAR_COPIES))
    matmul(rise, data.M1[layer, 0].T, exact[:d])
    for j in range(len(a)):
        crossed = where(exact[d] > NEAR_COPIES, (a[j] - b[j]) * grown, where(a[j] > 0, rise[j], 0))
        neither, both = (a[j] <= 0) & (b[j] <= 0), (a[j] > 0) & (b[j] > 0)
        rise[j] = where(both, rise[j], where(neither, 0, crossed))
    matmul(added, data.M2[layer, 0].T, rise)
    for j in range(d):
        exact[j] = (exact[j] + added[j]) * np.sqrt(0.5)
