"""Norms of the singular values: nuclear (p = 1), Frobenius (2), spectral (inf)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnsvm.linalg.decompositions import full_svd, singular_values, thin_svd
from attnsvm.norm import lp
from attnsvm.norm.base import CLARABEL, Proximal
from attnsvm.norm.cone import Cone
from attnsvm.norm.nuclear import NuclearCone
from attnsvm.norm.power import PowerCone
from attnsvm.norm.rows import Rows, weighted
from attnsvm.norm.spectral import SpectralCone


class Schatten(lp.Lp):
    """The l_p norm of the singular values, 1 <= p <= inf."""

    FAMILY, AXES = "schatten", 1
    rotation_invariant = True

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.bounds_rank = self.p == 1
        self.programs = (CLARABEL,) if self.p == math.inf else ()  # none else helps

    def value(self, W: Tensor) -> Tensor:
        """Return the l_p norm of the singular values."""
        return self.of_spectrum(singular_values(W))

    def of_spectrum(self, sigma: Tensor) -> Tensor:
        """Return the norm of matrices with singular values `sigma` (..., r)."""
        return lp.size(sigma, self.p)

    def steepest(self, M: Tensor) -> Tensor:
        """Return U diag(v) V^T of M = U diag(s) V^T, v that of the l_p norm at s.

        With p = inf, on the range of M: singular values that are rounding errors count as zero.
        """
        U, sigma, V = thin_svd(M)
        floor = sigma[..., :1] * max(M.shape[-2:]) * torch.finfo(M.dtype).eps
        v = lp.steepest(torch.where(sigma > floor, sigma, 0.0), self.p)
        return (U * v.unsqueeze(-2)) @ V.mT

    def cone(self, rows: Rows) -> Cone[Any]:
        """Return the cone of a linear matrix inequality, or of p-th powers of singular values."""
        if lp.is_linear(self.p):
            return (NuclearCone if self.p == 1 else SpectralCone)(self, rows)
        return PowerCone(self, rows, self.p, of_spectrum=True)

    def expression(self, W: Any) -> Any:
        """Return the norm; CVXPY knows the nuclear, Frobenius and spectral ones."""
        import cvxpy as cp

        kinds = {1: "nuc", 2: "fro", math.inf: 2}
        return cp.norm(W, kinds[self.p]) if self.p in kinds else super().expression(W)

    def prox(self, X: Tensor, tau: float) -> Proximal:
        """Return U diag(prox(s)) V^T of X = U diag(s) V^T."""
        U, x, V = (part[0] for part in full_svd(X[None]))
        v, slope, bound = lp.prox(x[:, 0], tau, self.p)
        theta, beta = lp.divided_differences(
            x[None], v[None, :, None], slope[None, :, None], X.shape
        )
        left, right = U[:, : len(x)], V[:, : len(x)]
        direction = (left * bound) @ right.T

        def derivative(Y: Tensor) -> Tensor:
            turned = U @ weighted(theta, beta, U.T @ Y @ V) @ V.T
            return turned + lp.along(direction, Y)

        return (left * v) @ right.T, derivative
