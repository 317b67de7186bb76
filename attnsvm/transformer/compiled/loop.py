"""Normalised gradient descent on all matrices of a network, compiled.

With adjoints g_k = dL/do_k of the rows o_k = (1 / sqrt(H)) sum_h V_h^T m^h_k of attention, where
m^h_k = sum_t s^h_kt x_t, and the P_k of `backward`,

    dL/dW_h = sum_k P^h_k x_k^T,    dL/dV_h = (1 / sqrt(H)) sum_k m^h_k g_k^T,

and with adjoints e_k of the rows (y_k + M_2^T a_k) / sqrt(2), a_k = relu(M_1^T y_k),

    dL/dM_2 = sum_k a_k e_k^T / sqrt(2),    dL/dM_1 = sum_k y_k (M_2 e_k * 1[a_k > 0])^T / sqrt(2).

Each matrix takes steps along its own gradient divided by its Frobenius norm: as the margins of the
predictions grow, gradients of all of them vanish like e^-margin, and steps in proportion to them
would stop while attention still moves. So only the direction of a gradient counts, and adjoints are
taken relative to the largest exponent of the rows that add to it.
"""

from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg.jit import compiled, subroutine
from attnsvm.linalg.simd.arithmetic import any_lane, exp, fill, maximum, sqrt, where
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import Workspace
from attnsvm.linalg.simd.matmul import add, inner, matmul, rescale
from attnsvm.optimizer.base import TINY
from attnsvm.transformer.compiled.copies import begin
from attnsvm.transformer.compiled.layout import (
    HEAD,
    MLP,
    VALUES,
    Data,
    Sizes,
    attending,
    is_zero,
    largest_entry,
    queries,
)
from attnsvm.transformer.compiled.passes import backward, forward, readout, through_mlp

SQUARABLE = 1e-100
"""Largest entry of a matrix, or its inverse, from which on squares are ordinary numbers."""


# --- gradients ------------------------------------------------------------------------------------


@subroutine
def _weigh(out: LaneArray, rows: LaneArray, exponents: LaneArray, partners: LaneArray) -> None:
    """Write every row (count, d) times e^c / e^(largest c), c its exponent.

    The largest is over the rows that add to a sum of products with `partners` (count, width):
    neither of the two is zero. The others are not needed, and become zero if they are above it.
    """
    count, d = rows.shape
    largest = fill(-np.inf)
    for k in range(count):
        counts = ~(is_zero(partners[k]) | is_zero(rows[k]))
        largest = maximum(where(counts, exponents[k], -np.inf), largest)
    for k in range(count):
        share = where(exponents[k] > largest, 0, exp(exponents[k] - largest))
        for j in range(d):
            out[k, j] = share * rows[k, j]


@njit(inline="always")
def _exponents_of(c: LaneArray, R: int) -> Any:
    """Return the exponents c (n, T) of the rows that attend."""
    return c.flat[:: c.shape[1] // R]


@subroutine
def _weighed(work: Workspace, R: int, partners: LaneArray) -> Any:
    """Return the adjoints g of the rows at hand, weighed for products with `partners`."""
    weighed, g = attending(work.g_below, R), attending(work.g, R)
    _weigh(weighed, g, _exponents_of(work.c, R), attending(partners, R))
    return weighed


@subroutine
def _in_values(work: Workspace, sizes: Sizes, layer: int, R: int) -> None:
    means = attending(work.back, R)
    for h in range(sizes.H):
        for i in range(sizes.n):
            matmul(work.back[i, :R], work.s[layer, h, i, :R], work.x[layer, i])
        matmul(work.dV[layer, h], means.T, _weighed(work, R, work.back))


@subroutine
def _differentiate(data: Data, work: Workspace, sizes: Sizes, W: LaneArray) -> None:
    """Write all gradients but the head's, from the adjoints g e^c of the last rows."""
    for layer in range(sizes.L - 1, -1, -1):
        R = queries(sizes, layer)
        if sizes.width > 0:
            hidden, active = work.hidden[layer], attending(work.active, R)
            if sizes.rates[MLP] > 0:
                weighed = _weighed(work, R, hidden)
                matmul(work.dM2[layer, 0], attending(hidden, R).T, weighed)
            through_mlp(data, work, layer, R)
            if sizes.rates[MLP] > 0:
                _weigh(active, active, _exponents_of(work.c, R), active)
                matmul(work.dM1[layer, 0], attending(work.mixed[layer], R).T, active)
        if sizes.rates[VALUES] > 0:
            _in_values(work, sizes, layer, R)
        backward(data, work, sizes, W, layer)
        weighed, rows = attending(work.back, R), attending(work.x[layer], R)
        for h in range(sizes.H):
            P, exponents = attending(work.P[layer, h], R), work.P_exponent[layer, h]
            _weigh(weighed, P, _exponents_of(exponents, R), rows)
            matmul(work.dW[layer, h], weighed.T, rows)


# --- steps ----------------------------------------------------------------------------------------


@subroutine
def _descend(V: LaneArray, G: LaneArray, eta: float) -> None:
    """Move V by eta along -G / ||G||_F.

    G is divided by its largest entry where its squares would not be ordinary numbers.
    """
    g = G.flat
    size = largest_entry(g)
    ordinary = (size > SQUARABLE) & (size < 1 / SQUARABLE)
    if any_lane(~ordinary):
        rescale(g, where(ordinary, 1, 1 / maximum(size, TINY)))
    add(V.flat, g, -eta / (sqrt(inner(g, g)) + TINY))


@subroutine
def _descend_all(data: Data, work: Workspace, sizes: Sizes, variables: Any, eta: float) -> None:
    """Move every trained matrix along its own normalised gradient."""
    (first, second), G = variables, work.dW
    if sizes.m > 0:
        for layer in range(sizes.L):
            for h in range(sizes.H):
                matmul(work.dK[layer, h], G[layer, h], second[layer, h])
                matmul(work.dQ[layer, h], G[layer, h].T, first[layer, h])
        G = work.dK
    parts = first, second, data.V, data.M1, data.M2, data.F
    gradients = G, work.dQ, work.dV, work.dM1, work.dM2, work.dF
    for k in range(len(parts)):
        part, G = parts[k], gradients[k]
        for layer in range(part.shape[0] if sizes.rates[k] > 0 else 0):
            for h in range(part.shape[1]):
                _descend(part[layer, h], G[layer, h], sizes.rates[k] * eta)


@subroutine
def _combine(work: Workspace, sizes: Sizes, variables: Any) -> Any:
    """Return W of every layer and head."""
    first, second = variables
    if sizes.m == 0:
        return first
    for layer in range(sizes.L):
        for h in range(sizes.H):
            matmul(work.W[layer, h], first[layer, h], second[layer, h].T)
    return work.W


@subroutine
def _of_block(data: Data, b: int) -> Data:
    return Data(
        data.X[b],
        data.bias[b],
        data.V[b],
        data.M1[b],
        data.M2[b],
        data.F[b],
        data.kinds[b],
        data.Y[b],
        data.weights[b],
    )


@compiled("training loop of a transformer", "60 s", nogil=True, error_model="numpy")
def descend_layers(
    first: int, last: int, data: Data, work: Workspace, variables: Any, etas: Any, sizes: Sizes
) -> None:
    """Take len(etas) steps of all layers and heads in the blocks first <= b < last.

    `variables` are W (blocks, L, H, d, d) twice, or K and Q (blocks, L, H, d, m), which are
    updated, as are V, M1, M2 and F where they are trained. With `sizes.with_adjoints` the adjoints
    g e^c of the last rows are given in `work`, adjoints and gradients are written, and no step is
    taken.
    """
    for b in range(first, last):
        here, of_block = _of_block(data, b), (variables[0][b], variables[1][b])
        begin(here.X, work)
        for step in range(len(etas)):
            W = _combine(work, sizes, of_block)
            forward(here, work, sizes, W)
            if not sizes.with_adjoints:
                readout(here, work, sizes)
                if sizes.rates[HEAD] > 0:
                    _weigh(work.w.rows, work.w.rows, work.w_exponent.flat, work.read.rows)
                    matmul(work.dF[0, 0], work.read.rows.T, work.w.rows)
            _differentiate(here, work, sizes, W)
            if not sizes.with_adjoints:
                _descend_all(here, work, sizes, of_block, etas[step])
