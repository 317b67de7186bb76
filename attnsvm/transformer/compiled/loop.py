"""Normalised gradient descent on every layer and head, compiled."""

from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, matmul
from attnsvm.linalg.simd import loss as losses
from attnsvm.linalg.simd.arithmetic import at
from attnsvm.linalg.simd.matmul import product
from attnsvm.transformer.compiled import backward as backwards
from attnsvm.transformer.compiled import copies, layout, mlp, parameters, scaled
from attnsvm.transformer.compiled import forward as forwards
from attnsvm.transformer.compiled.backward import backward, readout
from attnsvm.transformer.compiled.forward import begin, forward
from attnsvm.transformer.compiled.layout import EVERY, Data, Sizes, Space, queries
from attnsvm.transformer.compiled.mlp import through_mlp
from attnsvm.transformer.compiled.parameters import (
    descend,
    keep_adjoints,
    move_head,
    move_mlp,
    pull_values,
    weigh,
)

COMPILED_IN = (
    arithmetic, losses, matmul, layout, scaled, mlp, copies, forwards, backwards, parameters,
)  # fmt: skip
"""Modules that are compiled into the loop."""


@njit  # type: ignore[untyped-decorator]
def _step(space: Space, sizes: Sizes, layer: int, h: int, variables: Any, eta: float) -> None:
    """Move W, or K and Q, of one head by eta along its normalised gradient."""
    n, T, d, H, m = sizes.n, sizes.T, sizes.d, sizes.H, sizes.m
    R = queries(sizes, layer)
    count, stride = n * R, T // R  # the rows that attend, and how far apart they are
    P = at(space.P, h * n * T * d)
    weigh(P, at(space.P_exponent, h * n * T), P, (n * T, stride, d, d))
    x, G = at(space.x, layer * n * T * d), space.dW
    product((G, d, 1), (P, 1, stride * d), (x, stride * d, 1), (d, d, count))
    head = layer * H + h
    if m == 0:
        descend(at(variables[0], head * d * d), G, d * d, eta)
        return
    K, Q = at(variables[0], head * d * m), at(variables[1], head * d * m)
    product((space.dK, m, 1), (G, d, 1), (Q, m, 1), (d, m, d))
    product((space.dQ, m, 1), (G, 1, d), (K, m, 1), (d, m, d))
    descend(K, space.dK, d * m, eta)
    descend(Q, space.dQ, d * m, eta)


@njit  # type: ignore[untyped-decorator]
def _combine(space: Space, sizes: Sizes, variables: Any) -> Any:
    """Return the address of W of every layer and head."""
    d, m = sizes.d, sizes.m
    if m == 0:
        return variables[0]
    for head in range(sizes.L * sizes.H):
        W = at(space.W, head * d * d)
        K, Q = at(variables[0], head * d * m), at(variables[1], head * d * m)
        product((W, d, 1), (K, m, 1), (Q, 1, m), (d, d, m))
    return space.W


@njit  # type: ignore[untyped-decorator]
def _advance(data: Data, space: Space, sizes: Sizes, variables: Any, eta: float) -> None:
    """Take one step of a block; a part moves as soon as its old value is no longer needed."""
    d, H, slow = sizes.d, sizes.H, sizes.rate * eta
    W = _combine(space, sizes, variables)
    forward(data, space, sizes, W)
    readout(data, space, sizes)
    if sizes.train_head:
        move_head(data, space, sizes, slow)
    for layer in range(sizes.L - 1, -1, -1):
        if sizes.train_mlp:
            hidden = at(space.hidden, layer * sizes.n * sizes.T * sizes.width)
            keep_adjoints(space, sizes, layer, hidden, sizes.width)
        if sizes.width > 0:
            through_mlp(data, space, sizes, layer)
        if sizes.train_mlp:
            move_mlp(data, space, sizes, layer, slow)
        if sizes.train_values:
            keep_adjoints(space, sizes, layer, space.g, d)
            pull_values(space, sizes, layer)
        backward(data, space, sizes, W, layer)
        for h in range(H):
            _step(space, sizes, layer, h, variables, eta)
            if sizes.train_values:
                V = at(data.V, (layer * H + h) * d * d)
                descend(V, at(space.dV, h * d * d), d * d, slow)


@compiled(*COMPILED_IN, nogil=True, error_model="numpy")
def descend_layers(
    first: int, last: int, data: Data, space: Space, variables: Any, etas: Any, sizes: Sizes
) -> None:
    """Take len(etas) steps of all layers and heads in the blocks first <= b < last.

    `variables` are the addresses of W (L, H, d, d), or of K and Q (L, H, d, m), which are updated,
    as are V, M1, M2 and F where they are trained.
    """
    n, T, d, L, H, k, m = (
        sizes.n, sizes.T, sizes.d, sizes.L, sizes.H, sizes.k, sizes.m,
    )  # fmt: skip
    mlps = L * d * sizes.width
    samples = n * T if sizes.readout == EVERY else n
    for b in range(first, last):
        here = Data(
            at(data.X, b * n * T * d),
            at(data.bias, b * n * T * T),
            at(data.V, b * L * H * d * d if sizes.values else 0),
            at(data.M1, b * mlps),
            at(data.M2, b * mlps),
            at(data.F, b * d * k),
            data.kinds,
            at(data.Y, b * samples),
            at(data.weights, b * samples),
        )
        width = d * (m if m > 0 else d)
        own = (at(variables[0], b * L * H * width), at(variables[1], b * L * H * width))
        begin(here, space, sizes)
        for step in range(len(etas)):
            _advance(here, space, sizes, own, etas[step])
