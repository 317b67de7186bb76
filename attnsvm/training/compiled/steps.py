"""The steps of the compiled training loop, in the coordinates of the span of tokens and queries.

With an orthonormal basis E of the queries, z_i = sum_k R_ki E_k, the weights are
W = sum_k V_k E_k^T + a (the part of W0 outside of their span). So U_i = W z_i = sum_k R_ki V_k, and
the gradient in V_k is sum_i R_ki P_i: the loop does not need W itself. R is upper triangular where
n <= d. Likewise Q^T z_i = sum_k R_ki Q_k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg import EPS
from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, matmul, svd
from attnsvm.linalg.simd import loss as losses
from attnsvm.linalg.simd.arithmetic import at, exp, fill, fma, load, root, store, where_greater
from attnsvm.linalg.simd.matmul import dot, multiply
from attnsvm.training.compiled import directions
from attnsvm.training.compiled import gradient as gradients
from attnsvm.training.compiled.directions import remember, replaced
from attnsvm.training.compiled.gradient import (
    Instance,
    Sizes,
    Space,
    Update,
    gradient,
    of_block,
)

COMPILED_IN = (arithmetic, losses, matmul, svd, gradients, directions, EPS)
"""Objects that the digest of the compiled code covers besides this file."""

TINY = 1e-300
PANEL = 4
"""Number of columns of the triangle R that are processed together."""


@njit(inline="always")  # type: ignore[untyped-decorator]
def _copy(source: int, target: int, count: int) -> None:
    for j in range(count):
        store(target, j, load(source, j))


@njit(inline="always")  # type: ignore[untyped-decorator]
def _keep(kept: Any, entry: int, variables: Any, counts: Any, space: Space, sizes: Sizes) -> None:
    """Copy the variables, logits and margins of a block to an entry of the arrays `kept`."""
    sources = (*variables, space.logits, space.margin)
    sizes_of = (*counts, sizes.n * sizes.T, sizes.n)
    for j in range(len(kept)):
        _copy(sources[j], at(kept[j], entry * sizes_of[j]), sizes_of[j])


@njit(inline="always")  # type: ignore[untyped-decorator]
def _at_queries(C: int, V: int, R: int, sizes: Sizes, length: int, triangular: bool) -> None:
    """Write C_i = sum_k R_ki V_k, vectors with `length` entries."""
    for first in range(0, sizes.n, PANEL):
        last = min(first + PANEL, sizes.n)
        multiply(
            (at(C, first * length), 1, length),
            (V, 1, length),
            (at(R, first), sizes.n, 1),
            (length, last - first, min(last, sizes.c) if triangular else sizes.c),
        )


@njit(inline="always")  # type: ignore[untyped-decorator]
def from_queries(C: int, P: int, R: int, sizes: Sizes, length: int, triangular: bool) -> None:
    """Write C_k = sum_i R_ki P_i, vectors with `length` entries."""
    n = sizes.n
    for first in range(0, sizes.c, PANEL):
        last, before = min(first + PANEL, sizes.c), first if triangular else 0
        multiply(
            (at(C, first * length), 1, length),
            (at(P, before * length), 1, length),
            (at(R, first * n + before), 1, n),
            (length, last - first, n - before),
        )


@njit(inline="always")  # type: ignore[untyped-decorator]
def _weights(scale: Any, log_ridge: float) -> Any:
    """Return a common log-scale, the factor of the risk's and that of the ridge's gradient."""
    if log_ridge == -np.inf:
        return scale, fill(1.0), fill(0.0)
    ridge = fill(log_ridge)
    common = where_greater(scale, ridge, scale, ridge)
    return common, exp(scale - common), exp(ridge - common)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _descend(
    V: int, G: int, shape: Any, outside: Any, weights: Any, momentum: Any, eta: float,
    space: Space, update: Update,
) -> None:  # fmt: skip
    """V <- V - step (risk G + ridge V), and likewise the part outside of the span, a times V0's.

    G, which is overwritten, has `shape` (number of vectors, their length); `outside` is (address
    of a, address of the start's squared norm), `momentum` the addresses of M and its log-scale.
    Directions other than the gradient's and momenta have no part outside of the span.
    """
    (a, square0), (scale, risk, ridge) = outside, weights
    share, count = load(a, 0), shape[0] * shape[1]
    if update.log_ridge > -np.inf:
        for j in range(count):
            store(G, j, fma(risk, load(G, j), ridge * load(V, j)))
    if update.beta > 0:
        scale = remember(G, momentum[0], momentum[1], count, scale, update)
    factor = replaced(G, shape, update.direction, (space.copy, space.right, space.sigma))
    if factor > 0:
        for j in range(count):
            store(V, j, load(V, j) - fill(eta * factor) * load(G, j))
        return
    rest = ridge * share
    square = fma(rest * rest, load(square0, 0), dot(G, G, count))
    if update.normalised:
        step = fill(eta) / (root(square) + fill(TINY if update.exact else EPS))
    else:
        step = fill(eta) * where_greater(scale, fill(708.0), fill(np.inf), exp(scale))
    for j in range(count):
        store(V, j, load(V, j) - step * load(G, j))
    store(a, 0, share * (fill(1.0) - step * ridge))


@njit(inline="always")  # type: ignore[untyped-decorator]
def gradient_w(here: Instance, V: int, space: Space, sizes: Sizes, update: Update) -> Any:
    """Write H, the gradient in V, of a block; return its log-scale."""
    r = sizes.r
    _at_queries(space.U, V, here.R, sizes, r, update.triangular)
    scale = gradient(here, space, sizes, update)
    from_queries(space.H, space.P, here.R, sizes, r, update.triangular)
    return scale


@njit(inline="always")  # type: ignore[untyped-decorator]
def gradient_kq(here: Instance, K: int, Q: int, space: Space, sizes: Sizes, update: Update) -> Any:
    """Write G and H, the gradients in K and Q, of a block; return their log-scale."""
    n, _, r, _, _, m = sizes
    U, P, A, B = space.U, space.P, space.A, space.B
    _at_queries(B, Q, here.R, sizes, m, update.triangular)
    multiply((U, 1, r), (K, m, 1), (B, 1, m), (r, n, m))
    scale = gradient(here, space, sizes, update)
    multiply((A, 1, m), (K, 1, m), (P, 1, r), (m, n, r))
    from_queries(space.H, A, here.R, sizes, m, update.triangular)
    multiply((space.G, 1, m), (B, 1, m), (P, r, 1), (m, r, n))
    return scale


@compiled(*COMPILED_IN, nogil=True, error_model="numpy")
def train_w(
    first: int, last: int, data: Instance, space: Space, variables: Any, kept: Any, etas: Any,
    stops: Any, sizes: Sizes, update: Update,
) -> None:  # fmt: skip
    """Take len(etas) steps of W in the blocks first <= b < last.

    `variables` are the addresses of V and a, which are updated, of the squared norm of W0 outside
    of the span of the queries, and of the momentum and its log-scale. After as many steps as each
    of the rising `stops` says, V, a, the logits (n, T) and margins (n,) are copied to the addresses
    in `kept`, of arrays with an entry for each stop and block.
    """
    _, _, r, _, c, _ = sizes
    for b in range(first, last):
        here = of_block(data, sizes, b)
        V, a, square0, M, scale_M = variables
        V, a = at(V, b * c * r), at(a, b)
        outside, momentum = (a, at(square0, b)), (at(M, b * c * r), at(scale_M, b))
        taken = 0
        for k in range(len(etas) + 1):
            scale = gradient_w(here, V, space, sizes, update)
            if taken < len(stops) and stops[taken] == k:
                _keep(kept, taken * (last - first) + b - first, (V, a), (c * r, 1), space, sizes)
                taken += 1
            if k < len(etas):
                weights = _weights(scale, update.log_ridge)
                _descend(V, space.H, (c, r), outside, weights, momentum, etas[k], space, update)


@compiled(*COMPILED_IN, nogil=True, error_model="numpy")
def train_kq(
    first: int, last: int, data: Instance, space: Space, variables: Any, kept: Any, etas: Any,
    stops: Any, sizes: Sizes, update: Update,
) -> None:  # fmt: skip
    """Take len(etas) steps of (K, Q) in the blocks first <= b < last.

    `variables` are the addresses of K in the span of the tokens, Q in that of the queries and a of
    both, which are updated, of the squared norms of K0 and Q0 outside of these spans, and of the
    momentum of K, that of Q, and the log-scales of both. `kept` and `stops` are as for `train_w`,
    with K and Q in place of V.
    """
    _, _, r, _, c, m = sizes
    for b in range(first, last):
        here = of_block(data, sizes, b)
        K, Q, a, square0, M_K, M_Q, scale_M = variables
        K, Q, a = at(K, b * r * m), at(Q, b * c * m), at(a, 2 * b)
        outside_K, outside_Q = (a, at(square0, 2 * b)), (at(a, 1), at(square0, 2 * b + 1))
        momentum_K = at(M_K, b * r * m), at(scale_M, 2 * b)
        momentum_Q = at(M_Q, b * c * m), at(scale_M, 2 * b + 1)
        taken = 0
        for k in range(len(etas) + 1):
            scale = gradient_kq(here, K, Q, space, sizes, update)
            if taken < len(stops) and stops[taken] == k:
                at_stop = taken * (last - first) + b - first
                _keep(kept, at_stop, (K, Q, a), (r * m, c * m, 2), space, sizes)
                taken += 1
            if k < len(etas):
                weights, eta, G, H = _weights(scale, update.log_ridge), etas[k], space.G, space.H
                _descend(K, G, (r, m), outside_K, weights, momentum_K, eta, space, update)
                _descend(Q, H, (c, m), outside_Q, weights, momentum_Q, eta, space, update)
