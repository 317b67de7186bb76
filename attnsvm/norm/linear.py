r"""The max and l1 norms: linear programs, by Mehrotra's predictor-corrector method.

With M(a) = sum_k a_k d_k z_k^T, the margins A W, (A W)_k = d_k^T W z_k, and U = t - W, V = t + W:

    max:  min t           s.t.  U, V >= 0,  s = A W - h >= 0        t a number
    l1:   min sum_ij t_ij                                           t a matrix

    dual: Y_U - Y_V = M(a),  a, Y_U, Y_V >= 0,  sum(Y_U + Y_V) = 1 (max), Y_U + Y_V = 1 (l1)

With P = Y_U / U, Q = Y_V / V, theta = 1 / (P + Q), skew = (P - Q) theta, and
c = 1 / sum(4 P Q theta) (max), 1 / (4 P Q theta) entry by entry (l1), the Newton system has the
matrix  A diag(theta) A^T + c b b^T + diag(s / a),  b = A skew  (max),  or
A diag(c) A^T + diag(s / a)  (l1).  S. Wright, Primal-Dual Interior-Point Methods, chapter 10.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attnsvm.linalg.decompositions import largest, total
from attnsvm.norm.base import Norm
from attnsvm.norm.cone import Cone, Point, size_of
from attnsvm.norm.rows import Rows


@dataclass(frozen=True)
class LinearPoint(Point):
    """With t, (1, 1) for the max norm and (p, q) for l1, U, V and their multipliers (p, q)."""

    t: Tensor
    U: Tensor
    V: Tensor
    YU: Tensor
    YV: Tensor


class LinearCone(Cone[LinearPoint]):
    """The cone of the max or the l1 norm; `is_max` says whether t is a number."""

    PAIRS = (("s", "a"), ("U", "YU"), ("V", "YV"))

    def __init__(self, norm: Norm, rows: Rows, is_max: bool) -> None:
        super().__init__(norm, rows)
        self.is_max = is_max

    def sum_of(self, X: Tensor) -> Tensor:
        """Return what belongs to t: the sum of all entries (max), X itself (l1)."""
        return total(X) if self.is_max else X

    def start(self, W: Tensor, a: Tensor) -> LinearPoint:
        """Return a point with all products U Y_U, V Y_V, s a of about the same size."""
        W, s, a = self.centred(W, a)
        M, count = self.rows.combine(a), W.shape[1] * W.shape[2]
        scale = 0.5 / size_of(self.norm.dual, M)
        M = M * scale
        size = W.abs()
        t = 1.5 * largest(size) if self.is_max else size + total(size) / count
        rest = 0.25 / count if self.is_max else 0.25
        YU, YV = M.clamp(min=0.0) + rest, (-M).clamp(min=0.0) + rest
        return LinearPoint(W, s, a * scale, t, t - W, t + W, YU, YV)

    def step(self, x: LinearPoint, M: Tensor, margin: Tensor) -> LinearPoint:
        """Return the point after a step of Mehrotra's method."""
        rows, sum_of = self.rows, self.sum_of
        rU, rV = x.U - (x.t - x.W), x.V - (x.t + x.W)
        rW, rt = M - x.YU + x.YV, sum_of(x.YU + x.YV) - 1
        rs = rows.h - margin + rows.on_inequalities(x.s)
        P, Q = x.YU / x.U, x.YV / x.V
        theta = 1 / (P + Q)
        skew = (P - Q) * theta
        c = 1 / sum_of(4 * P * Q * theta)
        K = rows.gram(theta if self.is_max else c)
        if self.is_max:
            b = rows.margins(skew)
            K.addcmul_(c * b, b.mT)
        solve = rows.solver(K, x.s, x.a)

        def direction(cs: Tensor, cU: Tensor, cV: Tensor) -> LinearPoint:
            xU, xV = (cU + x.YU * rU) / x.U, (cV + x.YV * rV) / x.V
            fixed = rW - xU + xV
            g = rt + sum_of(xU + xV + skew * fixed)
            f = rs + rows.on_inequalities(cs / x.a)
            da = solve(f - rows.margins(theta * fixed + skew * (c * g)))
            dM = rows.combine(da)
            dt = c * (g + sum_of(skew * dM))
            dW = theta * (dM + fixed) + skew * dt
            dU, dV = dt - dW - rU, dt + dW - rV
            dYU, dYV = (cU - x.YU * dU) / x.U, (cV - x.YV * dV) / x.V
            ds = rows.on_inequalities((cs - x.s * da) / x.a)
            return LinearPoint(dW, ds, da, dt, dU, dV, dYU, dYV)

        return self.corrected(x, direction)

    def mean(self, x: LinearPoint) -> Tensor:
        """Return the mean of U Y_U, V Y_V and s a."""
        slack = self.rows.on_inequalities(x.s * x.a)
        products = total(x.U * x.YU) + total(x.V * x.YV) + total(slack)
        return products / (2 * x.W.shape[1] * x.W.shape[2] + total(self.rows.inequality))
