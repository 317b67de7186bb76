r"""The l_p and Schatten p norms, 1 < p < inf, by Mehrotra's predictor-corrector method.

    min sum_i |w_i|^p / p  s.t.  A W - s = h,  s >= 0;      Psi(W) = M(a),  a s = mu

with (A W)_k = d_k^T W z_k and w the entries of W (l_p) or its singular values (Schatten p). Psi
applies psi(w) = sign(w) |w|^{p-1} to them. For p < 2, psi is not smooth at 0 but its inverse is:
there W = Psi^{-1}(M(a)) throughout. For p > 2, W is a variable, and Psi is linearised. Both give
the Newton system

    (A Theta A^T + diag(s / a)) da = f,    Theta the derivative of Psi^{-1}.

For l_p it multiplies entries by theta = (q - 1) |m|^{q-2}  or  |w|^{2-p} / (p - 1), where |w|
counts as psi^{-1}(|m|) if it is less: these agree at the optimum, but before it an entry that is
nearly zero, and is not to stay so, would be sent far beyond its place. For F(U diag(x) V^T) =
U diag(f(x)) V^T the derivative is plain in the bases U, V: it multiplies the parts (X_ij +- X_ji) /
2 by (f_i -+ f_j) / (x_i -+ x_j), and the X_ij outside of the square by f_i / x_i (F. Andersson, M.
Carlsson and K. Perfekt, Proc. AMS 144, 2016). The norm and its p-th power have the same minimisers.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from attnsvm.norm import Norm, Schatten, conjugate, thin_svd
from attnsvm.svm.interior_point import loop, power_step
from attnsvm.svm.interior_point.rows import Rows, largest, svd, total

FACTOR = 1.75
"""Largest ratio of successive exponents, or of their conjugates below 2."""


def stages(p: float) -> list[float]:
    """Return exponents that lead from 2 to p: each solution is the start of the next."""
    larger = max(p, conjugate(p))
    count = math.ceil(math.log(larger / 2) / math.log(FACTOR))
    exponents = [2 * (larger / 2) ** (k / count) for k in range(1, count)]
    return [*(exponents if p > 2 else map(conjugate, exponents)), p]


Derivative = tuple[Rows, Tensor, Tensor | None, Tensor, Callable[[Tensor], Tensor]]
"""The derivative Theta of Psi^{-1}: rows in bases U, V where it mixes entries ij and ji only.

(Theta X)_ij = theta_ij X_ij + beta_ij X_ji. After theta and beta come M - Psi(W) in these bases,
and the map of X to U X V^T.
"""


class Power(loop.Cone[loop.Point]):
    """The l_p or the Schatten p norm."""

    compiled: ClassVar[Any] = power_step
    compiled_in_s: ClassVar[int] = 30

    def __init__(self, norm: Norm) -> None:
        super().__init__(norm)
        self.p: float = norm.p  # type: ignore[attr-defined]
        self.q = conjugate(self.p)

    def options(self) -> tuple[float, ...]:
        """Return whether the norm is one of singular values, p, and q."""
        return isinstance(self.norm, Schatten), self.p, self.q

    def start(self, W: Tensor, a: Tensor) -> loop.Point:
        """Return a point whose multipliers are scaled for the greatest dual objective."""
        W, s, near = self.near(W, a)
        # of right-hand sides of both signs the value of multipliers inside of the cone may be < 0
        scaled = torch.where(total(self.rows.h * near) > 0, near, a)
        powers = loop.size_of(self.norm.dual, self.rows.combine(scaled)) ** self.q
        # maximises h^T a - sum |M(a)|^q / q
        size = (total(self.rows.h * scaled) / powers) ** (1 / (self.q - 1))
        return loop.Point(W, s, near * size)

    def at(self, x: loop.Point) -> tuple[loop.Point, Tensor]:
        """Return the point and M(a); for p < 2, W = Psi^{-1}(M(a))."""
        M = self.rows.combine(x.a)
        if self.p > 2:
            return x, M
        return loop.Point(_signed_power(self.norm, M, self.q - 1), x.s, x.a), M

    def step(self, x: loop.Point, M: Tensor, margin: Tensor) -> loop.Point:
        """Return the point after a step of Mehrotra's method."""
        rows, schatten = self.rows, isinstance(self.norm, Schatten)
        derivative = self._of_singular_values if schatten else self._of_entries
        turned, theta, beta, rest, back = derivative(x, M)
        shift = turned.margins(weighed(theta, beta, rest))
        rs = rows.h - margin + rows.on_inequalities(x.s) - shift
        solve = rows.solver(turned.gram(theta, beta), x.s, x.a)

        def direction(cs: Tensor) -> loop.Point:
            da = solve(rs + rows.on_inequalities(cs / x.a))
            ds = rows.on_inequalities((cs - x.s * da) / x.a)
            if self.p < 2:
                return loop.Point(torch.zeros_like(x.W), ds, da)
            return loop.Point(back(weighed(theta, beta, turned.combine(da) + rest)), ds, da)

        sa, now = x.s * x.a, self.mean(x)
        dx = direction(-sa)
        after = self.mean(self._moved(x, dx, 1.0))
        aim = now * (after / now).clamp(max=1.0) ** 3  # a predictor may end farther away
        return self._moved(x, direction(aim - sa - dx.s * dx.a), loop.BOUNDARY)

    def _moved(self, x: loop.Point, dx: loop.Point, back: float) -> loop.Point:
        """Return the point after `back` times the largest step."""
        a = torch.where(self.rows.inequality, x.a, 1.0)
        t = loop.step_length((x.s, dx.s), (a, self.rows.on_inequalities(dx.a)), back=back)
        return x.moved(dx, t, t, ())

    def _of_entries(self, x: loop.Point, M: Tensor) -> Derivative:
        if self.p < 2:
            theta, rest = (self.q - 1) * M.abs() ** (self.q - 2), torch.zeros_like(M)
        else:
            size, e = x.W.abs(), self.p - 1
            powers = size**e
            floor = (loop.SMALL * largest(size)) ** e
            away = torch.maximum(torch.maximum(powers, M.abs()), floor)
            theta, rest = away ** ((1 - e) / e) / e, M - x.W.sign() * powers
        return self.rows, theta, None, rest, lambda X: X

    def _of_singular_values(self, x: loop.Point, M: Tensor) -> Derivative:
        inverse = self.p > 2
        U, sigma, V = svd(x.W if inverse else M)
        exponent = self.p - 1 if inverse else self.q - 1
        theta, beta = _divided_differences(sigma, exponent, inverse, M.shape[1:3])
        rest = torch.zeros_like(M)
        if inverse:
            rest = U.mT @ M @ V
            r = sigma.shape[1]
            rest.diagonal(0, 1, 2)[:, :r] -= (sigma**exponent)[..., 0]
        return self.rows.turned(U, V), theta, beta, rest, lambda X: U @ X @ V.mT


def weighed(theta: Tensor, beta: Tensor | None, X: Tensor) -> Tensor:
    """Return theta_ij X_ij + beta_ij X_ji, the latter for i, j < r = min(p, q)."""
    weighted = theta * X
    if beta is not None:
        r = beta.shape[1]
        weighted[:, :r, :r] += beta * X[:, :r, :r].mT
    return weighted


def _divided_differences(
    sigma: Tensor, exponent: float, inverse: bool, shape: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return theta (p, q) and beta (r, r) of x -> x^exponent, or of the inverse derivative."""
    x = torch.maximum(sigma, loop.SMALL * sigma[:, :1])
    f, r = x**exponent, sigma.shape[1]
    y, g = x.mT, f.mT
    plus = (f + g) / (x + y)
    apart = (x - y).abs() > loop.CLOSE * torch.maximum(x, y)
    slope = torch.where(apart, (f - g) / (x - y), exponent * plus)
    single = f / x
    if inverse:
        plus, slope, single = 1 / plus, 1 / slope, 1 / single
    theta = sigma.new_empty(len(sigma), *shape)
    theta[:, :r, :r] = 0.5 * (slope + plus)
    theta[:, r:, :r], theta[:, :r, r:] = single.mT, single
    return theta, 0.5 * (slope - plus)


def _signed_power(norm: Norm, X: Tensor, exponent: float) -> Tensor:
    """Return Psi(X) with this exponent: of entries, or of singular values."""
    if not isinstance(norm, Schatten):
        return X.sign() * X.abs() ** exponent
    U, sigma, V = thin_svd(X)
    return (U * (sigma**exponent)[:, None]) @ V.mT
