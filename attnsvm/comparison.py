"""The trained weights against the SVM's: correlations, margin gap, Gen-SVM directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.svm import SvmSolution, SvmStatus

MATRIX = (-2, -1)
LARGE = 2**16
"""Matrices with at least this many entries are read block by block."""

BLOCK = 2**14
"""Entries of a block: its temporaries fit the cache, and torch uses one thread for it."""


def correlation(A: Any, B: Any) -> Any:
    """Return <A, B> / (||A||_F ||B||_F), one number per matrix.

    Parameters
    ----------
    A, B : (..., d, d)
        Tensors or arrays; leading axes broadcast.

    Returns
    -------
    (...)
        Array type as `A`; NaN where a matrix is zero or not finite.
    """
    if not isinstance(A, Tensor):
        return correlation(_tensor(A), _tensor(B)).numpy()
    B = _tensor(B, like=A)
    _same_matrices(A, B)
    return _summed(lambda A, a, r, U: A / a / r * U, A, *_size(A), _unit(B))


def one_minus_correlation(A: Any, B: Any) -> Any:
    """Return 1 - correlation(A, B) as half the squared distance of the unit matrices.

    1 - <a, b> = ||a - b||^2 / 2 for ||a|| = ||b|| = 1. The right-hand side is accurate where the
    left one cancels: the left one loses half of its digits at 1e-8 and all of them at 1e-16.
    """
    if not isinstance(A, Tensor):
        return one_minus_correlation(_tensor(A), _tensor(B)).numpy()
    B = _tensor(B, like=A)
    _same_matrices(A, B)
    return 0.5 * _summed(lambda A, a, r, U: (A / a / r - U).square(), A, *_size(A), _unit(B))


def _same_matrices(A: Tensor, B: Tensor) -> None:
    if A.shape[-2:] != B.shape[-2:]:
        raise ValueError(f"B: matrices of shape {tuple(B.shape[-2:])}; must be those of A, "
                         f"{tuple(A.shape[-2:])}")  # fmt: skip


def _unit(A: Tensor) -> Tensor:
    a, r = _size(A)
    return (A / a).div_(r)


def _size(A: Tensor) -> tuple[Tensor, Tensor]:
    """Return a = max |A_ij| and r = ||A / a||_F, (..., 1, 1): A / a / r has norm one."""
    largest = torch.maximum(A.amax(MATRIX, keepdim=True), -A.amin(MATRIX, keepdim=True))
    squares = _summed(lambda A, a: (A / a).square(), A, largest)
    return largest, squares.sqrt()[..., None, None]


def _summed(term: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """Return the sum of the entries of term(A, ...), one number per matrix; the axes broadcast.

    Large matrices are read a few rows at a time: temporaries fit the cache, and the last bits
    depend neither on the batch nor on the number of threads.
    """
    shape = np.broadcast_shapes(*(tuple(A.shape) for A in given))
    *leading, rows, columns = shape
    if rows * columns < LARGE:
        return term(*given).sum(MATRIX)
    total = given[0].new_zeros(leading)
    step = max(1, BLOCK // columns)
    given = tuple(A.expand(shape) for A in given)
    for index in np.ndindex(*leading):
        matrices = [A[index] for A in given]
        for k in range(0, rows, step):
            total[index] += term(*(A[k : k + step] for A in matrices)).sum()
    return total


def _tensor(A: Any, like: Tensor | None = None) -> Tensor:
    device = None if like is None else like.device
    return torch.as_tensor(A, dtype=torch.float64, device=device)


def svmeq(W: Any, W_fin: Any, W_mm: Any) -> Any:
    """Return W_fin + C W_mm with the C in [0, inf] that maximises its correlation with W.

    The best direction in the span of (W_fin, W_mm) is the projection p W_fin + q W_mm of W, so
    C = q / p where p > 0 and q >= 0. Elsewhere the supremum is at W_fin (C = 0) or at W_mm
    (C -> inf), whichever correlates more; a part that is zero (one token attended, or all of them)
    is not considered. Section 6 of arXiv 2308.16898.

    Parameters
    ----------
    W, W_fin, W_mm : Tensor or ndarray (..., d, d)
        Trained weights and the two parts of Gen-SVM; leading axes broadcast.

    Returns
    -------
    (..., d, d)
        Array type as `W`; p W_fin + q W_mm, that is the result up to a positive factor.
    """
    if not isinstance(W, Tensor):
        return svmeq(_tensor(W), _tensor(W_fin), _tensor(W_mm)).numpy()
    W_fin, W_mm = _tensor(W_fin, like=W), _tensor(W_mm, like=W)
    a, b = _inner(W, W_fin), _inner(W, W_mm)
    f, m, c = _inner(W_fin, W_fin), _inner(W_mm, W_mm), _inner(W_fin, W_mm)
    p, q = a * m - b * c, b * f - a * c
    inside = (p > 0) & (q >= 0)
    to_fin = ~inside & (f > 0) & ((m == 0) | (a * m.sqrt() > b * f.sqrt()))
    p = torch.where(inside, p, to_fin.to(p))
    q = torch.where(inside, q, (~to_fin).to(q))
    return p * W_fin + q * W_mm


def svmeq_least_squares(W: Tensor, W_fin: Tensor, W_mm: Tensor) -> Tensor:
    """Return W_fin + C W_mm with the C that minimises its distance to W, as published."""
    m = _inner(W_mm, W_mm)
    c = _summed(lambda W, W_fin, W_mm: (W - W_fin) * W_mm, W, W_fin, W_mm)[..., None, None]
    C = torch.where(m > 0, c / m, 0.0)
    return W_fin + C * W_mm


def _inner(A: Tensor, B: Tensor) -> Tensor:
    return _summed(torch.mul, A, B)[..., None, None]


def margin_gap(W: Any, solution: SvmSolution[Any]) -> Any:
    """Return 1 - rho(W), which is zero exactly at the directions of the SVM in its norm.

    rho(W) = ||W_mm|| min_k d_k^T W z_k / ||W|| <= 1, with the norm of the SVM and its rows k. It is
    scale-free. Where the SVM has several solutions, they have different correlations with W, but
    one margin.

    Parameters
    ----------
    W : (B, d, d), or (d, d) for a single instance
        Tensor or array, as the solution.
    solution : SvmSolution
        Of `solve_svm` or `solve_rank_constrained`.

    Returns
    -------
    (B,)
        Array type as `W`, to the duality gap; NaN where the SVM is not solved, or W is zero or
        not finite.

    Raises
    ------
    ValueError
        If the SVM has equalities (Gen-SVM), which say more of W than its margin.
    """
    if not isinstance(W, Tensor):
        return margin_gap(_tensor(W), solution).numpy()
    problem = solution.problem.to(W.device)
    if problem.equality.any():
        raise ValueError("solution: has equalities; must be of solve_svm, not of Gen-SVM")
    matrices = W.reshape(-1, *W.shape[-2:])
    finite = matrices.isfinite().all(dim=(1, 2))
    matrices = torch.where(finite[:, None, None], matrices, 0.0)  # then 0 / 0 is NaN
    largest = matrices.abs().amax(dim=(1, 2), keepdim=True)
    matrices = matrices / torch.where(largest > 0, largest, 1.0)  # squares do not overflow
    margins = torch.where(problem.inequality, problem.margins(matrices), torch.inf).amin(dim=1)
    size = torch.linalg.matrix_norm(matrices, "nuc" if solution.norm == "nuclear" else "fro")
    solved = torch.tensor([status is SvmStatus.solved for status in solution.statuses])
    least = _tensor(solution.objective, like=W).reshape(-1)
    gap = torch.where(solved.to(W.device), 1 - least * margins / size, torch.nan)
    return gap.reshape(W.shape[:-2])
