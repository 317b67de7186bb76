r"""The max and l1 norms: Mehrotra's method for linear programs, on changing rows.

Its equations are those of `attnsvm.svm.entrywise.mehrotra`, with

    theta = 1 / (P + Q),  skew = (P - Q) theta,  c = 1 / total(4 P Q theta),

where total(X) is the sum of all entries for the max norm, X itself for l1. The Newton system has
the matrix  A diag(theta) A^T + c b b^T + diag(s / a),  b = A skew  (max),  or
A diag(c) A^T + diag(s / a)  (l1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.norm import Entrywise
from attnsvm.svm.large.predictor_corrector import BACK, Point, PredictorCorrector, length


@dataclass(frozen=True)
class LinearPoint(Point):
    """With t, a number (max) or a matrix (l1), U = t - W, V = t + W and their multipliers."""

    t: Tensor
    U: Tensor
    V: Tensor
    YU: Tensor
    YV: Tensor


class Linear(PredictorCorrector[LinearPoint]):
    """The max or the l1 norm on some rows."""

    norm: Entrywise

    @property
    def is_max(self) -> bool:
        """Whether t is a number."""
        return self.norm.p == math.inf

    def total(self, X: Tensor) -> Tensor:
        """Return what belongs to t: the sum of all entries, or X."""
        return X.sum() if self.is_max else X

    def start(self, W: Tensor, a: Tensor) -> LinearPoint:
        """Return a point with all products U Y_U, V Y_V, s a of about the same size."""
        rows = self.rows
        W, s, size = self.near(W, a)
        M = rows.combine(a)
        scale = 0.5 / self.norm.dual.value(M)
        M = M * scale
        top = self.on_inequalities(a).amax().clamp(min=0.0)
        s = torch.where(rows.inequality, s + 0.1 * size, 1.0)
        a = torch.where(rows.inequality, a.clamp(min=0.0) + 0.1 * top, a) * scale
        t = 1.5 * W.abs().amax() if self.is_max else W.abs() + W.abs().mean()
        rest = 0.25 / W.numel() if self.is_max else 0.25
        YU, YV = M.clamp(min=0.0) + rest, (-M).clamp(min=0.0) + rest
        return LinearPoint(W, s, a, t, t - W, t + W, YU, YV)

    def step(self, x: LinearPoint, M: Tensor, margin: Tensor) -> LinearPoint | None:
        """Return the point after a step of Mehrotra's method."""
        rows = self.rows
        rU, rV = x.U - (x.t - x.W), x.V - (x.t + x.W)
        rW, rt = M - x.YU + x.YV, self.total(x.YU + x.YV) - 1
        rs = rows.h - margin + self.on_inequalities(x.s)
        P, Q = x.YU / x.U, x.YV / x.V
        theta = 1 / (P + Q)
        skew = (P - Q) * theta
        c = 1 / self.total(4 * P * Q * theta)
        K = rows.weighted_gram(theta if self.is_max else c)
        if self.is_max:
            b = rows.margins(skew)
            K.addr_(b, b, alpha=float(c))
        solve = rows.solver(K, x.s, x.a)
        if solve is None:
            return None

        def direction(cU: Tensor, cV: Tensor, cs: Tensor) -> LinearPoint:
            xU, xV = (cU + x.YU * rU) / x.U, (cV + x.YV * rV) / x.V
            fixed = rW - xU + xV
            g = rt + self.total(xU + xV + skew * fixed)
            f = rs + self.on_inequalities(cs / x.a)
            da = solve(f - rows.margins(theta * fixed + skew * (c * g)))
            dM = rows.combine(da)
            dt = c * (g + self.total(skew * dM))
            dW = theta * (dM + fixed) + skew * dt
            dU, dV = dt - dW - rU, dt + dW - rV
            dYU, dYV = (cU - x.YU * dU) / x.U, (cV - x.YV * dV) / x.V
            ds = self.on_inequalities((cs - x.s * da) / x.a)
            return LinearPoint(dW, ds, da, dt, dU, dV, dYU, dYV)

        UY, VY, sa = x.U * x.YU, x.V * x.YV, x.s * x.a
        now = self._products(x)
        dx = direction(-UY, -VY, -sa)
        after = self._products(self._moved(x, dx, 1.0))
        aim = now / (2 * M.numel() + rows.inequality.sum()) * (after / now) ** 3
        aims = aim - UY - dx.U * dx.YU, aim - VY - dx.V * dx.YV, aim - sa - dx.s * dx.a
        return self._moved(x, direction(*aims), BACK)

    def _moved(self, x: LinearPoint, dx: LinearPoint, back: float) -> LinearPoint:
        """Return the point after `back` times the largest primal and dual steps."""
        primal = length((x.U, dx.U), (x.V, dx.V), (x.s, dx.s), back=back)
        dual = length((x.YU, dx.YU), (x.YV, dx.YV), (x.a, self.on_inequalities(dx.a)), back=back)
        return LinearPoint(
            x.W + primal * dx.W,
            x.s + primal * dx.s,
            x.a + dual * dx.a,
            x.t + primal * dx.t,
            x.U + primal * dx.U,
            x.V + primal * dx.V,
            x.YU + dual * dx.YU,
            x.YV + dual * dx.YV,
        )

    def _products(self, x: LinearPoint) -> Tensor:
        """Return U Y_U + V Y_V + s a, summed."""
        return (x.U * x.YU).sum() + (x.V * x.YV).sum() + self.on_inequalities(x.s * x.a).sum()
