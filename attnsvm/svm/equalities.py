"""Equality constraints, eliminated exactly: W = W_0 + V with V orthogonal to every equality row."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.tolerances import DEPENDENT

Array = NDArray[np.float64]

CLEAR = 1e-3  # least pivot (a sine) of unit rows that are certainly independent


class Elimination(NamedTuple):
    """The affine set {w : E w = e} of one instance, w in R^p."""

    independent: NDArray[np.int64]  # (r,), equality rows that span all of them
    basis: Array  # (p, r), orthonormal, of their span
    origin: Array  # (p,), w_0, the least-norm point of the set

    def project(self, G: Array) -> Array:
        """Return the rows of G made orthogonal to the equality rows (twice, to reduce rounding)."""
        for _ in range(2 if self.independent.size else 0):
            G = G - (G @ self.basis) @ self.basis.T
        return G


def eliminate(E: Array, e: Array, dependent: float = DEPENDENT) -> Elimination:
    """Return the elimination of E w = e; the rows should have comparable norms.

    Rows are dropped whose part that is orthogonal to the others is smaller, relative to the largest
    row, than `dependent`.
    """
    if not E.shape[0]:
        return Elimination(np.zeros(0, np.int64), np.zeros((E.shape[1], 0)), np.zeros(E.shape[1]))
    from scipy.linalg import qr, solve_triangular  # its import is slow, and few instances need it

    _, R, order = qr(E.T, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(R))
    rank = int((diagonal > dependent * max(diagonal[0], 1e-300)).sum())
    independent = np.sort(order[:rank]).astype(np.int64)
    basis, R = np.linalg.qr(E[independent].T)
    origin = basis @ solve_triangular(R, e[independent], trans="T")
    return Elimination(independent, basis, origin)


def contradiction(E: Array, e: Array, origin: Array) -> Array | None:
    """Return b with E^T b = 0 and e^T b > 0; None if the equalities hold at the origin.

    It is the residual of e outside the range of E, a Farkas ray, unless that is rounding.
    """
    reach = np.linalg.norm(E, axis=1) * np.linalg.norm(origin) + np.abs(e)
    if (np.abs(E @ origin - e) <= 1e-10 * reach).all():
        return None
    b = e - E @ np.linalg.lstsq(E, e, rcond=None)[0]
    return np.asarray(b / np.linalg.norm(b))


def independent_equalities(problem: SvmProblem, dependent: float = DEPENDENT) -> Tensor:
    """Return which equality rows to keep so that they are independent, (B, N) bool.

    All of them, if the Cholesky factor of their Gram matrix has no small pivot.
    """
    keep = problem.equality.clone()
    if not keep.any():
        return keep
    L, info = torch.linalg.cholesky_ex(_gram(problem, keep))
    pivots = L.diagonal(dim1=1, dim2=2).amin(dim=1)
    unclear = keep.any(dim=1) & ~((info == 0) & (pivots > CLEAR))
    for b in unclear.nonzero()[:, 0].tolist():
        rows = problem.equality[b].nonzero()[:, 0]
        E = problem.D[b, rows, :, None] * problem.queries[b, rows, None, :]
        E = E.flatten(1) / E.flatten(1).norm(dim=1, keepdim=True).clamp(min=1e-300)
        kept = eliminate(E.cpu().numpy(), np.zeros(len(rows)), dependent).independent
        keep[b] = False
        keep[b, rows[torch.from_numpy(kept).to(rows.device)]] = True
    return keep


def _gram(problem: SvmProblem, keep: Tensor) -> Tensor:
    """Return (D D^T) o (Z Z^T) of the unit rows to keep, the identity elsewhere, (B, N, N)."""
    D, Q = (x / x.norm(dim=2, keepdim=True).clamp(min=1e-300) for x in (problem.D, problem.queries))
    D = torch.where(keep[..., None], D, 0.0)
    return (D @ D.mT) * (Q @ Q.mT) + torch.diag_embed((~keep).to(D))


def restoring(problem: SvmProblem, dependent: float = DEPENDENT) -> Callable[[Tensor], Tensor]:
    """Return the map of W to the nearest point where the equalities hold.

    W + E^T c with E E^T c = e - E W, twice to reduce rounding; E E^T = (D D^T) o (Z Z^T) is
    factored once.
    """
    if not problem.equality.any():
        return lambda W: W
    keep = independent_equalities(problem, dependent)
    unit = problem.scale
    L = torch.linalg.cholesky(_gram(problem, keep))

    def restored(W: Tensor) -> Tensor:
        for _ in range(2):
            violation = torch.where(keep, (problem.h - problem.margins(W)) / unit, 0.0)
            c = torch.cholesky_solve(violation[..., None], L)[..., 0]
            W = W + problem.combine(torch.where(keep, c / unit, 0.0))
        return W

    return restored
