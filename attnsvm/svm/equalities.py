"""Equality constraints, eliminated exactly: W = W_0 + V with V orthogonal to every equality row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.tolerances import DEPENDENT
from attnsvm.svm.wide import coordinates, is_thin

Array = NDArray[np.float64]

CLEAR = 1e-3  # least pivot (a sine) of unit rows that are certainly independent


@dataclass(frozen=True)
class Elimination:
    """The affine set {w : E w = e} of one instance, w in R^p.

    Attributes
    ----------
    independent : (r,)
        Indices of independent equality rows that span all of them.
    basis : (p, r)
        Orthonormal basis of the span of the rows.
    origin : (p,)
        w_0, the least-norm point of the set.
    contradiction : (m,) or None
        b with E^T b = 0 and e^T b > 0 if the equalities contradict each other.
    """

    E: Array
    independent: NDArray[np.int64]
    basis: Array
    origin: Array
    contradiction: Array | None

    def project(self, G: Array) -> Array:
        """Return the rows of G made orthogonal to the equality rows (twice, to reduce rounding)."""
        for _ in range(2):
            G = G - (G @ self.basis) @ self.basis.T
        return G

    def multipliers(self, target: Array) -> Array:
        """Return b with E^T b = target, for a target in the span of the rows."""
        b = np.zeros(self.E.shape[0])
        if self.independent.size:
            b[self.independent] = np.linalg.lstsq(self.E[self.independent].T, target, rcond=None)[0]
        return b


def eliminate(E: Array, e: Array) -> Elimination:
    """Return the elimination of E w = e; the rows should have comparable norms."""
    if not E.shape[0]:
        nothing = np.zeros((E.shape[1], 0))
        return Elimination(E, np.zeros(0, np.int64), nothing, np.zeros(E.shape[1]), None)
    from scipy.linalg import qr, solve_triangular  # its import is slow, and few instances need it

    _, R, order = qr(E.T, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(R))
    rank = int((diagonal > DEPENDENT * max(diagonal[0], 1e-300)).sum())
    independent = np.sort(order[:rank]).astype(np.int64)
    basis, R = np.linalg.qr(E[independent].T)
    origin = basis @ solve_triangular(R, e[independent], trans="T")
    return Elimination(E, independent, basis, origin, _contradiction(E, e, origin))


def _contradiction(E: Array, e: Array, origin: Array) -> Array | None:
    """Return the residual of e outside the range of E, a Farkas ray; None if it is rounding."""
    reach = np.linalg.norm(E, axis=1) * np.linalg.norm(origin) + np.abs(e)
    if (np.abs(E @ origin - e) <= 1e-10 * reach).all():
        return None
    b = e - E @ np.linalg.lstsq(E, e, rcond=None)[0]
    return np.asarray(b / np.linalg.norm(b))


def independent_equalities(problem: SvmProblem) -> Tensor:
    """Return which equality rows to keep so that they are independent, (B, N) bool.

    All of them, if the Cholesky factor of their Gram matrix has no small pivot.
    """
    keep = problem.equality.clone()
    if not keep.any():
        return keep
    L, info = torch.linalg.cholesky_ex(_gram(problem, keep))
    pivots = L.diagonal(dim1=1, dim2=2).amin(dim=1)
    unclear = keep.any(dim=1) & ~((info == 0) & (pivots > CLEAR))
    if unclear.any() and is_thin(problem.Z):
        problem = replace(problem, Z=coordinates(problem.Z))
    for b in unclear.nonzero()[:, 0].tolist():
        rows = problem.equality[b].nonzero()[:, 0]
        E = problem.D[b, rows, :, None] * problem.queries[b, rows, None, :]
        E = E.flatten(1) / E.flatten(1).norm(dim=1, keepdim=True).clamp(min=1e-300)
        kept = eliminate(E.cpu().numpy(), np.zeros(len(rows))).independent
        keep[b] = False
        keep[b, rows[torch.from_numpy(kept).to(rows.device)]] = True
    return keep


def _gram(problem: SvmProblem, keep: Tensor) -> Tensor:
    """Return (D D^T) o (Z Z^T) of the unit rows to keep, the identity elsewhere, (B, N, N)."""
    D, Q = (x / x.norm(dim=2, keepdim=True).clamp(min=1e-300) for x in (problem.D, problem.queries))
    D = torch.where(keep[..., None], D, 0.0)
    gram: Tensor = (D @ D.mT) * (Q @ Q.mT) + torch.diag_embed((~keep).to(D))
    return gram


def restore_equalities(problem: SvmProblem, W: Tensor) -> Tensor:
    """Return W moved to the nearest point where the equalities hold."""
    return restoring(problem)(W)


def restoring(problem: SvmProblem) -> Callable[[Tensor], Tensor]:
    """Return the map of W to the nearest point where the equalities hold.

    W + E^T c with E E^T c = e - E W, twice to reduce rounding; E E^T = (D D^T) o (Z Z^T) is
    factored once.
    """
    if not problem.equality.any():
        return lambda W: W
    keep = independent_equalities(problem)
    unit = problem.scale()
    L = torch.linalg.cholesky(_gram(problem, keep))

    def restored(W: Tensor) -> Tensor:
        for _ in range(2):
            violation = torch.where(keep, (problem.h - problem.margins(W)) / unit, 0.0)
            c = torch.cholesky_solve(violation[..., None], L)[..., 0]
            W = W + problem.combine(torch.where(keep, c / unit, 0.0))
        return W

    return restored
