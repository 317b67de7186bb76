"""Decompositions of batches of small matrices; an instance that fails is NaN alone.

Arrays are batches of matrices (B, rows, columns); vectors are columns, numbers (B, 1, 1).
"""

import torch
from torch import Tensor

from attnsvm.linalg.simd.svd import svd as jacobi_svd

JACOBI = 32
"""Largest dimension where Jacobi rotations of eight matrices at a time are faster than LAPACK."""

BISECTIONS = 40
RESOLVED = 0.2
"""Relative width of the bracket of a step length at which its bisection stops."""


def thin_svd(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U (..., p, r), sigma (..., r), V (..., q, r); small matrices eight at a time.

    Sigma is NaN where A is not finite; columns may be zero where sigma is.
    """
    if _is_small(A):
        U, sigma, V = jacobi_svd(A.reshape(-1, *A.shape[-2:]))
        shape = A.shape[:-2]
        return U.view(*shape, *U.shape[1:]), sigma.view(*shape, -1), V.view(*shape, *V.shape[1:])
    return _lapack_svd(A, full=False)


def singular_values(A: Tensor) -> Tensor:
    """Return the singular values (..., r), as `thin_svd` does."""
    if _is_small(A):
        return thin_svd(A)[1]
    finite = A.isfinite().all(-1).all(-1)[..., None]
    sigma: Tensor = torch.linalg.svdvals(torch.where(finite[..., None], A, 0.0))
    return torch.where(finite, sigma, torch.nan)


def _lapack_svd(A: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    finite = A.isfinite().all(-1).all(-1)[..., None]
    U, sigma, Vh = torch.linalg.svd(torch.where(finite[..., None], A, 0.0), full)
    return U, torch.where(finite, sigma, torch.nan), Vh.mT


def _is_small(A: Tensor) -> bool:
    small = A.is_cpu and A.dtype == torch.float64 and min(A.shape[-2:]) <= JACOBI
    return small and not A.requires_grad


def full_svd(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U (p, p), sigma (r, 1), V (q, q) of A = U diag(sigma) V^T; NaN if it is not finite."""
    U, sigma, V = _lapack_svd(A, full=True)
    return U, sigma[..., None], V


def cholesky(A: Tensor) -> Tensor:
    """Return L, A = L L^T, NaN where A is not positive definite."""
    L, info = torch.linalg.cholesky_ex(A)
    return torch.where(info[:, None, None] == 0, L, torch.nan)


def inverse_factor(A: Tensor) -> Tensor:
    """Return the upper triangular T with A^{-1} = T T^T."""
    L = cholesky(A)
    return torch.linalg.solve_triangular(L.mT, identity(L.shape[1], L), upper=True)


def definite_step(A: Tensor, B: Tensor, C: Tensor | None, longest: Tensor) -> Tensor:
    """Return t <= longest, (1, 1), to which A + t B + t^2 C stays positive definite.

    By bisection: the test is a Cholesky factor, which is cheaper than an eigenvalue.
    """
    low, high, t = torch.zeros_like(longest), longest, longest
    for _ in range(BISECTIONS):
        moved = A + t * B if C is None else A + t * B + t * t * C
        inside = torch.linalg.cholesky_ex(moved)[1][:, None, None] == 0
        wide = high - low > RESOLVED * high
        low = torch.where(wide & inside, t, low)
        high = torch.where(wide & ~inside, t, high)
        t = 0.5 * (low + high)
        if not (high - low > RESOLVED * high).any():
            break
    return low


def blocks(U: Tensor, sigma: Tensor, V: Tensor, A: Tensor) -> Tensor:
    """Return [[U S U^T, A], [A^T, V S V^T]] of A = U S V^T, S = diag(sigma)."""
    left, right = ((B * sigma[:, None]) @ B.mT for B in (U, V))
    return torch.cat([torch.cat([left, A], 2), torch.cat([A.mT, right], 2)], 1)


def total(A: Tensor) -> Tensor:
    """Return the sum of all entries, (1, 1)."""
    return A.sum((1, 2), keepdim=True)


def largest(A: Tensor) -> Tensor:
    """Return the largest entry, (1, 1)."""
    return A.amax((1, 2), keepdim=True)


def diagonal(A: Tensor) -> Tensor:
    """Return the diagonal of A, (r, 1)."""
    return A.diagonal(0, 1, 2)[..., None]


def identity(size: int, like: Tensor) -> Tensor:
    """Return the identity, (size, size)."""
    return torch.eye(size, dtype=like.dtype, device=like.device)
