r"""The l_p and Schatten p norms, 1 < p < inf, by Mehrotra's predictor-corrector method.

    min sum_i |w_i|^p / p  s.t.  A W - s = h,  s >= 0;      Psi(W) = M(a),  a s = mu

with (A W)_k = d_k^T W z_k and w the entries of W (l_p) or its singular values (Schatten p). Psi
applies psi(w) = sign(w) |w|^{p-1} to them. For p < 2, psi is not smooth at 0 but its inverse is:
there W = Psi^{-1}(M(a)) throughout. For p > 2, W is a variable, and Psi is linearised. Both give
the Newton system

    (A Theta A^T + diag(s / a)) da = f,    Theta the derivative of Psi^{-1}.

For l_p it multiplies entries by theta = (q - 1) |m|^{q-2}  or  |w|^{2-p} / (p - 1), where |w|
counts as psi^{-1}(|m|) if it is less: these agree at the optimum, but before it an entry that is
nearly zero, and is not to stay so, would be sent far beyond its place. For Schatten p the
derivative is plain in the bases of the singular vectors (`lp.divided_differences`). The norm and
its p-th power have the same minimisers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnsvm.linalg.decompositions import full_svd, largest, thin_svd, total
from attnsvm.norm.base import Norm
from attnsvm.norm.cone import Cone, Point, size_of, step_length
from attnsvm.norm.lp import conjugate, divided_differences
from attnsvm.norm.rows import Rows, weighted

SMALL = 1e-7
"""Entries or singular values that are smaller, relative to the largest, count as this in the
derivative."""


Derivative = tuple[Rows, Tensor, Tensor | None, Tensor, Callable[[Tensor], Tensor]]
"""The derivative Theta of Psi^{-1}: rows in bases U, V where it mixes entries ij and ji only.

(Theta X)_ij = theta_ij X_ij + beta_ij X_ji. After theta and beta come M - Psi(W) in these bases,
and the map of X to U X V^T.
"""


class PowerCone(Cone[Point]):
    """The cone of the l_p or the Schatten p norm."""

    def __init__(self, norm: Norm, rows: Rows, p: float, of_spectrum: bool) -> None:
        super().__init__(norm, rows)
        self.p, self.q, self.of_spectrum = p, conjugate(p), of_spectrum

    def start(self, W: Tensor, a: Tensor) -> Point:
        """Return a point whose multipliers are scaled for the greatest dual objective."""
        W, s, near = self.centred(W, a)
        # of right-hand sides of both signs the value of multipliers inside of the cone may be < 0
        scaled = torch.where(total(self.rows.h * near) > 0, near, a)
        powers = size_of(self.norm.dual, self.rows.combine(scaled)) ** self.q
        # maximises h^T a - sum |M(a)|^q / q
        size = (total(self.rows.h * scaled) / powers) ** (1 / (self.q - 1))
        return Point(W, s, near * size)

    def evaluated(self, x: Point) -> tuple[Point, Tensor]:
        """Return the point and M(a); for p < 2, W = Psi^{-1}(M(a))."""
        M = self.rows.combine(x.a)
        if self.p > 2:
            return x, M
        return Point(self._signed_power(M, self.q - 1), x.s, x.a), M

    def step(self, x: Point, M: Tensor, margin: Tensor) -> Point:
        """Return the point after a step of Mehrotra's method."""
        rows = self.rows
        derivative = self._of_singular_values if self.of_spectrum else self._of_entries
        turned, theta, beta, rest, back = derivative(x, M)
        shift = turned.margins(weighted(theta, beta, rest))
        rs = rows.h - margin + rows.on_inequalities(x.s) - shift
        solve = rows.solver(turned.gram(theta, beta), x.s, x.a)

        def direction(cs: Tensor) -> Point:
            da = solve(rs + rows.on_inequalities(cs / x.a))
            ds = rows.on_inequalities((cs - x.s * da) / x.a)
            if self.p < 2:
                return Point(torch.zeros_like(x.W), ds, da)
            return Point(back(weighted(theta, beta, turned.combine(da) + rest)), ds, da)

        return self.corrected(x, direction)

    def moved(self, x: Point, dx: Point, back: float) -> Point:
        """Return the point after `back` times the largest step, primal and dual."""
        t = step_length(*self.moves(x, dx.s, dx.a), back=back)
        return x.moved(dx, t, t, ())

    def _signed_power(self, X: Tensor, exponent: float) -> Tensor:
        """Return Psi(X) with this exponent: of entries, or of singular values."""
        if not self.of_spectrum:
            return X.sign() * X.abs() ** exponent
        U, sigma, V = thin_svd(X)
        return (U * (sigma**exponent)[:, None]) @ V.mT

    def _of_entries(self, x: Point, M: Tensor) -> Derivative:
        if self.p < 2:
            theta, rest = (self.q - 1) * M.abs() ** (self.q - 2), torch.zeros_like(M)
        else:
            size, e = x.W.abs(), self.p - 1
            powers = size**e
            floor = (SMALL * largest(size)) ** e
            away = torch.maximum(torch.maximum(powers, M.abs()), floor)
            theta, rest = away ** ((1 - e) / e) / e, M - x.W.sign() * powers
        return self.rows, theta, None, rest, lambda X: X

    def _of_singular_values(self, x: Point, M: Tensor) -> Derivative:
        inverse = self.p > 2
        U, sigma, V = full_svd(x.W if inverse else M)
        exponent = self.p - 1 if inverse else self.q - 1
        y = torch.maximum(sigma, SMALL * sigma[:, :1])
        f, slope = y**exponent, exponent * y ** (exponent - 1)
        of = (f, y, 1 / slope) if inverse else (y, f, slope)
        theta, beta = divided_differences(*of, shape=M.shape[1:3])
        rest = torch.zeros_like(M)
        if inverse:
            rest = U.mT @ M @ V
            r = sigma.shape[1]
            rest.diagonal(0, 1, 2)[:, :r] -= (sigma**exponent)[..., 0]
        return self.rows.turned(U, V), theta, beta, rest, lambda X: U @ X @ V.mT
