"""The weights at the stops of the compiled loop, from its lanes: one instance after the other.

The loop updates coordinates V in bases of the tokens' and of the queries' span. A variable is a
times its start plus L (V - a V_start) R, so it is its start to the last bit without an update.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd.arithmetic import LANES


class Placement(NamedTuple):
    """Where the coordinates of a variable lie: start + left (coordinates - those of start) right.

    Arrays of all instances: start (B, p, q), its coordinates (B, a, b), left (B, p, a) and
    right (B, b, q). Left and right are empty where they are the identity. The coordinates of W are
    transposed.
    """

    start: Any
    coordinates: Any
    left: Any
    right: Any


@njit(inline="always")
def _add_product(C: Any, A: Any, B: Any) -> None:
    """C <- C + A B."""
    for i in range(A.shape[0]):
        for k in range(A.shape[1]):
            factor = A[i, k]
            for j in range(B.shape[1]):
                C[i, j] += factor * B[k, j]


@njit(inline="always")
def _displacement(moved: Any, entries: Any, lane: int, share: float, start: Any) -> None:
    """Write the entries of one lane less share times those of the start."""
    rows, columns = moved.shape
    for i in range(rows):
        for j in range(columns):
            moved[i, j] = entries[(i * columns + j) * LANES + lane] - share * start[i, j]


@njit(inline="always")
def _variable(out: Any, instance: int, moved: Any, share: float, placement: Placement) -> None:
    """Write share start + left moved right."""
    start, _, left, right = placement
    p, q = out.shape
    if right.size:
        product = np.zeros((moved.shape[0], q))
        _add_product(product, moved, right[instance])
    else:
        product = moved
    for i in range(p):
        for j in range(q):
            out[i, j] = share * start[instance, i, j]
    if left.size:
        _add_product(out, left[instance], product)
    else:
        for i in range(p):
            for j in range(q):
                out[i, j] += product[i, j]


@njit(inline="always")
def _is_finite(W: Any) -> bool:
    """Return whether all entries are finite."""
    differences, total = np.zeros(W.shape[1]), 0.0  # NaN where an entry is not finite
    for i in range(W.shape[0]):
        for j in range(W.shape[1]):
            differences[j] += W[i, j] - W[i, j]
    for difference in differences:
        total += difference
    return total == 0.0


@compiled(LANES, nogil=True, error_model="numpy", fastmath={"contract"})
def write_w(
    first: int, last: int, V: Any, shares: Any, placed: Placement, finite: Any, out: Any, at: int
) -> None:
    """Write W of the blocks first <= b < last at all stops.

    `V` are the coordinates in lanes, (stops, last - first, c r 8), `shares` those of the start,
    (stops, last - first, 8), and `out` the snapshots (B, S, d, d), from number `at` on.
    `finite` (B,) becomes False where an entry is not finite.
    """
    moved = np.empty(placed.coordinates.shape[1:])
    for stop in range(len(V)):
        for instance in range(LANES * first, min(LANES * last, len(out))):
            block, lane = instance // LANES - first, instance % LANES
            share = shares[stop, block, lane]
            _displacement(moved, V[stop, block], lane, share, placed.coordinates[instance])
            W = out[instance, at + stop]
            _variable(W, instance, moved.T.copy(), share, placed)
            finite[instance] &= _is_finite(W)


@compiled(LANES, nogil=True, error_model="numpy", fastmath={"contract"})
def write_kq(
    first: int, last: int, K: Any, Q: Any, shares: Any, placed: Any, factors: Any, finite: Any,
    out: Any, at: int,
) -> None:  # fmt: skip
    """Write K, Q and W = K Q^T of the blocks first <= b < last at all stops.

    `K` and `Q` are the coordinates in lanes, (stops, last - first, . m 8), `shares` those of the
    starts, (stops, last - first, 2 8), `placed` the placements of both and `factors` the arrays
    for both, (B, S or 1, d, m): in arrays for one stop the last one stays.
    """
    of_K, of_Q = placed
    moved_K, moved_Q = np.empty(of_K.coordinates.shape[1:]), np.empty(of_Q.coordinates.shape[1:])
    for stop in range(len(K)):
        for instance in range(LANES * first, min(LANES * last, len(out))):
            block, lane = instance // LANES - first, instance % LANES
            number = (at + stop) % factors[0].shape[1]
            share_K, share_Q = shares[stop, block, lane], shares[stop, block, LANES + lane]
            _displacement(moved_K, K[stop, block], lane, share_K, of_K.coordinates[instance])
            _displacement(moved_Q, Q[stop, block], lane, share_Q, of_Q.coordinates[instance])
            here_K, here_Q = factors[0][instance, number], factors[1][instance, number]
            _variable(here_K, instance, moved_K, share_K, of_K)
            _variable(here_Q, instance, moved_Q, share_Q, of_Q)
            W = out[instance, at + stop]
            W[:] = 0.0
            _add_product(W, here_K, here_Q.T.copy())
            finite[instance] &= _is_finite(W)
