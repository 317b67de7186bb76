"""Normalised gradient descent on every layer and head, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from attnsvm.jit import compiled
from attnsvm.lanes import arithmetic, matmul
from attnsvm.lanes import loss as losses
from attnsvm.lanes.arithmetic import at, exp, fill, load, most, root, store
from attnsvm.lanes.matmul import dot, product
from attnsvm.transformer.compiled import backward as backwards
from attnsvm.transformer.compiled import copies, layout
from attnsvm.transformer.compiled import forward as forwards
from attnsvm.transformer.compiled.backward import backward, readout
from attnsvm.transformer.compiled.forward import begin, forward
from attnsvm.transformer.compiled.layout import EVERY, Data, Sizes, Space, queries

TINY = 1e-300

COMPILED_IN = arithmetic, losses, matmul, layout, copies, forwards, backwards
"""Modules that are compiled into the loop."""


@njit  # type: ignore[untyped-decorator]
def _step(space: Space, sizes: Sizes, layer: int, h: int, variables: Any, eta: float) -> None:
    """Move W, or K and Q, of one head by eta along its normalised gradient."""
    n, T, d, H, m = sizes.n, sizes.T, sizes.d, sizes.H, sizes.m
    R = queries(sizes, layer)
    count, stride = n * R, T // R  # the rows that attend, and how far apart they are
    exponents, P = at(space.P_exponent, h * n * T), at(space.P, h * n * T * d)
    largest = fill(-np.inf)
    for k in range(0, n * T, stride):
        largest = most(load(exponents, k), largest)
    for k in range(0, n * T, stride):
        share = exp(load(exponents, k) - largest)
        for j in range(k * d, (k + 1) * d):
            store(P, j, share * load(P, j))
    x, G = at(space.x, layer * n * T * d), space.dW
    product((G, d, 1), (P, 1, stride * d), (x, stride * d, 1), (d, d, count))
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


@compiled(*COMPILED_IN, nogil=True, error_model="numpy")
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
        begin(here, space, sizes)
        for step in range(len(etas)):
            W = _combine(space, sizes, own)
            forward(here, space, sizes, W)
            readout(here, space, sizes)
            for layer in range(L - 1, -1, -1):
                backward(here, space, sizes, W, layer)
                for h in range(H):
                    _step(space, sizes, layer, h, own, etas[step])
