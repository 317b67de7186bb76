"""The steps of the compiled training loop, in the coordinates of the span of tokens and queries.

With an orthonormal basis E of the queries, z_i = sum_k R_ki E_k, the weights are
W = sum_k V_k E_k^T + a (the part of W0 outside of their span). So U_i = W z_i = sum_k R_ki V_k, and
the gradient in V_k is sum_i R_ki P_i: the loop does not need W itself. R is upper triangular where
n <= d. Likewise Q^T z_i = sum_k R_ki Q_k.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from attnsvm.linalg import EPS
from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, array, svd
from attnsvm.linalg.simd import loss as losses
from attnsvm.linalg.simd import matmul as products
from attnsvm.linalg.simd.arithmetic import exp, fill, maximum, sqrt, where
from attnsvm.linalg.simd.array import LaneArray, arrays, reshaped
from attnsvm.linalg.simd.matmul import inner, matmul, matmul_inline
from attnsvm.training.compiled import directions
from attnsvm.training.compiled import gradient as gradients
from attnsvm.training.compiled.directions import remember, replaced
from attnsvm.training.compiled.gradient import Instance, Update, Work, gradient, of_block

COMPILED_IN = (arithmetic, array, losses, products, svd, gradients, directions, EPS)
"""Objects that the digest of the compiled code covers besides this file."""

TINY = 1e-300
PANEL = 4
"""Number of columns of the triangle R that are processed together."""


@arrays
class Variable(NamedTuple):
    """W^T, K or Q of all blocks, each array with an axis more in front.

    It is `share` (1,) times its `start` (p, q) plus left (V - share V0) right, so it is its start
    to the last bit without an update. Coordinates V (a, b), which are updated as the share is,
    those V0 of the start, left (p, a) and right (b, q), which are empty where they are the
    identity. `square` (1,) is the squared norm of what of the start is outside of the spans.
    Momentum M (a, b) and its log-scale (1,), empty where there is none.
    """

    V: LaneArray
    share: LaneArray
    square: LaneArray
    M: LaneArray
    scale_M: LaneArray
    start: LaneArray
    V0: LaneArray
    left: LaneArray
    right: LaneArray


class Kept(NamedTuple):
    """What is kept at each stop of each block: variables (p, q), W or W^T, logits and margins."""

    variables: Any  # arrays, as many as there are variables
    W: LaneArray  # of (K, Q); else empty
    logits: LaneArray
    margins: LaneArray


@njit(inline="always")
def _at_queries(C: LaneArray, V: LaneArray, R: LaneArray, triangular: bool) -> None:
    """Write C_i = sum_k R_ki V_k, (n, .), of V (c, .)."""
    c, n = R.shape
    for first in range(0, n, PANEL):
        last = min(first + PANEL, n)
        end = min(last, c) if triangular else c
        matmul_inline(C[first:last].T, V[:end].T, R[:end, first:last])


@njit(inline="always")
def _from_queries(C: LaneArray, P: LaneArray, R: LaneArray, triangular: bool) -> None:
    """Write C_k = sum_i R_ki P_i, (c, .), of P (n, .)."""
    for first in range(0, len(R), PANEL):
        last, before = min(first + PANEL, len(R)), first if triangular else 0
        matmul_inline(C[first:last].T, P[before:].T, R[first:last, before:].T)


def gradients_in(V: Any, here: Instance, work: Work, update: Update) -> Any:
    """Write the gradients in the coordinates of a block; return them and their log-scale.

    `V` is (V,) (c, r), of W^T, or (K, Q), (r, m) and (c, m).
    """
    raise NotImplementedError("only in compiled code")


@overload(gradients_in, inline="always")
def _gradients_in(V, here, work, update):  # type: ignore[no-untyped-def]  # numba compares names
    def of_W(V, here, work, update):  # type: ignore[no-untyped-def]
        _at_queries(work.U, V[0], here.R, update.triangular)
        scale = gradient(here, work, update)
        _from_queries(work.H, work.P, here.R, update.triangular)
        return (work.H,), scale

    def of_KQ(V, here, work, update):  # type: ignore[no-untyped-def]
        K, Q = V
        _at_queries(work.B, Q, here.R, update.triangular)
        matmul_inline(work.U.T, K, work.B.T)
        scale = gradient(here, work, update)
        matmul_inline(work.A.T, K.T, work.P.T)
        _from_queries(work.H, work.A, here.R, update.triangular)
        matmul_inline(work.G.T, work.B.T, work.P)
        return (work.G, work.H), scale

    return of_W if len(V) == 1 else of_KQ


def coordinates(variables: Any, b: int) -> Any:
    """Return the coordinates of every variable in block b."""
    raise NotImplementedError("only in compiled code")


@overload(coordinates, inline="always")
def _coordinates(variables, b):  # type: ignore[no-untyped-def]  # numba compares names
    if len(variables) == 1:
        return lambda variables, b: (variables[0].V[b],)
    return lambda variables, b: (variables[0].V[b], variables[1].V[b])


@njit(inline="always")
def _factors(scale: Any, log_ridge: float) -> Any:
    """Return a common log-scale, the factor of the risk's and that of the ridge's gradient."""
    if log_ridge == -np.inf:
        return scale, fill(1.0), fill(0.0)
    common = maximum(scale, fill(log_ridge))
    return common, exp(scale - common), exp(log_ridge - common)


@njit(inline="always")
def _descend(
    V: LaneArray, G: LaneArray, outside: Any, momentum: Any, factors: Any, eta: float, space: Any,
    update: Update,
) -> None:  # fmt: skip
    """V <- V - step (risk G + ridge V), and likewise the part outside of the span, a times V0's.

    G is overwritten; `outside` is a and the squared norm of V0's part, `momentum` M and its
    log-scale. Directions other than the gradient's and momenta have no part outside of the span.
    """
    (share, square0), (M, scale_M), (scale, risk, ridge) = outside, momentum, factors
    v, g = V.flat, G.flat
    if update.log_ridge > -np.inf:
        for j in range(len(v)):
            g[j] = risk * g[j] + ridge * v[j]
    if update.beta > 0:
        scale = remember(G, M, scale_M, scale, update)
    factor = replaced(G, update.direction, space)
    if factor > 0:
        for j in range(len(v)):
            v[j] -= eta * factor * g[j]
        return
    rest = ridge * share[0]
    square = rest * rest * square0[0] + inner(g, g)
    if update.normalised:
        step = eta / (sqrt(square) + (TINY if update.exact else EPS))
    else:
        step = eta * where(scale > 708, np.inf, exp(scale))
    for j in range(len(v)):
        v[j] -= step * g[j]
    share[0] *= 1 - step * ridge


@njit(inline="always")
def _descend_in_block(
    variable: Variable, b: int, G: LaneArray, factors: Any, eta: float, work: Work, update: Update
) -> None:
    outside, momentum = (
        (variable.share[b], variable.square[b]),
        (variable.M[b], variable.scale_M[b]),
    )
    space = work.copy, work.right, work.sigma
    _descend(variable.V[b], G, outside, momentum, factors, eta, space, update)


@njit
def _write(out: LaneArray, variable: Variable, b: int, moved: LaneArray, right: LaneArray) -> None:
    """Write share start + left (V - share V0) right of a block."""
    V, V0, share = variable.V[b], variable.V0[b].flat, variable.share[b, 0]
    start, whole, source = variable.start[b].flat, out.flat, V.flat
    for j in range(len(source)):
        moved[j] = source[j] - share * V0[j]
    product = reshaped(moved, V.shape)
    if variable.right.shape[1]:
        product = reshaped(right, (len(V), out.shape[1]))
        matmul(product, reshaped(moved, V.shape), variable.right[b])
    if variable.left.shape[1]:
        matmul(out, variable.left[b], product)
    else:
        out[:] = product
    for j in range(len(whole)):
        whole[j] += share * start[j]


@compiled(*COMPILED_IN, nogil=True, error_model="numpy")
def take_steps(
    first: int, last: int, data: Instance, work: Work, variables: Any, kept: Kept, etas: Any,
    stops: Any, update: Update,
) -> None:  # fmt: skip
    """Take len(etas) steps of the variables in the blocks first <= b < last.

    After as many steps as each of the rising `stops` says, variables, logits and margins are copied
    to the arrays `kept`, which have an entry for each stop and block.
    """
    for b in range(first, last):
        here, V, taken = of_block(data, b), coordinates(variables, b), 0
        for k in range(len(etas) + 1):
            G, scale = gradients_in(V, here, work, update)
            if taken < len(stops) and stops[taken] == k:
                kept.logits[taken, b - first] = work.logits
                kept.margins[taken, b - first] = work.margin
                K, Q = kept.variables[0][taken, b - first], kept.variables[-1][taken, b - first]
                _write(K, variables[0], b, work.moved, work.product)
                if len(variables) == 2:
                    _write(Q, variables[-1], b, work.moved, work.product)
                    matmul(kept.W[taken, b - first], K, Q.T)
                taken += 1
            if k < len(etas):
                factors = _factors(scale, update.log_ridge)
                _descend_in_block(variables[0], b, G[0], factors, etas[k], work, update)
                if len(variables) == 2:
                    _descend_in_block(variables[-1], b, G[-1], factors, etas[k], work, update)
