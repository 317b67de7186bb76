"""Normalised gradient descent on every layer and head, compiled: eight instances a vector.

The same formulas as in `network` and `gradient`, without MLPs. With one layer rows are distinct,
and their differences need no exponents of their own. Arrays are passed as addresses of entries of
eight lanes, as in the compiled loop of one layer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from attnsvm.jit import compiled
from attnsvm.lanes import arithmetic, matmul
from attnsvm.lanes import loss as losses
from attnsvm.lanes.arithmetic import (
    at,
    exp,
    fill,
    fma,
    load,
    most,
    root,
    store,
    where_equal,
    where_greater,
)
from attnsvm.lanes.loss import slope
from attnsvm.lanes.matmul import dot, product
from attnsvm.transformer import copies
from attnsvm.transformer.copies import (
    difference_rows,
    gather_away,
    mean_away,
    normalize,
    row_differences,
    with_swap,
)

FIRST, MEAN, EVERY = 0, 1, 2
"""Codes of the readouts."""

TINY = 1e-300


class Sizes(NamedTuple):
    """n, T, d, layers L, heads H, projections of the head k, columns of K and Q m (0: W).

    Whether there is a residual connection and whether values are matrices; codes of readout and
    loss; the target of the squared loss; whether rows may become copies of each other, so that
    their differences are kept.
    """

    n: int
    T: int
    d: int
    L: int
    H: int
    k: int
    m: int
    residual: bool
    values: bool
    readout: int
    loss: int
    target: float
    copies: bool


class Data(NamedTuple):
    """Addresses of the input of each block.

    Tokens X (n, T, d), admissible keys as bias (n, T, T) of 0 and -inf, values V (L, H, d, d),
    projections of the head F (d, k), labels Y and weights -Y / count (n,) or (n, T). `kinds` is
    the same for all blocks: alpha, beta and rho of each projection, (3, k).
    """

    X: int
    bias: int
    V: int
    F: int
    kinds: int
    Y: int
    weights: int


class Space(NamedTuple):
    """Addresses of the work arrays of a thread.

    For every layer its rows x (L + 1, n, T, d), and for every head (L, H, ...): centred logits
    (n, T, T), 1 / sum e^logit and the index of the top token (n, T), U = W x (n, T, d). For the
    layer at hand: adjoints g (n, T, d) with exponents c (n, T), twice; P (H, n, T, d) with
    exponents (H, n, T); for a sequence r (H, T, d), q and its exponents (H, T, T), a matrix (T, T)
    and rows (T, d). W (L, H, d, d), gradients of W (d, d), of K and of Q (d, m), projections (k,).
    Where rows may be copies, the differences of the input rows of every layer (L, n, T, T, d) and
    their exponents (L, n, T, T); and for a row x_t - x_top (T, d), its exponents (T,), and 2 T or d
    further entries.
    """

    x: int
    logits: int
    inverse: int
    top: int
    U: int
    g: int
    c: int
    g_below: int
    c_below: int
    P: int
    P_exponent: int
    r: int
    q: int
    q_exponent: int
    square: int
    rows: int
    W: int
    dW: int
    dK: int
    dQ: int
    w: int
    pairs: int
    apart: int
    away: int
    size: int
    part: int


def space_entries(sizes: Sizes) -> Space:
    """Return the number of entries of each part of the space."""
    n, T, d, L, H, k, m = sizes[:7]
    rows, heads = n * T, L * H * n * T
    return Space(
        x=(L + 1) * rows * d,
        logits=heads * T,
        inverse=heads,
        top=heads,
        U=heads * d,
        g=rows * d,
        c=rows,
        g_below=rows * d,
        c_below=rows,
        P=H * rows * d,
        P_exponent=H * rows,
        r=H * T * d,
        q=H * T * T,
        q_exponent=H * T * T,
        square=T * T,
        rows=T * d,
        W=L * H * d * d,
        dW=max(d * d, T * d, 2 * d + 1),
        dK=d * m,
        dQ=d * m,
        w=k,
        pairs=L * rows * T * d if sizes.copies else 0,
        apart=L * rows * T if sizes.copies else 0,
        away=T * d,
        size=T,
        part=max(2 * T, d),
    )


@njit  # type: ignore[untyped-decorator]
def _forward(data: Data, space: Space, sizes: Sizes) -> None:
    """Write the rows of every layer, logits less the largest, 1 / sum e^logit, top tokens and U."""
    n, T, d, L, H = sizes.n, sizes.T, sizes.d, sizes.L, sizes.H
    for j in range(n * T * d):
        store(space.x, j, load(data.X, j))
    share = fill(1.0 / np.sqrt(H))
    for layer in range(L):
        for i in range(n):
            x = at(space.x, (layer * n + i) * T * d)
            out = at(space.x, ((layer + 1) * n + i) * T * d)
            for j in range(T * d):
                store(out, j, load(x, j) if sizes.residual else fill(0.0))
            for h in range(H):
                head = layer * H + h
                here = head * n + i
                U, logits = at(space.U, here * T * d), at(space.logits, here * T * T)
                product((U, d, 1), (x, d, 1), (at(space.W, head * d * d), 1, d), (T, d, d))
                product((logits, T, 1), (U, d, 1), (x, 1, d), (T, T, d))
                _attend(data, space, sizes, here, i)
                product((space.rows, d, 1), (space.square, T, 1), (x, d, 1), (T, d, T))
                mean = space.rows
                if sizes.values:
                    V = at(data.V, head * d * d)
                    product((space.dW, d, 1), (mean, d, 1), (V, d, 1), (T, d, d))
                    mean = space.dW
                for j in range(T * d):
                    store(out, j, fma(share, load(mean, j), load(out, j)))
            if sizes.residual:
                for j in range(T * d):
                    store(out, j, load(out, j) * fill(np.sqrt(0.5)))
            if sizes.copies:
                _compare_rows(data, space, sizes, layer, i)


@njit  # type: ignore[untyped-decorator]
def _compare_rows(data: Data, space: Space, sizes: Sizes, layer: int, i: int) -> None:
    """Write the differences of the rows after a layer; before the first one, those of the input."""
    n, T, d, H = sizes.n, sizes.T, sizes.d, sizes.H
    before, after = layer * n + i, (layer + 1) * n + i
    pairs, apart = at(space.pairs, before * T * T * d), at(space.apart, before * T * T)
    if layer == 0:
        row_differences(at(space.x, i * T * d), pairs, apart, T, d)
    if layer == sizes.L - 1:
        return
    above, above_apart = at(space.pairs, after * T * T * d), at(space.apart, after * T * T)
    plain = sizes.residual and layer == 0  # x_p and x_q are as drawn: only swaps cancel
    for j in range(0 if plain else T * T * d):
        store(above, j, load(pairs, j) if sizes.residual else fill(0.0))
    for j in range(0 if plain else T * T):
        store(above_apart, j, load(apart, j) if sizes.residual else fill(-np.inf))
    if plain:
        row_differences(at(space.x, after * T * d), above, above_apart, T, d)
    swaps = sizes.residual and H == 1 and not sizes.values
    work = space.away, space.size, space.rows, space.square, space.part
    for h in range(H):
        head = layer * H + h
        here = head * n + i
        of_head = (
            at(space.logits, here * T * T),
            at(space.inverse, here * T),
            at(space.top, here * T),
        )
        W, V = at(space.W, head * d * d), at(data.V, head * d * d) if sizes.values else 0
        for p in range(0 if plain else T):
            found = at(above, p * T * d), at(above_apart, p * T)
            difference_rows(p, pairs, apart, W, V, of_head, found, work, 1 / np.sqrt(H), T, d)
        if swaps:
            means = space.rows, space.square
            for p in range(T):
                mean = at(space.rows, p * d), at(space.square, p)
                mean_away(p, pairs, apart, of_head, mean, (space.away, space.size), T, d)
            for p in range(T):
                for q in range(T):
                    found = at(above, (p * T + q) * d), at(above_apart, p * T + q)
                    share = np.sqrt(0.5) if plain else 1.0
                    with_swap(p, q, pairs, apart, of_head[2], means, found, space.dW, share, T, d)
    for row in range(T * T):
        pair = at(above, row * d)
        if sizes.residual and not plain:
            for j in range(d):
                store(pair, j, load(pair, j) * fill(np.sqrt(0.5)))
        normalize(pair, at(above_apart, row), d)


@njit  # type: ignore[untyped-decorator]
def _attend(data: Data, space: Space, sizes: Sizes, here: int, i: int) -> None:
    """Write `top`, `inverse` and centred logits of the rows of one head, and attention, square."""
    T = sizes.T
    for k in range(T):
        row, bias = at(space.logits, (here * T + k) * T), at(data.bias, (i * T + k) * T)
        largest, place, sum_ = fill(-np.inf), fill(0.0), fill(0.0)
        for t in range(T):
            logit = load(row, t) + load(bias, t)
            store(row, t, logit)
            place = where_greater(logit, largest, fill(float(t)), place)
            largest = most(logit, largest)
        for t in range(T):
            centred = load(row, t) - largest
            store(row, t, centred)
            e = exp(centred)
            store(space.square, k * T + t, e)
            sum_ = sum_ + e
        inverse = fill(1.0) / sum_
        store(space.inverse, here * T + k, inverse)
        store(space.top, here * T + k, place)
        for t in range(T):
            store(space.square, k * T + t, load(space.square, k * T + t) * inverse)


@njit  # type: ignore[untyped-decorator]
def _readout(data: Data, space: Space, sizes: Sizes) -> None:
    """Write the adjoints of the last rows and their exponents."""
    n, T, d, k = sizes.n, sizes.T, sizes.d, sizes.k
    last = at(space.x, sizes.L * n * T * d)
    zero = fill(0.0)
    count = T if sizes.readout == EVERY else 1
    o, g = space.rows, space.dW
    for i in range(n):
        for position in range(count):
            at_row = i * T + position
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
                store(space.w, p, alpha + beta * projected + kink)
            sample = i * count + position
            factor, exponent = slope(load(data.Y, sample) * value, sizes.loss, sizes.target)
            factor = factor * load(data.weights, sample)
            if sizes.readout == MEAN:
                factor = factor * fill(1.0 / T)
            for j in range(d):
                total = zero
                for p in range(k):
                    total = fma(load(space.w, p), load(data.F, j * k + p), total)
                store(g, j, total * factor)
            for t in range(T):
                seen = sizes.readout == MEAN or t == position
                if sizes.readout != EVERY or seen:
                    store(space.c, i * T + t, exponent if seen else fill(-np.inf))
                    for j in range(d):
                        store(space.g, (i * T + t) * d + j, load(g, j) if seen else zero)


@njit  # type: ignore[untyped-decorator]
def _backward(data: Data, space: Space, sizes: Sizes, layer: int) -> None:
    """Write P and the adjoints of the layer's input, from those of its output."""
    n, T, d, H = sizes.n, sizes.T, sizes.d, sizes.H
    if sizes.residual:
        for j in range(n * T * d):
            store(space.g, j, load(space.g, j) * fill(np.sqrt(0.5)))
    for i in range(n):
        for h in range(H):
            _pull(data, space, sizes, layer, i, h)
        for t in range(T):
            _gather_exponent(space, sizes, layer, i, t)
        below = at(space.g_below, i * T * d)
        for t in range(T):
            place = i * T + t
            share = exp(load(space.c, place) - load(space.c_below, place))
            for j in range(d):
                kept = share * load(space.g, place * d + j) if sizes.residual else fill(0.0)
                store(below, t * d + j, kept)
        for h in range(H):
            _add_adjoints(space, sizes, layer, i, h)
    for j in range(n * T * d):
        store(space.g, j, load(space.g_below, j))
    for j in range(n * T):
        store(space.c, j, load(space.c_below, j))


@njit  # type: ignore[untyped-decorator]
def _pull(data: Data, space: Space, sizes: Sizes, layer: int, i: int, h: int) -> None:
    """Write r, q and P of one sequence and head, with their exponents."""
    n, T, d, H = sizes.n, sizes.T, sizes.d, sizes.H
    here, head = (layer * H + h) * n + i, layer * H + h
    x, g, r = at(space.x, (layer * n + i) * T * d), at(space.g, i * T * d), at(space.r, h * T * d)
    if sizes.values:
        product((r, d, 1), (g, d, 1), (at(data.V, head * d * d), 1, d), (T, d, d))
    for j in range(T * d):
        store(r, j, load(r if sizes.values else g, j) * fill(1.0 / np.sqrt(H)))
    product((space.square, T, 1), (r, d, 1), (x, 1, d), (T, T, d))
    pairs, apart = space.pairs, space.apart
    if sizes.copies:
        pairs = at(space.pairs, (layer * n + i) * T * T * d)
        apart = at(space.apart, (layer * n + i) * T * T)
    zero, none = fill(0.0), fill(-np.inf)
    for k in range(T):
        rise, logits = at(space.square, k * T), at(space.logits, (here * T + k) * T)
        q, exponent = at(space.q, (h * T + k) * T), at(space.q_exponent, (h * T + k) * T)
        top, inverse = load(space.top, here * T + k), load(space.inverse, here * T + k)
        c = load(space.c, i * T + k)
        rise_top, log_mean, mean = zero, none, zero
        if sizes.copies:
            gather_away(pairs, apart, top, space.away, space.size, T, d)
            for t in range(T):
                store(rise, t, dot(at(r, k * d), at(space.away, t * d), d))
        else:
            for t in range(T):
                rise_top = where_equal(top, fill(float(t)), load(rise, t), rise_top)
            for t in range(T):
                store(rise, t, load(rise, t) - rise_top)
                store(space.size, t, zero)
        # x_t - x_top = away e^size, and the score of t is above that of the top by rise e^size
        for t in range(T):
            term = load(logits, t) + load(space.size, t)
            log_mean = most(log_mean, where_equal(load(rise, t), zero, none, term))
        for t in range(T):
            share = exp(load(logits, t) + load(space.size, t) - log_mean)
            mean = fma(load(rise, t), share, mean)
        mean = mean * inverse
        # q = s (rise - mean) e^c; at the top token only the mean is left
        largest = none
        for t in range(T):
            is_top, size = fill(float(t)), load(space.size, t)
            scale = most(size, log_mean)
            pull = load(rise, t) * exp(size - scale) - mean * exp(log_mean - scale)
            pull = where_equal(top, is_top, zero - mean, pull)
            power = load(logits, t) + (scale + c)
            power = where_equal(top, is_top, log_mean + c, power)
            power = where_equal(pull, zero, none, power)
            store(q, t, pull * inverse)
            store(exponent, t, power)
            largest = most(largest, where_equal(top, is_top, none, power + size))
        if sizes.copies:
            _sum_away(space, q, exponent, largest, at(space.P, ((h * n + i) * T + k) * d), T, d)
        balance = zero
        for t in range(T):
            part = load(q, t) * exp(load(exponent, t) - largest)
            part = where_equal(top, fill(float(t)), zero, part)
            store(rise, t, part)
            balance = balance + part
        for t in range(T):
            store(rise, t, where_equal(top, fill(float(t)), zero - balance, load(rise, t)))
        store(space.P_exponent, (h * n + i) * T + k, largest)
    if not sizes.copies:
        P = at(space.P, (h * n + i) * T * d)
        product((P, d, 1), (space.square, T, 1), (x, d, 1), (T, d, T))


@njit  # type: ignore[untyped-decorator]
def _sum_away(space: Space, q: int, exponent: int, largest: Any, P: int, T: int, d: int) -> None:
    """Write sum_t q_t (x_t - x_top) e^-largest."""
    for j in range(d):
        store(P, j, fill(0.0))
    for t in range(T):
        share = load(q, t) * exp(load(exponent, t) + load(space.size, t) - largest)
        for j in range(d):
            store(P, j, fma(share, load(space.away, t * d + j), load(P, j)))


@njit  # type: ignore[untyped-decorator]
def _gather_exponent(space: Space, sizes: Sizes, layer: int, i: int, t: int) -> None:
    """Write the exponent of the adjoint of row t: the largest of its terms."""
    n, T, H = sizes.n, sizes.T, sizes.H
    largest = load(space.c, i * T + t) if sizes.residual else fill(-np.inf)
    for h in range(H):
        logits = at(space.logits, ((layer * H + h) * n + i) * T * T)
        largest = most(load(space.P_exponent, (h * n + i) * T + t), largest)
        for k in range(T):
            largest = most(load(logits, k * T + t) + load(space.c, i * T + k), largest)
            largest = most(load(space.q_exponent, (h * T + k) * T + t), largest)
    store(space.c_below, i * T + t, largest)


@njit  # type: ignore[untyped-decorator]
def _add_adjoints(space: Space, sizes: Sizes, layer: int, i: int, h: int) -> None:
    """Add the terms of one head to the adjoints: as values, as keys, as queries."""
    n, T, d, H = sizes.n, sizes.T, sizes.d, sizes.H
    head = layer * H + h
    here = head * n + i
    below, logits = at(space.g_below, i * T * d), at(space.logits, here * T * T)
    as_value, as_key = space.square, at(space.q, h * T * T)
    for k in range(T):
        inverse, c = load(space.inverse, here * T + k), load(space.c, i * T + k)
        for t in range(T):
            common, place = load(space.c_below, i * T + t), k * T + t
            size = load(space.q_exponent, h * T * T + place)
            store(as_value, place, inverse * exp(load(logits, place) + c - common))
            store(as_key, place, load(as_key, place) * exp(size - common))
    product((space.rows, d, 1), (as_value, 1, T), (at(space.r, h * T * d), d, 1), (T, d, T))
    _add(below, space.rows, T * d)
    product((space.rows, d, 1), (as_key, 1, T), (at(space.U, here * T * d), d, 1), (T, d, T))
    _add(below, space.rows, T * d)
    P, W = at(space.P, (h * n + i) * T * d), at(space.W, head * d * d)
    product((space.rows, d, 1), (P, d, 1), (W, d, 1), (T, d, d))
    for t in range(T):
        size = load(space.P_exponent, (h * n + i) * T + t)
        share = exp(size - load(space.c_below, i * T + t))
        for j in range(t * d, (t + 1) * d):
            store(below, j, fma(share, load(space.rows, j), load(below, j)))


@njit  # type: ignore[untyped-decorator]
def _add(target: int, source: int, count: int) -> None:
    for j in range(count):
        store(target, j, load(target, j) + load(source, j))


@njit  # type: ignore[untyped-decorator]
def _step(space: Space, sizes: Sizes, layer: int, h: int, variables: Any, eta: float) -> None:
    """Move W, or K and Q, of one head by eta along its normalised gradient."""
    n, T, d, H, m = sizes.n, sizes.T, sizes.d, sizes.H, sizes.m
    exponents, P = at(space.P_exponent, h * n * T), at(space.P, h * n * T * d)
    largest = fill(-np.inf)
    for k in range(n * T):
        largest = most(load(exponents, k), largest)
    for k in range(n * T):
        share = exp(load(exponents, k) - largest)
        for j in range(k * d, (k + 1) * d):
            store(P, j, share * load(P, j))
    x, G = at(space.x, layer * n * T * d), space.dW
    product((G, d, 1), (P, 1, d), (x, d, 1), (d, d, n * T))
    head = layer * H + h
    if m == 0:
        _descend(at(variables[0], head * d * d), G, d * d, eta)
        return
    K, Q = at(variables[0], head * d * m), at(variables[1], head * d * m)
    product((space.dK, m, 1), (G, d, 1), (Q, m, 1), (d, m, d))
    product((space.dQ, m, 1), (G, 1, d), (K, m, 1), (d, m, d))
    _descend(K, space.dK, d * m, eta)
    _descend(Q, space.dQ, d * m, eta)


@njit  # type: ignore[untyped-decorator]
def _descend(V: int, G: int, count: int, eta: float) -> None:
    step = fill(eta) / (root(dot(G, G, count)) + fill(TINY))
    for j in range(count):
        store(V, j, load(V, j) - step * load(G, j))


@njit  # type: ignore[untyped-decorator]
def _combine(space: Space, sizes: Sizes, variables: Any) -> None:
    """Write W of every layer and head."""
    d, m = sizes.d, sizes.m
    for head in range(sizes.L * sizes.H):
        W = at(space.W, head * d * d)
        if m == 0:
            for j in range(d * d):
                store(W, j, load(variables[0], head * d * d + j))
        else:
            K, Q = at(variables[0], head * d * m), at(variables[1], head * d * m)
            product((W, d, 1), (K, m, 1), (Q, 1, m), (d, d, m))


@compiled(arithmetic, losses, matmul, copies, nogil=True, error_model="numpy")
def descend_layers(
    first: int, last: int, data: Data, space: Space, variables: Any, etas: Any, sizes: Sizes
) -> None:
    """Take len(etas) steps of all layers and heads in the blocks first <= b < last.

    `variables` are the addresses of W (L, H, d, d), or of K and Q (L, H, d, m), which are updated.
    """
    n, T, d, L, H, k, m = (
        sizes.n, sizes.T, sizes.d, sizes.L, sizes.H, sizes.k, sizes.m,
    )  # fmt: skip
    samples = n * T if sizes.readout == EVERY else n
    for b in range(first, last):
        here = Data(
            at(data.X, b * n * T * d),
            at(data.bias, b * n * T * T),
            at(data.V, b * L * H * d * d if sizes.values else 0),
            at(data.F, b * d * k),
            data.kinds,
            at(data.Y, b * samples),
            at(data.weights, b * samples),
        )
        width = d * (m if m > 0 else d)
        own = (at(variables[0], b * L * H * width), at(variables[1], b * L * H * width))
        for step in range(len(etas)):
            _combine(space, sizes, own)
            _forward(here, space, sizes)
            _readout(here, space, sizes)
            for layer in range(L - 1, -1, -1):
                _backward(here, space, sizes, layer)
                for h in range(H):
                    _step(space, sizes, layer, h, own, etas[step])
