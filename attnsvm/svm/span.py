"""Wide instances, of few vectors in many dimensions, in the span of their vectors.

With rows d_k = P_d d_k' and z_k = P_z z_k', P_d and P_z with orthonormal columns, all that a
problem knows of W is P_d^T W P_z, and the least-norm W is P_d W' P_z^T (Lemma 1 of arXiv
2308.16898). So d x d matrices are made once, to be judged and returned. Narrow instances stay as
they are: there one more factorisation costs more than it saves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from attnsvm.svm.constraints import SvmProblem
from attnsvm.svm.solution import Claim

EPS = torch.finfo(torch.float64).eps
WIDE = 256  # least dimension d of a wide instance
FAINT = 1e-150  # least ||W|| whose rounding errors' squares need not be told from zero


def is_wide(rows: Tensor) -> bool:
    """Whether the rows (B, r, d) span at most half of many dimensions."""
    return rows.shape[2] >= WIDE and 2 * rows.shape[1] <= rows.shape[2]


def basis(rows: Tensor) -> Tensor:
    """Return an orthonormal basis (B, d, r) that spans the rows (B, r, d), r <= d."""
    P: Tensor = torch.linalg.qr(rows.mT)[0]
    return P


def coordinates(rows: Tensor) -> Tensor:
    """Return the rows (B, r, d) in an orthonormal basis of their span, (B, r, r).

    Computed row by row, so that rows which are copies of each other, or opposite, stay so to the
    last bit, as those of the triangular factor do not.
    """
    return rows @ basis(rows)


def in_span(solve: Callable[[SvmProblem], Claim], problem: SvmProblem) -> Claim:
    """Return the claim of `solve` on span(d_k) x span(z_k), taken back:  W = P_d W' P_z^T."""
    if not (is_wide(problem.D) and is_wide(problem.Z)):
        return solve(problem)
    P_d, P_z = basis(problem.D), basis(problem.Z)
    claim = solve(replace(problem, D=problem.D @ P_d, Z=problem.Z @ P_z))
    W = problem.D.new_empty(problem.B, problem.d, problem.d)
    for b in range(problem.B):  # one by one: the same routine, and bits, in every batch
        torch.mm(P_d[b] @ claim.W[b], P_z[b].mT, out=W[b])
    return claim._replace(W=W)


def spectrum(W: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Return singular values (B, d), descending, of matrices W', and ||W - W'||_F, (B,).

    W' is W and the distance zero, unless the queries Z (B, n, d) are few in many dimensions. There
    W' = W P P^T, P an orthonormal basis of the queries, if that is W but for rounding:
    ||W - W'||_F <= sqrt(d) EPS ||W'||_F. The singular values of W differ from those of W' by no
    more than the distance (Weyl); NaN counts as zero.
    """
    if not is_wide(Z):
        return torch.linalg.svdvals(W.nan_to_num(0.0)), W.new_zeros(len(W))
    sigma, distance = W.new_zeros(W.shape[:2]), W.new_zeros(len(W))
    for b, P in enumerate(basis(Z)):
        found, distance[b] = _thin_spectrum(W[b], P)
        sigma[b, : len(found)] = found
    return sigma, distance


def _thin_spectrum(W: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    inside = W @ P
    size, rest = inside.norm(), torch.addmm(W, inside, P.mT, alpha=-1).norm()
    if size >= FAINT and rest <= len(W) ** 0.5 * EPS * size:
        return torch.linalg.svdvals(inside), rest
    W = W.nan_to_num(0.0)
    return (torch.linalg.svdvals(W) if W.any() else W[0]), torch.zeros_like(size)
