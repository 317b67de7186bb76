"""Steps of values, MLPs and head, compiled: each matrix along its own normalised gradient.

The formulas are those of `transformer.parameters`. Only the direction of a gradient counts:
adjoints are taken relative to the largest exponent of the rows that add to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import (
    any_greater,
    at,
    exp,
    fill,
    load,
    magnitude,
    most,
    root,
    store,
    where_greater,
)
from attnsvm.linalg.simd.matmul import dot, product
from attnsvm.transformer.compiled.layout import EVERY, Data, Sizes, Space, of_head, queries
from attnsvm.transformer.compiled.scaled import largest_entry

TINY = 1e-300

SQUARABLE = 1e-100
"""Largest entry of a matrix, or its inverse, from which on squares are ordinary numbers."""


@njit  # type: ignore[untyped-decorator]
def descend(V: int, G: int, count: int, eta: float) -> None:
    """Move V by eta along -G / ||G||_F.

    G is divided by its largest entry where its squares would not be ordinary numbers.
    """
    size, one = largest_entry(G, count), fill(1.0)
    high = where_greater(size, fill(1 / SQUARABLE), one / size, one)
    inverse = where_greater(size, fill(SQUARABLE), high, one / most(size, fill(TINY)))
    if any_greater(magnitude(inverse - one), fill(0.0)):
        for j in range(count):
            store(G, j, load(G, j) * inverse)
    step = fill(eta) / (root(dot(G, G, count)) + fill(TINY))
    for j in range(count):
        store(V, j, load(V, j) - step * load(G, j))


@njit  # type: ignore[untyped-decorator]
def keep_adjoints(space: Space, sizes: Sizes, layer: int, partners: int, width: int) -> None:
    """Write the adjoints g of the rows at hand at `r`, weighed for products with `partners`."""
    n, T, d = sizes.n, sizes.T, sizes.d
    step = T // queries(sizes, layer)
    for k in range(0, n * T, step):
        for j in range(k * d, (k + 1) * d):
            store(space.r, j, load(space.g, j))
    weigh(space.r, space.c, partners, (n * T, step, d, width))


@njit  # type: ignore[untyped-decorator]
def weigh(rows: int, exponents: int, partners: int, shape: Any) -> None:
    """Multiply every step-th row (count, d) by e^c / e^(largest c).

    The largest is over the rows that add to a sum of products with `partners` (count, width):
    neither of the two is zero. The others are not needed, and become zero if they are above it.
    """
    count, step, d, width = shape
    zero, none = fill(0.0), fill(-np.inf)
    largest = none
    for k in range(0, count, step):
        size = largest_entry(at(partners, k * width), width)
        size = where_greater(size, zero, largest_entry(at(rows, k * d), d), zero)
        largest = most(where_greater(size, zero, load(exponents, k), none), largest)
    for k in range(0, count, step):
        c = load(exponents, k)
        share = where_greater(c, largest, zero, exp(c - largest))
        for j in range(k * d, (k + 1) * d):
            store(rows, j, share * load(rows, j))


@njit  # type: ignore[untyped-decorator]
def pull_values(space: Space, sizes: Sizes, layer: int) -> None:
    """Write the gradient in V of every head, from the adjoints at `r`: sum_k m_k g_k^T."""
    n, T, d = sizes.n, sizes.T, sizes.d
    R = queries(sizes, layer)
    stride, means = (T // R) * d, space.back
    for h in range(sizes.H):
        for i in range(n):
            s = at(space.s, of_head(sizes, layer, h, i, 0) * T)
            x = at(space.x, (layer * n + i) * T * d)
            product((at(means, i * T * d), d, 1), (s, T, 1), (x, d, 1), (R, d, T))
        dV = at(space.dV, h * d * d)
        product((dV, d, 1), (means, 1, stride), (space.r, stride, 1), (d, d, n * R))


@njit  # type: ignore[untyped-decorator]
def move_mlp(data: Data, space: Space, sizes: Sizes, layer: int, eta: float) -> None:
    """Move M1 and M2 of a layer, from the adjoints of the rows at `r` and of the hidden units."""
    n, T, d, width = sizes.n, sizes.T, sizes.d, sizes.width
    step, first, active = T // queries(sizes, layer), layer * n * T, space.active
    count, y, hidden = n * T // step, at(space.mixed, first * d), at(space.hidden, first * width)
    weigh(active, space.c, active, (n * T, step, width, width))
    # sum_k y_k active_k^T and sum_k hidden_k r_k^T
    product((space.dM1, width, 1), (y, 1, step * d), (active, step * width, 1), (d, width, count))
    product((space.dM2, d, 1), (hidden, 1, step * width), (space.r, step * d, 1), (width, d, count))
    descend(at(data.M1, layer * d * width), space.dM1, d * width, eta)
    descend(at(data.M2, layer * d * width), space.dM2, d * width, eta)


@njit  # type: ignore[untyped-decorator]
def move_head(data: Data, space: Space, sizes: Sizes, eta: float) -> None:
    """Move the projections of the head."""
    d, k = sizes.d, sizes.k
    samples = sizes.n * sizes.T if sizes.readout == EVERY else sizes.n
    weigh(space.w, space.w_exponent, space.w, (samples, 1, k, k))
    product((space.dF, k, 1), (space.read, 1, d), (space.w, k, 1), (d, k, samples))
    descend(data.F, space.dF, d * k, eta)
