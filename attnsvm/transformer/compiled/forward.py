"""The forward pass of all layers, compiled: eight instances a vector."""

from __future__ import annotations

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import (
    at,
    exp,
    fill,
    fma,
    load,
    magnitude,
    most,
    store,
    where_equal,
    where_greater,
)
from attnsvm.linalg.simd.matmul import product
from attnsvm.transformer.compiled.copies import compare_rows, gather_away
from attnsvm.transformer.compiled.layout import Data, Sizes, Space, of_head, queries
from attnsvm.transformer.compiled.mlp import expand


@njit  # type: ignore[untyped-decorator]
def begin(data: Data, space: Space, sizes: Sizes) -> None:
    """Write the rows of the first layer, and which of them differ: exponents 0, or -inf."""
    n, T, d = sizes.n, sizes.T, sizes.d
    for j in range(n * T * d):
        store(space.x, j, load(data.X, j))
    zero, none = fill(0.0), fill(-np.inf)
    for i in range(n):
        for t in range(T):
            for u in range(T):
                size = zero
                for j in range(d):
                    apart = load(data.X, (i * T + t) * d + j) - load(data.X, (i * T + u) * d + j)
                    size = most(magnitude(apart), size)
                store(space.drawn, (i * T + t) * T + u, where_greater(size, zero, zero, none))


@njit  # type: ignore[untyped-decorator]
def forward(data: Data, space: Space, sizes: Sizes, W: int) -> None:
    """Write rows, logits, attention, U and differences of rows of every layer."""
    n, T, d, L, H = sizes.n, sizes.T, sizes.d, sizes.L, sizes.H
    for layer in range(L):
        R = queries(sizes, layer)
        stride = (T // R) * d
        x = at(space.x, layer * n * T * d)
        for h in range(H):
            U = at(space.U, of_head(sizes, layer, h, 0, 0) * d)
            W_head = at(W, (layer * H + h) * d * d)
            product((U, stride, 1), (x, stride, 1), (W_head, 1, d), (n * R, d, d))
        for i in range(n):
            _mix(data, space, sizes, layer, i, R)
        if sizes.width > 0:
            expand(data, space, sizes, layer)
        for i in range(n if layer < L - 1 else 0):
            compare_rows(data, space, sizes, W, layer, i)


@njit  # type: ignore[untyped-decorator]
def _mix(data: Data, space: Space, sizes: Sizes, layer: int, i: int, R: int) -> None:
    """Write the first R rows of a sequence after attention."""
    n, T, d, H = sizes.n, sizes.T, sizes.d, sizes.H
    x, out = at(space.x, (layer * n + i) * T * d), at(space.x, ((layer + 1) * n + i) * T * d)
    if sizes.width > 0:
        out = at(space.mixed, (layer * n + i) * T * d)
    for j in range(R * d):
        store(out, j, load(x, j) if sizes.residual else fill(0.0))
    share = fill(1.0 / np.sqrt(H))
    for h in range(H):
        first = of_head(sizes, layer, h, i, 0)
        logits, s = at(space.logits, first * T), at(space.s, first * T)
        product((logits, T, 1), (at(space.U, first * d), d, 1), (x, 1, d), (R, T, d))
        _attend(data, space, sizes, first, i, R)
        if layer == 0:
            _find_top(space, sizes, first, i, R)
        else:
            for k in range(R):
                gather_away(space, sizes, layer, i, first + k)
        product((space.rows, d, 1), (s, T, 1), (x, d, 1), (R, d, T))
        mean = space.rows
        if sizes.values:
            V = at(data.V, (layer * H + h) * d * d)
            product((space.dW, d, 1), (mean, d, 1), (V, d, 1), (R, d, d))
            mean = space.dW
        for j in range(R * d):
            store(out, j, fma(share, load(mean, j), load(out, j)))
    for j in range(R * d if sizes.residual else 0):
        store(out, j, load(out, j) * fill(np.sqrt(0.5)))


@njit  # type: ignore[untyped-decorator]
def _attend(data: Data, space: Space, sizes: Sizes, first: int, i: int, R: int) -> None:
    """Write `top`, `inverse`, centred logits and attention of the rows of one head."""
    T = sizes.T
    for k in range(R):
        row, bias = at(space.logits, (first + k) * T), at(data.bias, (i * T + k) * T)
        s = at(space.s, (first + k) * T)
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
            store(s, t, e)
            sum_ = sum_ + e
        inverse = fill(1.0) / sum_
        store(space.inverse, first + k, inverse)
        store(space.top, first + k, place)
        for t in range(T):
            store(s, t, load(s, t) * inverse)


@njit  # type: ignore[untyped-decorator]
def _find_top(space: Space, sizes: Sizes, first: int, i: int, R: int) -> None:
    """Write x_top and the exponents of x_t - x_top in the first layer, whose rows are as drawn."""
    T, d = sizes.T, sizes.d
    x = at(space.x, i * T * d)
    for k in range(R):
        top, row = load(space.top, first + k), (first + k) * T
        for t in range(T):
            e, drawn = fill(-np.inf), at(space.drawn, (i * T + t) * T)
            for u in range(T):
                e = where_equal(top, fill(float(u)), load(drawn, u), e)
            store(space.size, row + t, e)
        for j in range(d):
            x_top = load(x, j)
            for t in range(1, T):
                x_top = where_equal(top, fill(float(t)), load(x, t * d + j), x_top)
            store(space.x_top, (first + k) * d + j, x_top)
