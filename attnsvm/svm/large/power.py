r"""The l_p norm, 1 < p < inf: Mehrotra's method on changing rows.

Its equations are those of `attnsvm.svm.entrywise.newton`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.norm import Entrywise
from attnsvm.svm.entrywise.newton import SMALL
from attnsvm.svm.large.predictor_corrector import BACK, Point, PredictorCorrector, length
from attnsvm.svm.powers import stages
from attnsvm.svm.problem import SvmProblem


class PowerOnRows(PredictorCorrector[Point]):
    """The l_p norm on some rows."""

    norm: Entrywise

    def begin(self, problem: SvmProblem, index: Tensor, W: Tensor, a: Tensor) -> None:
        """Start from the Frobenius solution, or from that of a smaller p > 2."""
        last = self.norm
        for p in stages(last.p)[:-1]:
            self.norm = Entrywise(p)
            super().begin(problem, index, W, a)
            W, a = self.solve(self.ROUGH[0], keep=True)
        self.norm = last
        super().begin(problem, index, W, a)

    def start(self, W: Tensor, a: Tensor) -> Point:
        """Return a point whose multipliers are scaled for the greatest dual objective."""
        rows, q = self.rows, self.norm.dual.p
        W, s, _ = self.near(W, a)
        s = torch.where(rows.inequality, s.clamp(min=float(0.1 * rows.h.abs().amax())), 1.0)
        top = self.on_inequalities(a).amax().clamp(min=0.0)
        a = torch.where(rows.inequality, a.clamp(min=0.0) + 0.1 * top, a)
        total = (rows.combine(a).abs() ** q).sum()
        return Point(W, s, a * (rows.h @ a / total) ** (1 / (q - 1)))

    def at(self, x: Point) -> tuple[Point, Tensor]:
        """Return the point and M(a); for p < 2, W = psi^{-1}(M(a))."""
        M = self.rows.combine(x.a)
        W = _signed_power(M, self.norm.dual.p - 1) if self.norm.p < 2 else x.W
        return Point(W, x.s, x.a), M

    def step(self, x: Point, M: Tensor, margin: Tensor) -> Point | None:
        """Return the point after a step of Mehrotra's method."""
        rows, p, q = self.rows, self.norm.p, self.norm.dual.p
        if p < 2:
            theta, rest = (q - 1) * M.abs() ** (q - 2), torch.zeros_like(M)
        else:
            size = x.W.abs()
            theta = 1 / ((p - 1) * size.clamp(min=float(SMALL * size.amax())) ** (p - 2))
            rest = M - _signed_power(x.W, p - 1)
        rs = rows.h - margin + self.on_inequalities(x.s) - rows.margins(theta * rest)
        solve = rows.solver(rows.weighted_gram(theta), x.s, x.a)
        if solve is None:
            return None

        def direction(cs: Tensor) -> Point:
            da = solve(rs + self.on_inequalities(cs / x.a))
            dW = theta * (rows.combine(da) + rest)
            return Point(dW, self.on_inequalities((cs - x.s * da) / x.a), da)

        sa = x.s * x.a
        now, mu = self._complementarity(x)
        dx = direction(-sa)
        after = self.on_inequalities(_product(self._moved(x, dx, 1.0))).sum()
        return self._moved(x, direction(mu * (after / now) ** 3 - sa - dx.s * dx.a), BACK)

    def _moved(self, x: Point, dx: Point, back: float) -> Point:
        """Return the point after `back` times the largest step."""
        t = length((x.s, dx.s), (x.a, self.on_inequalities(dx.a)), back=back)
        return Point(x.W + t * dx.W, x.s + t * dx.s, x.a + t * dx.a)


def _product(x: Point) -> Tensor:
    return x.s * x.a


def _signed_power(x: Tensor, exponent: float) -> Tensor:
    """Return sign(x) |x|^exponent."""
    return x.sign() * x.abs() ** exponent
