"""The trained weights against the SVM's: correlations, Gen-SVM directions, convergence types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from attnsvm.problem import ProblemBatch
from attnsvm.selection import TokenSelection
from attnsvm.svm.constraints import SvmProblem
from attnsvm.svm.solution import SvmSolution, SvmStatus

MATRIX = (-2, -1)
B1_TOLERANCE = 1e-9
LARGE = 2**16
"""Entries of a matrix from which on it is read block by block."""

BLOCK = 2**14
"""Entries of a block: its temporaries stay in the cache, and torch works on it in one thread."""

GRAM_NUMBERS = 2**24
"""Entries of the Gram matrices that are in memory together."""


def correlation(A: Any, B: Any) -> Any:
    """Return <A, B> / (||A||_F ||B||_F), one number per matrix.

    Parameters
    ----------
    A, B : (..., d, d)
        Tensors or arrays; leading axes broadcast.

    Returns
    -------
    (...)
        Of the kind of `A`; NaN where a matrix is zero or not finite.
    """
    if not isinstance(A, Tensor):
        return correlation(_tensor(A), _tensor(B)).numpy()
    B = _tensor(B, like=A)
    _same_matrices(A, B)
    return _summed(lambda A, a, r, U: A / a / r * U, A, *_size(A), _unit(B))


def one_minus_correlation(A: Any, B: Any) -> Any:
    """Return 1 - correlation(A, B) as half the squared distance of the unit matrices.

    1 - <a, b> = ||a - b||^2 / 2 for ||a|| = ||b|| = 1; the right-hand side keeps its digits where
    the left one cancels (below about 1e-8 the difference matters, below 1e-16 it is everything).
    """
    if not isinstance(A, Tensor):
        return one_minus_correlation(_tensor(A), _tensor(B)).numpy()
    B = _tensor(B, like=A)
    _same_matrices(A, B)
    return 0.5 * _summed(lambda A, a, r, U: (A / a / r - U).square(), A, *_size(A), _unit(B))


def _same_matrices(A: Tensor, B: Tensor) -> None:
    if A.shape[-2:] != B.shape[-2:]:
        raise ValueError(f"B: matrices of shape {tuple(B.shape[-2:])}; allowed is that of A, "
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

    Large matrices are read some rows at a time: temporaries stay in the cache, and the last bits
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
    C = q / p where p > 0 and q >= 0; elsewhere the supremum is at an end, W_fin (C = 0) or
    W_mm (C -> inf), whichever correlates more; a part that is zero (one token attended, or all of
    them) is no direction. Section 6 of arXiv 2308.16898.

    Parameters
    ----------
    W, W_fin, W_mm : Tensor or ndarray (..., d, d)
        Trained weights and the two parts of Gen-SVM; leading axes broadcast.

    Returns
    -------
    (..., d, d)
        Of the kind of `W`, up to a positive factor: p W_fin + q W_mm.
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


def assumption_b1(problem: SvmProblem) -> list[bool | None]:
    """Return whether all margins equal 1 at the optimum of each problem (Assumption B.1).

    All constraints are active with multipliers lam >= 0 iff  G lam = 1, lam >= 0  is solvable,
    G = (D D^T) o (Z Z^T), i.e. iff some W in the cone of the d_k z_k^T has every margin equal to 1.
    Decided on unit rows, to a relative residual of 1e-9: where G is regular by its only solution
    lam, whose least entry bounds the residual of every lam' >= 0 by

        ||G lam' - 1|| >= ||lam' - lam|| / ||G^-1|| >= -min_k lam_k / ||G^-1||,

    elsewhere by non-negative least squares; None where that does not converge.

    Parameters
    ----------
    problem : SvmProblem
        Single-token problems; an instance without constraints meets the assumption.
    """
    size = max(1, GRAM_NUMBERS // problem.N**2)
    parts = (problem.take(slice(k, k + size)) for k in range(0, problem.B, size))
    return [verdict for part in parts for verdict in _all_margins_one(part)]


def _all_margins_one(problem: SvmProblem) -> list[bool | None]:
    """Return the verdicts of a batch whose Gram matrices are in memory together."""
    G, one = _gram(problem)
    factor, fails = torch.linalg.cholesky_ex(G)
    eye = torch.eye(problem.N).to(G)
    inverse = torch.cholesky_inverse(torch.where(fails[:, None, None] == 0, factor, eye))
    solution = (inverse @ one[..., None])[..., 0]
    residual = ((G @ solution[..., None])[..., 0] - one).norm(dim=1)
    allowed = B1_TOLERANCE * one.norm(dim=1)
    least, regular = solution.amin(dim=1), (fails == 0) & (residual <= 0.1 * allowed)
    holds = regular & (least >= 0)
    broken = regular & (-least / inverse.norm(dim=MATRIX) > 2 * allowed)
    broken |= ~one.isfinite().all(dim=1)  # a zero row has margin 0
    verdicts: list[bool | None] = holds.tolist()
    for k in (~holds & ~broken).nonzero()[:, 0].tolist():
        rows = problem.inequality[k]
        verdicts[k] = _solvable(G[k][rows][:, rows].cpu().numpy(), one[k][rows].cpu().numpy())
    return verdicts


def _gram(problem: SvmProblem) -> tuple[Tensor, Tensor]:
    """Return the Gram matrices of the unit rows and the sides 1 / ||row||, up to scale.

    A row of padding asks for lam = 0.
    """
    rows = problem.inequality
    D, Z = problem.D, problem.queries
    d_norm, z_norm = D.norm(dim=-1), Z.norm(dim=-1)
    D, Z = D / d_norm[..., None], Z / z_norm[..., None]
    longest = [torch.where(rows, norm, 0.0).amax(1, keepdim=True) for norm in (d_norm, z_norm)]
    one = torch.where(rows, longest[0] / d_norm * (longest[1] / z_norm), 0.0)
    both = rows[:, :, None] & rows[:, None, :]
    G = torch.where(both, (D @ D.mT) * (Z @ Z.mT), torch.eye(problem.N).to(D))
    return G, one


def _solvable(G: np.ndarray, one: np.ndarray) -> bool | None:
    """Return whether G lam = 1 has a solution lam >= 0."""
    try:
        _, residual = nnls(G, one)
    except RuntimeError:
        return None
    return bool(residual <= B1_TOLERANCE * np.linalg.norm(one))


def convergence_types(
    batch: ProblemBatch, selection: TokenSelection, solution: SvmSolution
) -> list[str]:
    """Return what each trained instance converged to.

    In this order: `unsaturated` (attention still spreads), `infeasible` (no W separates the
    selected tokens), `undecided` (neither proved), `global` (the optimal tokens), `local`
    (selected tokens score above their neighbours, the tokens of margin 1: Definition 2 of
    arXiv 2308.16898), `not_local`.

    Parameters
    ----------
    batch : ProblemBatch
        With the parameters of the head as trained.
    selection : TokenSelection
        Of the trained weights.
    solution : SvmSolution
        Frobenius-norm SVM of `selection.selected`.
    """
    gamma = batch.scores()
    chosen = gamma.gather(2, selection.selected[..., None])
    beaten = ((gamma < chosen) | ~solution.support).all(dim=2).all(dim=1)
    optimal = (selection.selected == selection.optimal).all(dim=1)
    return [
        _convergence_type(bool(saturated), status, bool(best), bool(above))
        for saturated, status, best, above in zip(
            selection.saturated, _statuses(solution), optimal, beaten, strict=True
        )
    ]


def _convergence_type(saturated: bool, status: SvmStatus, optimal: bool, local: bool) -> str:
    if not saturated:
        return "unsaturated"
    if status in (SvmStatus.infeasible, SvmStatus.undecided):
        return status.value
    if optimal:
        return "global"
    return "local" if local else "not_local"


def _statuses(solution: SvmSolution) -> Sequence[SvmStatus]:
    return list(solution.status)
