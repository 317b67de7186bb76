"""Singular value decompositions of small matrices whose entries are lanes, in compiled code.

One-sided Jacobi: rotations of two columns at a time make the columns of A V orthogonal; then A V =
U diag(sigma). Small singular values and their vectors are as accurate as the columns determine
them, which no method is that starts from A^T A or a bidiagonal matrix (J. Demmel and K. Veselic,
SIAM J. Matrix Anal. Appl. 13, 1992).
"""

from typing import Any

import torch
from numba import njit
from torch import Tensor

from attnsvm.linalg import EPS
from attnsvm.linalg.jit import compiled, subroutine
from attnsvm.linalg.simd.arithmetic import any_lane, maximum, sqrt, where
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import blocks_of, of_blocks
from attnsvm.linalg.simd.matmul import inner, rescale

SWEEPS = 30
"""Largest number of sweeps over all pairs of columns; about six are needed."""


@subroutine
def svd_columns(A: LaneArray, V: LaneArray, sigma: LaneArray) -> None:
    """Write V and sigma of the SVD of a matrix, whose columns become those of U.

    `A` (q, p) holds the q columns of the matrix U diag(sigma) V^T, V (q, q) its columns; sigma (q,)
    decreases. A column of U whose sigma is zero is zero. Entries of A are of ordinary size: squares
    of columns underflow below 1e-154. A lane that has converged does not change any more.
    """
    q = len(A)
    V[:] = 0.0
    for j in range(q):
        V[j, j] = 1.0
    for _ in range(SWEEPS):
        turned = False
        for j in range(q - 1):
            for k in range(j + 1, q):
                turned = _orthogonalise(A[j], A[k], V[j], V[k]) or turned
        if not turned:
            break
    for j in range(q):
        column = A[j]
        size = sqrt(inner(column, column))
        sigma[j] = size
        rescale(column, where(size > 0, 1 / size, 0))


@njit(inline="always")
def _orthogonalise(first: LaneArray, second: LaneArray, v: LaneArray, w: LaneArray) -> bool:
    """Rotate two columns, and v and w alike: they become orthogonal, and the first one the longer.

    Return whether that was to be done in any lane; in the others nothing changes.
    """
    a, b, c = inner(first, first), inner(second, second), inner(first, second)
    apart = c * c > len(first) * EPS * EPS * a * b
    if not any_lane(apart | (b > a)):
        return False
    larger = maximum(a, b)
    unit = 1 / where(larger > 0, larger, 1)
    x, y = abs(a - b) * unit, (c + c) * unit
    length = sqrt(x * x + y * y)
    inverse = 1 / where(length > 0, length, 1)
    x, y = where(apart, x * inverse, 1), where(apart, y * inverse, 0)
    cosine = sqrt(0.5 * x + 0.5)
    sine = 0.5 * y / cosine
    to_first = where(b > a, sine, cosine)  # a rotation, and an exchange where b > a
    of_second = where(b > a, cosine, sine)
    of_first = where(b > a, cosine, -sine)
    to_second = where(b > a, -sine, cosine)
    _mix(first, second, to_first, of_second, of_first, to_second)
    _mix(v, w, to_first, of_second, of_first, to_second)
    return True


@njit(inline="always")
def _mix(x: LaneArray, y: LaneArray, xx: Any, xy: Any, yx: Any, yy: Any) -> None:
    """Write x <- xx x + xy y and y <- yx x + yy y."""
    for i in range(len(x)):
        x[i], y[i] = xx * x[i] + xy * y[i], yx * x[i] + yy * y[i]


@compiled("singular value decomposition", "2 s", nogil=True, error_model="numpy")
def _svd_of_blocks(A: LaneArray, V: LaneArray, sigma: LaneArray) -> None:
    """Decompose groups of eight matrices: A (groups, q, p), V (groups, q, q), sigma (groups, q)."""
    for b in range(len(A)):
        svd_columns(A[b], V[b], sigma[b])


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
    columns = blocks_of(torch.ldexp(A.mT, -exponent[..., None]))
    right, sizes = LaneArray.several((*columns.shape[:2], q), columns.shape[:2])
    _svd_of_blocks(columns, right, sizes)
    U, sigma, V = (of_blocks(blocks, B) for blocks in (columns, sizes, right))
    return U.mT, torch.ldexp(sigma, exponent), V.mT
