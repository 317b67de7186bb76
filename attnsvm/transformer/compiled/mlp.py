"""The MLP after a layer, compiled: forwards, its differences of two rows, and backwards."""

from __future__ import annotations

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import (
    at,
    exp,
    fill,
    load,
    most,
    store,
    where_equal,
    where_greater,
)
from attnsvm.linalg.simd.matmul import product
from attnsvm.transformer.compiled.layout import Data, Sizes, Space, queries

NEAR_COPIES = -30.0
"""Rows whose log-difference is below this are on one side of every kink of a relu."""


@njit  # type: ignore[untyped-decorator]
def expand(data: Data, space: Space, sizes: Sizes, layer: int) -> None:
    """Write hidden units relu(M1^T y) and the rows (y + M2^T relu(M1^T y)) / sqrt(2)."""
    n, T, d, width = sizes.n, sizes.T, sizes.d, sizes.width
    R = queries(sizes, layer)
    step, first = T // R, layer * n * T
    y, hidden = at(space.mixed, first * d), at(space.hidden, first * width)
    out = at(space.x, (layer + 1) * n * T * d)
    M1, M2 = at(data.M1, layer * d * width), at(data.M2, layer * d * width)
    rows = (hidden, step * width, 1)
    product(rows, (y, step * d, 1), (M1, width, 1), (n * R, width, d))
    zero = fill(0.0)
    for row in range(0, n * T, step):
        for j in range(row * width, (row + 1) * width):
            value = load(hidden, j)
            store(hidden, j, where_greater(value, zero, value, zero))
    product((out, step * d, 1), rows, (M2, d, 1), (n * R, d, width))
    for row in range(0, n * T, step):
        for j in range(row * d, (row + 1) * d):
            store(out, j, (load(y, j) + load(out, j)) * fill(np.sqrt(0.5)))


@njit  # type: ignore[untyped-decorator]
def expand_difference(
    data: Data, space: Space, sizes: Sizes, layer: int, first: int, second: int
) -> None:
    """Turn the difference of two rows before the MLP, at `exact`, into that after it.

    `first` and `second` are their places among the rows of all layers.
    """
    d, width = sizes.d, sizes.width
    M1, M2 = at(data.M1, layer * d * width), at(data.M2, layer * d * width)
    exact, rise, added = space.exact, space.part, space.back
    zero, one, near = fill(0.0), fill(1.0), fill(NEAR_COPIES)
    exponent = load(exact, d)
    grown = exp(zero - most(exponent, near))
    product((rise, 1, 0), (M1, 1, width), (exact, 1, 0), (width, 1, d))
    for j in range(width):
        a, b = load(space.hidden, first * width + j), load(space.hidden, second * width + j)
        active = where_greater(a, zero, one, zero)
        sides, change = active + where_greater(b, zero, one, zero), load(rise, j)
        crossed = where_greater(exponent, near, (a - b) * grown, change * active)
        crossed = where_equal(sides, zero, zero, crossed)
        store(rise, j, where_equal(sides, one + one, change, crossed))
    product((added, 1, 0), (M2, 1, d), (rise, 1, 0), (d, 1, width))
    for j in range(d):
        store(exact, j, (load(exact, j) + load(added, j)) * fill(np.sqrt(0.5)))


@njit  # type: ignore[untyped-decorator]
def through_mlp(data: Data, space: Space, sizes: Sizes, layer: int) -> None:
    """Turn adjoints of the rows after the MLP into those before it; write those of hidden units."""
    n, T, d, width = sizes.n, sizes.T, sizes.d, sizes.width
    R = queries(sizes, layer)
    step = T // R
    g, active, hidden = space.g, space.active, at(space.hidden, layer * n * T * width)
    M1, M2 = at(data.M1, layer * d * width), at(data.M2, layer * d * width)
    rows, zero = (active, step * width, 1), fill(0.0)
    product(rows, (g, step * d, 1), (M2, 1, d), (n * R, width, d))
    for row in range(0, n * T, step):
        for j in range(row * width, (row + 1) * width):
            store(active, j, where_greater(load(hidden, j), zero, load(active, j), zero))
    product((space.back, step * d, 1), rows, (M1, 1, width), (n * R, d, width))
    for row in range(0, n * T, step):
        for j in range(row * d, (row + 1) * d):
            store(g, j, (load(g, j) + load(space.back, j)) * fill(np.sqrt(0.5)))
