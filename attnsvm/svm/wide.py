"""Wide instances (few vectors in many dimensions), solved in the span of their vectors.

With rows d_k = P_d d_k' and z_k = P_z z_k', P_d and P_z with orthonormal columns, the constraints
contain only P_d^T W P_z, and the least-norm W is P_d W' P_z^T (Lemma 1 of arXiv 2308.16898). So the
d x d matrix is formed only once, at the end. Few queries are reduced alone (P_d = I). Narrow
instances are not reduced: the factorisation would cost more than it saves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from attnsvm.linalg import EPS, orthonormal
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.solution import Candidate

WIDE = 256  # least dimension d of a wide instance
MANY = 64  # least dimension d that is not so few
TINY_W = 1e-150  # least ||W|| for the thin spectrum: below it squares could underflow


def is_wide(rows: Tensor) -> bool:
    """Whether the rows (B, r, d) span at most half of many dimensions."""
    return rows.shape[2] >= WIDE and 2 * rows.shape[1] <= rows.shape[2]


def is_thin(rows: Tensor) -> bool:
    """Whether the rows (B, r, d) span at most half of not so few dimensions."""
    return rows.shape[2] >= MANY and 2 * rows.shape[1] <= rows.shape[2]


def basis(rows: Tensor) -> Tensor:
    """Return an orthonormal basis (B, d, r) that spans the rows (B, r, d), r <= d."""
    return orthonormal(rows.mT)[0]


def coordinates(rows: Tensor) -> Tensor:
    """Return the rows (B, r, d) in an orthonormal basis of their span, (B, r, r).

    Computed row by row, so that equal (or opposite) rows stay equal (or opposite) to the last bit.
    The rows of a triangular factor would not.
    """
    return rows @ basis(rows)


def reduced(solve: Callable[[SvmProblem], Candidate], problem: SvmProblem) -> Candidate:
    """Return the candidate  W = P_d W' P_z^T,  with W' from `solve` on span(d_k) x span(z_k)."""
    if not (is_wide(problem.D) and is_wide(problem.Z)):
        return _of_few_queries(solve, problem) if is_thin(problem.Z) else solve(problem)
    P_d, P_z = basis(problem.D), basis(problem.Z)
    found = solve(replace(problem, D=problem.D @ P_d, Z=problem.Z @ P_z))
    W = problem.D.new_empty(problem.B, problem.d, problem.d)
    for b in range(problem.B):  # one by one: a bit must not depend on the size of the batch
        torch.mm(P_d[b] @ found.W[b], P_z[b].mT, out=W[b])
    return found._replace(W=W)


def _of_few_queries(solve: Callable[[SvmProblem], Candidate], problem: SvmProblem) -> Candidate:
    """Return the candidate  W = W' P_z^T,  with W' from `solve` on R^d x span(z_k)."""
    P_z = basis(problem.Z)
    found = solve(replace(problem, Z=problem.Z @ P_z))
    products = [torch.mm(*pair) for pair in zip(found.W, P_z.mT, strict=True)]  # bits: as above
    return found._replace(W=torch.stack(products))


def spectrum(W: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Return singular values (B, d), descending, of matrices W', and ||W - W'||_F, (B,).

    W' = W, unless the queries Z (B, n, d) are few in many dimensions. Then W' = W P P^T, P an
    orthonormal basis of the queries, if that equals W up to rounding:
    ||W - W'||_F <= sqrt(d) EPS ||W'||_F. The singular values of W differ from those of W' by at
    most this distance (Weyl); NaN counts as zero.
    """
    if not is_thin(Z):
        return torch.linalg.svdvals(W.nan_to_num(0.0)), W.new_zeros(len(W))
    sigma, distance = W.new_zeros(W.shape[:2]), W.new_zeros(len(W))
    for b, P in enumerate(basis(Z)):
        found, distance[b] = _thin_spectrum(W[b], P)
        sigma[b, : len(found)] = found
    return sigma, distance


def _thin_spectrum(W: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    inside = W @ P
    size, rest = inside.norm(), torch.addmm(W, inside, P.mT, alpha=-1).norm()
    if size >= TINY_W and rest <= len(W) ** 0.5 * EPS * size:
        return torch.linalg.svdvals(inside), rest
    W = W.nan_to_num(0.0)
    return (torch.linalg.svdvals(W) if W.any() else W[0]), torch.zeros_like(size)
