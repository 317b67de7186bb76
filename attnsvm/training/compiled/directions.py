"""The direction of a step, from the gradient or its momentum, in compiled code."""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit, types
from numba.extending import overload

from attnsvm.linalg.jit import compiled
from attnsvm.linalg.simd import arithmetic, matmul
from attnsvm.linalg.simd import svd as decomposition
from attnsvm.linalg.simd.arithmetic import (
    exp,
    fill,
    fma,
    load,
    magnitude,
    most,
    root,
    store,
    where_equal,
    where_greater,
)
from attnsvm.linalg.simd.matmul import dot, multiply
from attnsvm.linalg.simd.svd import EPS, decompose_columns
from attnsvm.optimizer.first_order import TINY
from attnsvm.optimizer.muon import COEFFICIENTS

PLAIN, FROBENIUS, MAX, L1, SPECTRAL, NUCLEAR, MUON = range(7)
"""Codes of the rules: the gradient itself, the steepest direction in a norm, Muon's direction."""

CODES = {"frobenius": FROBENIUS, "max": MAX, "l1": L1, "spectral": SPECTRAL, "nuclear": NUCLEAR}
"""Code of the steps in each norm."""


class Direction(NamedTuple):
    """A direction other than the gradient's: code of its rule, Muon's iterations, and a factor."""

    rule: int
    iterations: int
    factor: float


def replaced(G: int, shape: Any, direction: Direction | None, space: Any) -> float:
    """Overwrite G by its direction and return the direction's factor; 0 without a direction.

    The type of `direction` decides what is compiled: loops without one hold none of the rules,
    which take longer to compile than all the rest.
    """
    raise NotImplementedError("only in compiled code")


@overload(replaced)
def _replaced(G, shape, direction, space):  # type: ignore[no-untyped-def]  # numba compares names
    if isinstance(direction, types.NoneType):
        return lambda G, shape, direction, space: 0.0

    def by_rule(G, shape, direction, space):  # type: ignore[no-untyped-def]
        steepest(G, shape[0], shape[1], direction.rule, direction.iterations, space)
        return direction.factor

    return by_rule


@njit(inline="always")
def remember(G: int, M: int, scale_M: int, count: int, scale: Any, update: Any) -> Any:
    """M <- beta M + G, both with log-scales; overwrite G by the momentum, return its log-scale."""
    older = load(scale_M, 0) + fill(update.log_beta)
    common = most(older, scale)
    old, new, beta = exp(older - common), exp(scale - common), fill(update.beta)
    for j in range(count):
        g = new * load(G, j)
        m = fma(old, load(M, j), g)
        store(M, j, m)
        store(G, j, fma(beta, m, g) if update.nesterov else m)
    store(scale_M, 0, common)
    return common


@compiled(arithmetic, matmul, decomposition, *COEFFICIENTS, TINY, nogil=True, error_model="numpy")
def steepest(G: int, vectors: int, length: int, rule: int, iterations: int, space: Any) -> None:
    """Overwrite G, that is `vectors` vectors of `length` entries, by its steepest direction.

    Muon's is that of so many `iterations` of Newton and Schulz.

    `space` are addresses of a copy of G, of its right singular vectors and singular values.
    """
    if rule == MAX:
        _signs(G, vectors * length)
    elif rule == L1:
        _largest_entry(G, vectors * length)
    elif rule == MUON:
        _newton_schulz(G, vectors, length, iterations, space)
    else:
        _singular(G, vectors, length, rule == NUCLEAR, space)


@njit(inline="always")
def _sign(x: Any) -> Any:
    """Return 1, -1, 0 or NaN."""
    zero = fill(0.0)
    return where_greater(x, zero, fill(1.0), where_greater(zero, x, fill(-1.0), x - x))


@njit(inline="always")
def _signs(G: int, count: int) -> None:
    for j in range(count):
        store(G, j, _sign(load(G, j)))


@njit(inline="always")
def _largest_entry(G: int, count: int) -> None:
    """Overwrite G by the sign of its largest entry, the first one of several, and zeros."""
    largest, place = fill(0.0), fill(-1.0)
    for j in range(count):
        size = magnitude(load(G, j))
        place = where_greater(size, largest, fill(float(j)), place)
        largest = most(size, largest)
    for j in range(count):
        store(G, j, where_equal(place, fill(float(j)), _sign(load(G, j)), fill(0.0)))


@njit(inline="always")
def _singular(G: int, vectors: int, length: int, leading: bool, space: Any) -> None:
    """Overwrite G by U V^T on its range, or by its `leading` u v^T alone."""
    U, V, sigma = space
    wide = vectors > length  # of G and its transpose, the one with fewer columns is decomposed
    p, q = (vectors, length) if wide else (length, vectors)
    down, right = (length, 1) if wide else (1, length)
    for j in range(q):
        for i in range(p):
            store(U, j * p + i, load(G, i * down + j * right))
    decompose_columns(U, V, sigma, p, q)
    floor = load(sigma, 0) * fill(p * EPS)
    for j in range(1, q):
        kept = where_greater(load(sigma, j), floor, fill(1.0), fill(0.0))
        for i in range(j * p, j * p + p):
            store(U, i, load(U, i) * kept)
    multiply((G, down, right), (U, 1, p), (V, q, 1), (p, q, 1 if leading else q))


@njit(inline="always")
def _newton_schulz(G: int, vectors: int, length: int, iterations: int, space: Any) -> None:
    """Overwrite G by `newton_schulz` of it, of `attnsvm.optimizer.muon`."""
    rest, A, _ = space
    wide = vectors > length  # A is of the smaller size
    p, q = (vectors, length) if wide else (length, vectors)
    down, right = (length, 1) if wide else (1, length)
    a, b, c = COEFFICIENTS
    inverse = fill(1.0) / (root(dot(G, G, p * q)) + fill(TINY))
    for j in range(p * q):
        store(G, j, load(G, j) * inverse)
    for _ in range(iterations):
        multiply((A, q, 1), (G, right, down), (G, down, right), (q, q, p))
        multiply((rest, q, 1), (A, q, 1), (A, q, 1), (q, q, q))
        for j in range(q * q):
            store(A, j, fma(fill(c), load(rest, j), fill(b) * load(A, j)))
        multiply((rest, q, 1), (G, down, right), (A, q, 1), (p, q, q))
        for i in range(p):
            for j in range(q):
                place = i * down + j * right
                store(G, place, fma(fill(a), load(G, place), load(rest, i * q + j)))
