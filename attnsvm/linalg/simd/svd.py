"""Singular value decompositions of small matrices whose entries are lanes, in compiled code.

One-sided Jacobi: rotations of two columns at a time make the columns of A V orthogonal; then A V =
U diag(sigma). Small singular values and their vectors are as accurate as the columns determine
them, which no method is that starts from A^T A or a bidiagonal matrix (J. Demmel and K. Veselic,
SIAM J. Matrix Anal. Appl. 13, 1992).
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

import torch
from numba import njit
from torch import Tensor

from attnsvm.linalg.jit import announced, compiled
from attnsvm.linalg.simd import arithmetic, matmul
from attnsvm.linalg.simd.arithmetic import (
    any_greater,
    at,
    fill,
    fma,
    load,
    magnitude,
    most,
    root,
    store,
    where_greater,
)
from attnsvm.linalg.simd.blocks import from_lanes, to_lanes
from attnsvm.linalg.simd.matmul import dot

SWEEPS = 30
"""Largest number of sweeps over all pairs of columns; about six are needed."""

EPS = 2.0**-52


@njit(inline="always")
def decompose(A: int, V: int, sigma: int, p: int, q: int) -> None:
    """Write V and sigma of the SVD of A, whose columns become those of U: A = U diag(sigma) V^T.

    A is q columns of p entries, V becomes q columns of q, one column after the other; sigma (q,)
    decreases. A column of U whose sigma is zero is zero. Entries of A are of ordinary size: squares
    of columns underflow below 1e-154. A lane that has converged does not change any more.
    """
    zero, one = fill(0.0), fill(1.0)
    for j in range(q):
        for i in range(q):
            store(V, j * q + i, one if i == j else zero)
    for _ in range(SWEEPS):
        turned = False
        for j in range(q - 1):
            for k in range(j + 1, q):
                turned = _orthogonalise(A, V, j, k, p, q) or turned
        if not turned:
            break
    for j in range(q):
        size = root(dot(at(A, j * p), at(A, j * p), p))
        store(sigma, j, size)
        inverse = where_greater(size, zero, one / size, zero)
        for i in range(j * p, j * p + p):
            store(A, i, load(A, i) * inverse)


@njit(inline="always")
def _orthogonalise(A: int, V: int, j: int, k: int, p: int, q: int) -> bool:
    """Rotate columns j < k of A and V: they become orthogonal, and the first one the longer.

    Return whether that was to be done in any lane; in the others nothing changes.
    """
    zero, one, half = fill(0.0), fill(1.0), fill(0.5)
    first, second = at(A, j * p), at(A, k * p)
    a, b, c = dot(first, first, p), dot(second, second, p), dot(first, second, p)
    limit = fill(p * EPS * EPS) * a * b
    if not (any_greater(c * c, limit) or any_greater(b, a)):
        return False
    larger = most(a, b)
    unit = one / where_greater(larger, zero, larger, one)
    x, y = magnitude(a - b) * unit, (c + c) * unit
    length = root(fma(x, x, y * y))
    inverse = one / where_greater(length, zero, length, one)
    x = where_greater(c * c, limit, x * inverse, one)
    y = where_greater(c * c, limit, y * inverse, zero)
    cosine = root(fma(half, x, half))
    sine = half * y / cosine
    to_first = where_greater(b, a, sine, cosine)  # a rotation, and an exchange where b > a
    of_second = where_greater(b, a, cosine, sine)
    of_first = where_greater(b, a, cosine, zero - sine)
    to_second = where_greater(b, a, zero - sine, cosine)
    _mix(first, second, p, to_first, of_second, of_first, to_second)
    _mix(at(V, j * q), at(V, k * q), q, to_first, of_second, of_first, to_second)
    return True


@njit(inline="always")
def _mix(x: int, y: int, count: int, xx: Any, xy: Any, yx: Any, yy: Any) -> None:
    """Write x <- xx x + xy y and y <- yx x + yy y."""
    for i in range(count):
        x_i, y_i = load(x, i), load(y, i)
        store(x, i, fma(xx, x_i, xy * y_i))
        store(y, i, fma(yy, y_i, yx * x_i))


@njit
def decompose_columns(A: int, V: int, sigma: int, p: int, q: int) -> None:
    """As `decompose`, in code that is compiled once for all calls."""
    decompose(A, V, sigma, p, q)


@njit
def decompose_fully(C: int, U: int, V: int, sigma: int, work: Any, p: int, q: int) -> None:
    """Write orthogonal U and V and sigma (r,) of C = U diag(sigma) V^T, C (p, q), r = min(p, q).

    U (p, p) and V (q, q) are written one column after the other. `work` holds the addresses of
    p q, r and r entries.
    """
    A, weights, flips = work
    if p >= q:
        for i in range(p):
            for j in range(q):
                store(A, j * p + i, load(C, i * q + j))
        decompose_columns(A, V, sigma, p, q)
        _complete(A, U, weights, flips, p, q)
    else:
        for i in range(p * q):
            store(A, i, load(C, i))
        decompose_columns(A, U, sigma, q, p)
        _complete(A, V, weights, flips, q, p)


@njit
def _complete(A: int, Q: int, weights: int, flips: int, p: int, q: int) -> None:
    """Write p orthonormal columns Q, the first q of them those of A, which are unit or zero.

    By Householder's reflections I - w v v^T, which overwrite A. Where a column of A is zero, so are
    those after it.
    """
    zero, one, half = fill(0.0), fill(1.0), fill(0.5)
    for j in range(q):
        v, count = at(A, j * p + j), p - j
        size = root(dot(v, v, count))
        sign = where_greater(zero, load(v, 0), zero - one, one)
        weight = where_greater(size, half, one / (size * (size + magnitude(load(v, 0)))), zero)
        store(weights, j, weight)
        store(flips, j, where_greater(size, half, zero - sign, one))
        store(v, 0, fma(sign, size, load(v, 0)))
        for k in range(j + 1, q):
            _reflect(v, weight, at(A, k * p + j), count)
    for j in range(p):
        for i in range(p):
            store(Q, j * p + i, one if i == j else zero)
    for j in range(q - 1, -1, -1):
        for k in range(j, p):
            _reflect(at(A, j * p + j), load(weights, j), at(Q, k * p + j), p - j)
    for j in range(q):
        for i in range(p):
            store(Q, j * p + i, load(Q, j * p + i) * load(flips, j))


@njit(inline="always")
def _reflect(v: int, weight: Any, x: int, count: int) -> None:
    """Write x <- x - w v v^T x."""
    along = fill(0.0) - weight * dot(v, x, count)
    for i in range(count):
        store(x, i, fma(along, load(v, i), load(x, i)))


@compiled(arithmetic, matmul, nogil=True, error_model="numpy")
def decompose_blocks(A: int, V: int, sigma: int, sizes: Any) -> None:
    """Decompose `blocks` groups of eight matrices; sizes = (blocks, p, q)."""
    blocks, p, q = sizes
    for b in range(blocks):
        decompose(at(A, b * p * q), at(V, b * q * q), at(sigma, b * q), p, q)


def svd(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, sigma and V of A = U diag(sigma) V^T, with r = min(p, q) singular values.

    Parameters
    ----------
    A : Tensor
        Shape (B, p, q), float64, on the CPU.

    Returns
    -------
    U : Tensor
        Shape (B, p, r), orthonormal columns, but zero where p >= q and sigma is zero.
    sigma : Tensor
        Shape (B, r), decreasing, accurate to rounding of the columns' lengths (of the rows', if
        p < q).
    V : Tensor
        Shape (B, q, r), orthonormal columns, but zero where p < q and sigma is zero.

    The bits of a decomposition do not depend on the batch. It is NaN where A is not finite.
    """
    B, p, q = A.shape
    if p < q:
        V, sigma, U = svd(A.mT)
        return U, sigma, V
    if not A.numel():
        return A.new_empty(B, p, q), A.new_empty(B, q), A.new_empty(B, q, q)
    exponent = torch.frexp(A.abs().flatten(1).amax(1)).exponent[:, None]
    lanes_A = to_lanes(torch.ldexp(A.mT, -exponent[..., None]))
    blocks = len(lanes_A)
    lanes_V, lanes_sigma = lanes_A.new_empty(blocks, q * q * 8), lanes_A.new_empty(blocks, q * 8)
    with announced("singular value decomposition"):
        addresses = (lanes.data_ptr() for lanes in (lanes_A, lanes_V, lanes_sigma))
        decompose_blocks(*addresses, (blocks, p, q))
    U, V = from_lanes(lanes_A, (B, q, p)).mT, from_lanes(lanes_V, (B, q, q)).mT
    return U, torch.ldexp(from_lanes(lanes_sigma, (B, q)), exponent), V
