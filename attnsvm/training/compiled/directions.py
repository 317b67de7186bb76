"""The direction of a step, from the gradient or its momentum, in compiled code."""

from typing import Any, NamedTuple

from numba import njit

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd.arithmetic import exp, fill, maximum, sqrt, where
from attnsvm.linalg.simd.array import LaneArray, reshaped
from attnsvm.linalg.simd.matmul import inner, matmul
from attnsvm.linalg.simd.svd import EPS, svd_columns
from attnsvm.optimizer.base import TINY
from attnsvm.optimizer.steepest import COEFFICIENTS

PLAIN, FROBENIUS, MAX, L1, SPECTRAL, NUCLEAR, MUON = range(7)
"""Codes of the rules: the gradient itself, the steepest direction in a norm, Muon's direction."""

CODES = {"frobenius": FROBENIUS, "max": MAX, "l1": L1, "spectral": SPECTRAL, "nuclear": NUCLEAR}
"""Code of the steps in each norm."""


class Direction(NamedTuple):
    """A direction other than the gradient's: code of its rule, Muon's iterations, and a factor."""

    rule: int
    iterations: int
    factor: float


@njit
def replaced(G: LaneArray, direction: Direction | None, work: Any) -> float:
    """Overwrite G by its direction and return the direction's factor; 0 without a direction.

    `work` is as long as G, its right singular vectors and its singular values. For None numba drops
    the rest: loops without a direction hold none of the rules, which take longer to compile than
    all else.
    """
    if direction is None:
        return 0.0
    copy, right, sigma = work
    steepest(G, direction.rule, direction.iterations, copy, right, sigma)
    return direction.factor


@njit(inline="always")
def remember(G: LaneArray, M: LaneArray, scale_M: LaneArray, scale: Any, update: Any) -> Any:
    """M <- beta M + G, both with log-scales; overwrite G by the momentum, return its log-scale."""
    older = scale_M[0] + update.log_beta
    common = maximum(older, scale)
    old, new, beta = exp(older - common), exp(scale - common), fill(update.beta)
    G, M = G.flat, M.flat
    for j in range(len(G)):
        g = new * G[j]
        m = old * M[j] + g
        M[j] = m
        G[j] = beta * m + g if update.nesterov else m
    scale_M[0] = common
    return common


@compiled(nogil=True, error_model="numpy")
def steepest(
    G: LaneArray, rule: int, iterations: int, copy: LaneArray, right: LaneArray, sigma: LaneArray
) -> None:
    """Overwrite G by its steepest direction, Muon's by `iterations` of Newton and Schulz.

    The work arrays are as long as G, its right singular vectors and its singular values.
    """
    if rule == MAX:
        g = G.flat
        for j in range(len(g)):
            g[j] = _sign(g[j])
    elif rule == L1:  # the first one of several largest entries
        g, largest, place = G.flat, fill(0.0), fill(-1.0)
        for j in range(len(g)):
            size = abs(g[j])
            place = where(size > largest, j, place)
            largest = maximum(size, largest)
        for j in range(len(g)):
            g[j] = where(place == j, _sign(g[j]), 0)
    else:
        tall = G.T.T if G.shape[0] >= G.shape[1] else G.T  # of the same type; (p, q) with p >= q
        p, q = tall.shape
        if rule == MUON:
            _newton_schulz(tall, iterations, copy, reshaped(right, (q, q)))
        else:
            U, V = reshaped(copy, (q, p)), reshaped(right, (q, q))
            _singular(tall, rule == NUCLEAR, U, V, sigma[:q])


@njit(inline="always")
def _sign(x: Any) -> Any:
    """Return 1, -1, 0 or NaN."""
    return where(x > 0, 1, where(x < 0, -1, x - x))


@njit(inline="always")
def _singular(G: LaneArray, leading: bool, U: LaneArray, V: LaneArray, sigma: LaneArray) -> None:
    """Overwrite G by U V^T on its range, or by its `leading` u v^T alone."""
    p, q = G.shape
    U[:] = G.T
    svd_columns(U, V, sigma)
    for j in range(1, q):
        kept = where(sigma[j] > sigma[0] * (p * EPS), 1, 0)
        for i in range(p):
            U[j, i] *= kept
    rank = 1 if leading else q
    matmul(G, U[:rank].T, V[:rank])


@njit(inline="always")
def _newton_schulz(G: LaneArray, iterations: int, rest: LaneArray, A: LaneArray) -> None:
    """Overwrite G by `newton_schulz` of it, of `attnsvm.optimizer.steepest`."""
    p, q = G.shape
    square, product = reshaped(rest, (q, q)), reshaped(rest, (p, q))
    a, b, c = COEFFICIENTS
    norm = fill(0.0)
    for i in range(p):
        norm += inner(G[i], G[i])
    inverse = 1 / (sqrt(norm) + TINY)
    for i in range(p):
        for j in range(q):
            G[i, j] *= inverse
    for _ in range(iterations):
        matmul(A, G.T, G)
        matmul(square, A, A)
        for i in range(q):
            for j in range(q):
                A[i, j] = b * A[i, j] + c * square[i, j]
        matmul(product, G, A)
        for i in range(p):
            for j in range(q):
                G[i, j] = a * G[i, j] + product[i, j]
