"""Differences of rows that become copies of each other, compiled: eight instances a vector.

The same formulas as `network.differences`. Softmax s_kt
is kept as e^logit / sum, logits less the largest; so factor and exponent of a weight are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from attnsvm.lanes.arithmetic import (
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
from attnsvm.lanes.matmul import product

SMALLEST = 1e-30
"""Changes of a logit below this are small enough for first order, and may underflow as float64."""


@njit  # type: ignore[untyped-decorator]
def gather_away(pairs: int, exponents: int, top: Any, away: int, size: int, T: int, d: int) -> None:
    """Write x_t - x_top (T, d) and its exponents (T,), from all differences of a sequence."""
    for t in range(T):
        e = fill(-np.inf)
        for j in range(d):
            store(away, t * d + j, fill(0.0))
        for u in range(T):
            here = fill(float(u))
            e = where_equal(top, here, load(exponents, t * T + u), e)
            pair = at(pairs, (t * T + u) * d)
            for j in range(d):
                known = load(away, t * d + j)
                store(away, t * d + j, where_equal(top, here, load(pair, j), known))
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
    ours, theirs : (int, lanes)
        Centred logits (T,) and 1 / sum e^logit of the rows p and q.
    """
    (logits_p, inverse_p), (logits_q, inverse_q) = ours, theirs
    zero, one, none = fill(0.0), fill(1.0), fill(-np.inf)
    rises, new, kept = zero, zero, zero
    largest, mean_size = zero, none
    for j in range(T):
        l_p, l_q = load(logits_p, j), load(logits_q, j)
        s_p, s_q = inverse_p * exp(l_p), inverse_q * exp(l_q)
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
def difference_rows(
    p: int, pairs: int, exponents: int, W: int, V: int, head: Any, found: Any, work: Any,
    share: float, T: int, d: int,
) -> None:  # fmt: skip
    """Add the part of one head to y_p - y_q of all rows q, (T, d) with exponents (T,) at `found`.

    Parameters
    ----------
    p : int
        The row.
    pairs, exponents : int
        Differences of the input rows of the sequence, (T, T, d) and (T, T).
    W, V : int
        Weights and values of the head; V is 0 for the identity.
    head : (int, int, int)
        Its centred logits (T, T), 1 / sum e^logit and top tokens (T,).
    work : (int, int, int, int, int)
        Space of (T, d), (T,), (T, d), (T, T) and 2 T or d entries.
    share : float
        Factor of a head.
    """
    (logits, inverse, top), (sums, scales) = head, found
    away, size, U, change, part = work
    gather_away(pairs, exponents, load(top, p), away, size, T, d)
    product((U, d, 1), (at(pairs, p * T * d), d, 1), (W, 1, d), (T, d, d))
    product((change, T, 1), (U, d, 1), (away, 1, d), (T, T, d))
    ours = at(logits, p * T), load(inverse, p)
    for q in range(T):
        theirs = at(logits, q * T), load(inverse, q)
        apart = load(exponents, p * T + q)
        change_of_attention(at(change, q * T), size, apart, ours, theirs, part, T)
        largest = fill(-np.inf)
        for j in range(T):
            largest = most(load(part, T + j) + load(size, j), largest)
        for a in range(d):
            store(U, q * d + a, fill(0.0))
        for j in range(T):
            factor = fill(share) * load(part, j)
            factor = factor * exp(load(part, T + j) + load(size, j) - largest)
            for a in range(d):
                store(U, q * d + a, fma(factor, load(away, j * d + a), load(U, q * d + a)))
        mean = at(U, q * d)
        if V != 0:
            product((part, d, 1), (mean, d, 1), (V, d, 1), (1, d, d))
            mean = part
        add_scaled(at(sums, q * d), at(scales, q), mean, largest, 1.0, d)


@njit  # type: ignore[untyped-decorator]
def row_differences(rows: int, pairs: int, exponents: int, T: int, d: int) -> None:
    """Write x_t - x_u (T, T, d) and its exponents (T, T), of rows that are no copies."""
    for t in range(T):
        for u in range(T):
            pair = at(pairs, (t * T + u) * d)
            for j in range(d):
                store(pair, j, load(rows, t * d + j) - load(rows, u * d + j))
            store(exponents, t * T + u, fill(0.0))
            normalize(pair, at(exponents, t * T + u), d)


@njit  # type: ignore[untyped-decorator]
def normalize(vector: int, exponent: int, d: int) -> None:
    """Divide a vector by its largest magnitude and add the logarithm to its exponent."""
    size = fill(0.0)
    for j in range(d):
        size = most(magnitude(load(vector, j)), size)
    one, none = fill(1.0), fill(-np.inf)
    nothing = where_greater(size, fill(0.0), fill(0.0), one)
    size = where_equal(nothing, one, one, size)
    inverse = one / size
    for j in range(d):
        store(vector, j, load(vector, j) * inverse)
    e = load(exponent, 0) + logarithm(size)
    store(exponent, 0, where_equal(nothing, one, none, e))


@njit  # type: ignore[untyped-decorator]
def add_scaled(sums: int, scale: int, vector: int, exponent: Any, sign: float, d: int) -> None:
    """Add sign times a vector v e^exponent to the one at `sums`, with its exponent at `scale`."""
    known = load(scale, 0)
    common = most(known, exponent)
    kept, share = exp(known - common), fill(sign) * exp(exponent - common)
    for j in range(d):
        store(sums, j, fma(share, load(vector, j), kept * load(sums, j)))
    store(scale, 0, common)


@njit  # type: ignore[untyped-decorator]
def mean_away(
    p: int, pairs: int, exponents: int, head: Any, found: Any, work: Any, T: int, d: int
) -> None:
    """Write a_p = sum_j s_pj (x_j - x_top), (d,), and its exponent at `found`."""
    (logits, inverse, top), (sums, scale), (away, size) = head, found, work
    gather_away(pairs, exponents, load(top, p), away, size, T, d)
    largest, row = fill(-np.inf), at(logits, p * T)
    for j in range(T):
        largest = most(load(row, j) + load(size, j), largest)
    for a in range(d):
        store(sums, a, fill(0.0))
    for j in range(T):
        factor = load(inverse, p) * exp(load(row, j) + load(size, j) - largest)
        for a in range(d):
            store(sums, a, fma(factor, load(away, j * d + a), load(sums, a)))
    store(scale, 0, largest)


@njit  # type: ignore[untyped-decorator]
def with_swap(
    p: int, q: int, pairs: int, exponents: int, top: int, means: Any, found: Any, work: int,
    share: float, T: int, d: int,
) -> None:  # fmt: skip
    """Write share (x_p - x_q + o_p - o_q) at `found` where p and q swap: `network._with_swaps`.

    `means` has the a_p of all rows (T, d) and their exponents (T,); `work` has 2 d + 1 entries.
    """
    (a, a_scale), (sums, scale) = means, found
    one, none = fill(1.0), fill(-np.inf)
    exact, pair, crossed = at(work, 1), at(work, 1 + d), none
    store(work, 0, none)
    for j in range(d):
        store(exact, j, fill(0.0))
    for second in range(2):
        asked, e = load(top, p if second else q), none
        for u in range(T):
            here, row = fill(float(u)), u * T + q if second else p * T + u
            e = where_equal(asked, here, load(exponents, row), e)
            for j in range(d):
                value = load(pairs, row * d + j)
                store(pair, j, where_equal(asked, here, value, load(pair, j)))
        crossed = most(e, crossed)
        add_scaled(exact, work, pair, e, 1.0, d)
    add_scaled(exact, work, at(a, p * d), load(a_scale, p), 1.0, d)
    add_scaled(exact, work, at(a, q * d), load(a_scale, q), -1.0, d)
    swapped = where_greater(load(exponents, p * T + q) - one, crossed, one, fill(0.0))
    for j in range(d):
        store(sums, j, where_equal(swapped, one, fill(share) * load(exact, j), load(sums, j)))
    store(scale, 0, where_equal(swapped, one, load(work, 0), load(scale, 0)))
