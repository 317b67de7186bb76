"""Norms of the entries: the l_p norms of vec(W), with p = 2 the Frobenius norm."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnsvm.norm import lp
from attnsvm.norm.base import CLARABEL, Proximal
from attnsvm.norm.cone import Cone
from attnsvm.norm.linear import LinearCone
from attnsvm.norm.power import PowerCone
from attnsvm.norm.rows import Rows

EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
SIMPLEX = {"solver": "SCIPY", "scipy_options": {"method": "highs-ds", **EXACT}}


class Entrywise(lp.Lp):
    """The l_p norm of the entries, (sum_ij |w_ij|^p)^(1/p), 1 <= p <= inf."""

    FAMILY, AXES = "l", 2

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.rotation_invariant, self.separable = self.is_hilbert, self.p < math.inf
        self.programs = (SIMPLEX if lp.is_linear(self.p) else CLARABEL,)

    def value(self, W: Tensor) -> Tensor:
        """Return the l_p norm of the entries."""
        return lp.size(W.flatten(-2), self.p)

    def of_spectrum(self, sigma: Tensor) -> Tensor:
        """Return the Euclidean norm of the singular values, with p = 2."""
        return lp.size(sigma, self.p) if self.is_hilbert else super().of_spectrum(sigma)

    def steepest(self, M: Tensor) -> Tensor:
        """Return sign(m_ij) (|m_ij| / ||M||_q)^(q - 1); with p = 1 a single entry is not zero."""
        return lp.steepest(M.flatten(-2), self.p).reshape(M.shape)

    def cone(self, rows: Rows) -> Cone[Any]:
        """Return the cone of a linear program, or of p-th powers of the entries."""
        if lp.is_linear(self.p):
            return LinearCone(self, rows, is_max=self.p == math.inf)
        return PowerCone(self, rows, self.p, of_spectrum=False)

    def prox(self, X: Tensor, tau: float) -> Proximal:
        """Return the proximal map, which acts on the entries."""
        v, slope, bound = (x.reshape(X.shape) for x in lp.prox(X.abs().flatten(), tau, self.p))
        sign = torch.where(X < 0, -1.0, 1.0)
        return sign * v, lambda Y: slope * Y + lp.along(sign * bound, Y)

    def expression(self, W: Any) -> Any:
        """Return the norm of vec(W)."""
        import cvxpy as cp

        return cp.norm(cp.vec(W, order="C"), "inf" if self.p == math.inf else self.p)
