"""Normalised gradient descent on every layer and head, compiled."""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, array
from attnsvm.linalg.simd import loss as losses
from attnsvm.linalg.simd import matmul as products
from attnsvm.linalg.simd.matmul import matmul
from attnsvm.transformer.compiled import backward as backwards
from attnsvm.transformer.compiled import copies, layout, mlp, parameters, scaled
from attnsvm.transformer.compiled import forward as forwards
from attnsvm.transformer.compiled.backward import backward, readout
from attnsvm.transformer.compiled.forward import begin, forward
from attnsvm.transformer.compiled.layout import Data, Sizes, Work, attending, queries
from attnsvm.transformer.compiled.mlp import through_mlp
from attnsvm.transformer.compiled.parameters import (
    descend,
    exponents_of,
    keep_adjoints,
    move_head,
    move_mlp,
    pull_values,
    weigh,
)

COMPILED_IN = (
    arithmetic, array, losses, products, layout, scaled, mlp, copies, forwards, backwards,
    parameters,
)  # fmt: skip
"""Modules that are compiled into the loop."""


@njit
def _step(work: Work, layer: int, h: int, R: int, variables: Any, eta: float) -> None:
    """Move W, or K and Q, of one head by eta along its normalised gradient P^T X."""
    P = attending(work.P[h], R)
    weigh(P, exponents_of(work.P_exponent[h], R), P)
    matmul(work.dW, P.T, attending(work.x[layer], R))
    first, second = variables[0][layer, h], variables[1][layer, h]
    if len(work.dK.flat) == 0:
        descend(first, work.dW, eta)
        return
    matmul(work.dK, work.dW, second)
    matmul(work.dQ, work.dW.T, first)
    descend(first, work.dK, eta)
    descend(second, work.dQ, eta)


@njit
def _combine(work: Work, sizes: Sizes, variables: Any) -> Any:
    """Return W of every layer and head."""
    first, second = variables
    if sizes.m == 0:
        return first
    for layer in range(sizes.L):
        for h in range(sizes.H):
            matmul(work.W[layer, h], first[layer, h], second[layer, h].T)
    return work.W


@njit
def _advance(data: Data, work: Work, sizes: Sizes, variables: Any, eta: float) -> None:
    """Take one step of a block; a part moves as soon as its old value is no longer needed."""
    slow = sizes.rate * eta
    W = _combine(work, sizes, variables)
    forward(data, work, sizes, W)
    readout(data, work, sizes)
    if sizes.train_head:
        move_head(data, work, slow)
    for layer in range(sizes.L - 1, -1, -1):
        R = queries(sizes, layer)
        if sizes.width > 0:
            hidden, M1, M2 = work.hidden[layer], data.M1[layer], data.M2[layer]
            if sizes.train_mlp:
                keep_adjoints(work, R, hidden)
            through_mlp(work.g, work.active, hidden, work.back, M1, M2, R)
            if sizes.train_mlp:
                move_mlp(data, work, sizes, layer, slow)
        if sizes.train_values:
            keep_adjoints(work, R, work.g)
            pull_values(work, sizes, layer)
        backward(data, work, sizes, W, layer)
        for h in range(sizes.H):
            _step(work, layer, h, R, variables, eta)
            if sizes.train_values:
                descend(data.V[layer, h], work.dV[h], slow)


@compiled(*COMPILED_IN, nogil=True, error_model="numpy")
def descend_layers(
    first: int, last: int, data: Data, work: Work, variables: Any, etas: Any, sizes: Sizes
) -> None:
    """Take len(etas) steps of all layers and heads in the blocks first <= b < last.

    `variables` are W (blocks, L, H, d, d) twice, or K and Q (blocks, L, H, d, m), which are
    updated, as are V, M1, M2 and F where they are trained.
    """
    for b in range(first, last):
        here = Data(
            data.X[b], data.bias[b], data.V[b], data.M1[b], data.M2[b], data.F[b], data.kinds,
            data.Y[b], data.weights[b],
        )  # fmt: skip
        of_block = variables[0][b], variables[1][b]
        begin(here.X, work.x[0], work.drawn)
        for step in range(len(etas)):
            _advance(here, work, sizes, of_block, etas[step])
