"""Norms of the singular values: nuclear (p = 1), Frobenius (2), spectral (inf)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.linalg.decompositions import singular_values, thin_svd
from attnsvm.norm import lp
from attnsvm.norm.base import CLARABEL, Array, Proximal
from attnsvm.norm.cone import Cone
from attnsvm.norm.nuclear import NuclearCone
from attnsvm.norm.power import PowerCone
from attnsvm.norm.rows import Rows
from attnsvm.norm.spectral import SpectralCone


class Schatten(lp.Lp):
    """The l_p norm of the singular values, 1 <= p <= inf."""

    FAMILY = "schatten"
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

    def spread(self, d: int) -> float:
        """Return d^(1/p - 1/2), at least one."""
        return math.pow(d, max(0.0, 1 / self.p - 0.5))

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

    def prox(self, X: Array, tau: float) -> Proximal:
        """Return U diag(prox(s)) V^T of X = U diag(s) V^T.

        The parts (X_ij +- X_ji) / sqrt(2) in the bases U, V are eigenvectors of its derivative.
        """
        U, x, Vt = np.linalg.svd(X)
        v, slope, bound = lp.prox(x, tau, self.p)
        r, shape = len(x), X.shape
        long_x, long_v, long_slope = (np.append(y, np.zeros(max(shape) - r)) for y in (x, v, slope))
        rows, columns = (np.arange(n) for n in shape)
        i, j = rows[:, None], columns[None, :]
        tiny = max(float(x[0]), 1e-300) * 1e-12
        plus = (long_v[i] + long_v[j]) / np.maximum(long_x[i] + long_x[j], tiny)
        difference = long_x[i] - long_x[j]
        minus = np.where(
            np.abs(difference) > 1e-9 * x[0],
            (long_v[i] - long_v[j]) / np.where(difference != 0, difference, 1.0),
            0.5 * (long_slope[i] + long_slope[j]),
        )
        square = (i < r) & (j < r)
        values = np.where(square & (i < j), minus, plus)
        values[np.arange(r), np.arange(r)] = slope
        k, l = np.nonzero(values > 1e-15)
        slopes, mixed = values[k, l], square[k, l] & (k != l)
        E, e = np.zeros((len(k) + bool(bound.any()), *shape)), np.arange(len(k))
        E[e, k, l] = np.where(mixed, math.sqrt(0.5), 1.0)
        k, l, e = k[mixed], l[mixed], e[mixed]
        E[e, l, k] = math.sqrt(0.5) * np.where(k < l, 1, -1)
        if bound.any():
            E[-1, np.arange(r), np.arange(r)] = bound / math.sqrt(bound.sum())
            slopes = np.append(slopes, 1.0)
        E = np.einsum("ab,ebc,cd->ead", U, E, Vt, optimize=True)
        return Proximal((U[:, :r] * v) @ Vt[:r], E.reshape(len(E), X.size).T, slopes)
