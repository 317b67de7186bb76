"""Norms of the entries: what all l_p norms of vec(W) share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from attnsvm.norm import lp
from attnsvm.norm.base import Array, Norm, Proximal


class Entrywise(Norm):
    """The l_p norm of the entries, (sum_ij |w_ij|^p)^(1/p), 1 <= p <= inf."""

    def __init__(self, p: float, name: str) -> None:
        self.p, self.name = p, name

    def value(self, W: Tensor) -> Tensor:
        """Return the l_p norm of the entries."""
        return lp.size(W.flatten(-2), self.p)

    def steepest(self, M: Tensor) -> Tensor:
        """Return sign(m_ij) (|m_ij| / ||M||_q)^(q - 1); with p = 1 a single entry is not zero."""
        return lp.steepest(M.flatten(-2), self.p).reshape(M.shape)

    def spread(self, d: int) -> float:
        """Return d^(2/p - 1), at least one."""
        return math.pow(d, max(0.0, 2 / self.p - 1))

    def prox(self, X: Array, tau: float) -> Proximal:
        """Return the proximal map, which acts on the entries."""
        v, slope, bound = lp.prox(np.abs(X).ravel(), tau, self.p)
        sign = np.where(X.ravel() < 0, -1.0, 1.0)
        kept = slope > 0
        E, slopes = np.eye(X.size)[:, kept], slope[kept]
        if bound.any():
            E = np.column_stack([E, np.where(bound, sign, 0.0) / math.sqrt(bound.sum())])
            slopes = np.append(slopes, 1.0)
        return Proximal((sign * v).reshape(X.shape), E, slopes)

    def expression(self, W: Any) -> Any:
        """Return the norm of vec(W)."""
        import cvxpy as cp

        return cp.norm(cp.vec(W, order="C"), "inf" if self.p == math.inf else self.p)
