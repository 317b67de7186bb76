"""Steps of values, MLPs and head, compiled: each matrix along its own normalised gradient.

The formulas are those of `transformer.parameters`. Only the direction of a gradient counts:
adjoints are taken relative to the largest exponent of the rows that add to it.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import any_lane, exp, fill, maximum, sqrt, where
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.matmul import inner, matmul
from attnsvm.transformer.compiled.layout import Data, Sizes, Work, attending, queries
from attnsvm.transformer.compiled.scaled import largest_entry

TINY = 1e-300

SQUARABLE = 1e-100
"""Largest entry of a matrix, or its inverse, from which on squares are ordinary numbers."""


@njit
def descend(V: LaneArray, G: LaneArray, eta: float) -> None:
    """Move V by eta along -G / ||G||_F.

    G is divided by its largest entry where its squares would not be ordinary numbers.
    """
    v, g = V.flat, G.flat
    size = largest_entry(g)
    ordinary = (size > SQUARABLE) & (size < 1 / SQUARABLE)
    if any_lane(~ordinary):
        inverse = where(ordinary, 1, 1 / maximum(size, fill(TINY)))
        for j in range(len(g)):
            g[j] *= inverse
    step = eta / (sqrt(inner(g, g)) + TINY)
    for j in range(len(v)):
        v[j] -= step * g[j]


@njit
def weigh(rows: LaneArray, exponents: LaneArray, partners: LaneArray) -> None:
    """Multiply every row (count, d) by e^c / e^(largest c), c its exponent.

    The largest is over the rows that add to a sum of products with `partners` (count, width):
    neither of the two is zero. The others are not needed, and become zero if they are above it.
    """
    count, d = rows.shape
    largest = fill(-np.inf)
    for k in range(count):
        counts = (largest_entry(partners[k]) > 0) & (largest_entry(rows[k]) > 0)
        largest = maximum(where(counts, exponents[k], -np.inf), largest)
    for k in range(count):
        share = where(exponents[k] > largest, 0, exp(exponents[k] - largest))
        for j in range(d):
            rows[k, j] *= share


@njit
def keep_adjoints(work: Work, R: int, partners: LaneArray) -> None:
    """Write the adjoints g of the rows at hand at `r`, weighed for products with `partners`."""
    rows = attending(work.r[0], R)
    rows[:] = attending(work.g, R)
    weigh(rows, exponents_of(work.c, R), attending(partners, R))


@njit(inline="always")
def exponents_of(c: LaneArray, R: int) -> Any:
    """Return the exponents c (n, T) of the rows that attend."""
    return c.flat[:: c.shape[1] // R]


@njit
def pull_values(work: Work, sizes: Sizes, layer: int) -> None:
    """Write the gradient in V of every head, from the adjoints at `r`: sum_k m_k g_k^T."""
    R = queries(sizes, layer)
    means = attending(work.back, R)
    for h in range(sizes.H):
        for i in range(sizes.n):
            matmul(work.back[i, :R], work.s[layer, h, i, :R], work.x[layer, i])
        matmul(work.dV[h], means.T, attending(work.r[0], R))


@njit
def move_mlp(data: Data, work: Work, sizes: Sizes, layer: int, eta: float) -> None:
    """Move M1 and M2 of a layer, from the adjoints of the rows at `r` and of the hidden units."""
    R = queries(sizes, layer)
    active, hidden = attending(work.active, R), attending(work.hidden[layer], R)
    weigh(active, exponents_of(work.c, R), active)
    matmul(work.dM1, attending(work.mixed[layer], R).T, active)  # sum_k y_k active_k^T
    matmul(work.dM2, hidden.T, attending(work.r[0], R))  # sum_k hidden_k r_k^T
    descend(data.M1[layer], work.dM1, eta)
    descend(data.M2[layer], work.dM2, eta)


@njit
def move_head(data: Data, work: Work, eta: float) -> None:
    """Move the projections of the head."""
    w = work.w.rows
    weigh(w, work.w_exponent.flat, w)
    matmul(work.dF, work.read.rows.T, w)
    descend(data.F, work.dF, eta)
