"""The assumptions of arXiv 2308.16898, tested from the problem alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attnsvm.svm import SvmProblem

B1_TOLERANCE = 1e-9
"""Largest relative residual of the Gram system at which Assumption B.1 holds."""

GRAM_NUMBERS = 2**24
"""Largest number of entries of the Gram matrices that are in memory together."""


def assumption_b1(problem: SvmProblem) -> list[bool | None]:
    """Return whether all margins equal 1 at the optimum of each problem (Assumption B.1).

    All constraints are active with multipliers lam >= 0 iff  G lam = 1, lam >= 0  is solvable,
    G = (D D^T) o (Z Z^T), i.e. iff some W in the cone of the d_k z_k^T has every margin equal to 1.
    Tested on unit rows, to a relative residual of 1e-9. If G is regular, its only solution lam
    decides: its least entry bounds the residual of every lam' >= 0 by

        ||G lam' - 1|| >= ||lam' - lam|| / ||G^-1|| >= -min_k lam_k / ||G^-1||.

    Otherwise non-negative least squares decides; None where it does not converge.

    Parameters
    ----------
    problem : SvmProblem
        Single-token problems; an instance without constraints satisfies the assumption.
    """
    size = max(1, GRAM_NUMBERS // problem.N**2)
    parts = (problem.take(slice(k, k + size)) for k in range(0, problem.B, size))
    return [verdict for part in parts for verdict in _all_margins_one(part)]


def _all_margins_one(problem: SvmProblem) -> list[bool | None]:
    """Return the verdicts for a batch whose Gram matrices fit into memory."""
    G, one = _gram(problem)
    factor, fails = torch.linalg.cholesky_ex(G)
    eye = torch.eye(problem.N).to(G)
    inverse = torch.cholesky_inverse(torch.where(fails[:, None, None] == 0, factor, eye))
    solution = (inverse @ one[..., None])[..., 0]
    residual = ((G @ solution[..., None])[..., 0] - one).norm(dim=1)
    allowed = B1_TOLERANCE * one.norm(dim=1)
    least, regular = solution.amin(dim=1), (fails == 0) & (residual <= 0.1 * allowed)
    holds = regular & (least >= 0)
    broken = regular & (-least / inverse.norm(dim=(-2, -1)) > 2 * allowed)
    broken |= ~one.isfinite().all(dim=1)  # a zero row has margin 0
    verdicts: list[bool | None] = holds.tolist()
    for k in (~holds & ~broken).nonzero()[:, 0].tolist():
        rows = problem.inequality[k]
        verdicts[k] = _solvable(G[k][rows][:, rows].cpu().numpy(), one[k][rows].cpu().numpy())
    return verdicts


def _gram(problem: SvmProblem) -> tuple[Tensor, Tensor]:
    """Return the Gram matrices of the unit rows and the right-hand sides 1 / ||row||, up to scale.

    For a row of padding the equation is lam = 0.
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
    from scipy.optimize import nnls  # its import is slow, and few instances need it

    try:
        _, residual = nnls(G, one)
    except RuntimeError:
        return None
    return bool(residual <= B1_TOLERANCE * np.linalg.norm(one))
