r"""The nuclear norm, by an interior-point method with the HKM direction on the dual LMI.

    primal  min (tr W_1 + tr W_2) / 2   s.t.  Y = [[W_1, W], [W^T, W_2]] >= 0,
                                              d_k^T W z_k - s_k = h_k,  s_k >= 0 (0 on equalities)
    dual    max h^T a   s.t.  S = [[I, -M], [-M^T, I]] / 2 >= 0,  M = sum_k a_k d_k z_k^T,
                              a_k >= 0 (free on equalities)

Optimality: Y S = nu I, a_k s_k = nu, nu -> 0. The search direction is HKM's (Helmberg et al. 1996;
Kojima et al. 1997; Monteiro 1997) with Mehrotra's second-order correction. Eliminating dY and ds
leaves the N x N Schur complement

    H_kl + (s_k / a_k) delta_kl,   H_kl = tr(A_k Y A_l V),   V = S^{-1},   A_k = sym(d_k z_k^T),

and since every A_k has rank two, H is a sum of Hadamard products (`Rows.schur`). V comes from the
q x q matrix G = I - M^T M:  V = 2 [[I, 0], [0, 0]] + 2 C C^T,  C = [M; I] T,  G^{-1} = T T^T.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.linalg.decompositions import (
    blocks,
    definite_step,
    diagonal,
    identity,
    inverse_factor,
    largest,
    thin_svd,
    total,
)
from attnsvm.norm.cone import BOUNDARY, CENTRING, Cone, Point, size_of, step_length


@dataclass(frozen=True)
class NuclearPoint(Point):
    """With Y (P, P), P = p + q, of which W is a block."""

    Y: Tensor


class NuclearCone(Cone[NuclearPoint]):
    """The cone of the nuclear norm."""

    def sizes(self, x: NuclearPoint, M: Tensor) -> tuple[Tensor, Tensor]:
        """Return tr Y / 2 >= ||W||_*, and one, a bound of ||M||_op in the cone."""
        return total(diagonal(x.Y)) / 2, torch.ones_like(x.s[:, :1])

    def start(self, W: Tensor, a: Tensor) -> NuclearPoint:
        """Return a strictly feasible point: W enlarged, a reduced; tuned for few steps."""
        rows = self.rows
        W = torch.where(rows.homogeneous, 1.1 * W, W)
        U, sigma, V = thin_svd(W)
        lift = 0.1 * sigma.mean(1)[:, None, None]
        Y = blocks(U, sigma, V, W) + lift * identity(sum(W.shape[1:]), W)
        slack = torch.maximum(rows.margins(W) - rows.h, 0.1 * largest(rows.h.abs()))
        s = torch.where(rows.inequality, slack, 1.0)
        share = 0.3 * total(a.abs()) / self.count()
        a = torch.where(rows.inequality, a.clamp(min=0.0) + share, a * rows.real)
        top = size_of(self.norm.dual, rows.combine(a))
        return NuclearPoint(W, s, 0.95 * a / torch.where(top > 0, top, 1.0), Y)

    def mean(self, x: NuclearPoint) -> Tensor:
        """Return the mean of the products that go to zero: <Y, S> + a^T s by their number."""
        inner = total(diagonal(x.Y)) / 2 - total(x.W * self.rows.combine(x.a))
        inner = inner + total(self.rows.on_inequalities(x.s * x.a))
        return inner / (x.Y.shape[1] + total(self.rows.inequality))

    def step(self, x: NuclearPoint, M: Tensor, margin: Tensor) -> NuclearPoint:
        """Return the point after a step with Mehrotra's second-order correction."""
        (p, q), rows = M.shape[1:3], self.rows
        G = identity(q, M) - M.mT @ M
        T = inverse_factor(G)
        C = torch.cat([M @ T, T], 1)
        V = C @ C.mT
        V[:, :p, :p] += identity(p, V)
        V *= 2
        H = rows.schur(x.Y, V)
        solve = rows.solver(H, x.s, x.a)
        ratio = rows.on_inequalities(x.s / x.a)

        def change(Y: Tensor, da: Tensor) -> Tensor:
            """Return sym(Y sum_k da_k A_k V)."""
            half = 0.5 * rows.combine(da)
            Z = torch.cat([Y[:, :, p:] @ half.mT, Y[:, :, :p] @ half], 2) @ V
            return 0.5 * (Z + Z.mT)

        def direction(target: Tensor, complement: Tensor) -> NuclearPoint:
            da = solve(rows.h - rows.margins(target[:, :p, p:]) + complement)
            dY = target - x.Y + change(x.Y, da)
            ds = rows.on_inequalities(complement - x.s) - ratio * da
            return NuclearPoint(dY[:, :p, p:], ds, da, dY)

        nu = CENTRING * self.mean(x)
        first = direction(torch.zeros_like(V), torch.zeros_like(x.s))
        complement = rows.on_inequalities((nu - first.a * first.s) / x.a)
        dx = direction(nu * V + change(first.Y, first.a), complement)
        primal, dual = (step_length(pair, back=BOUNDARY) for pair in self.moves(x, dx.s, dx.a))
        primal = BOUNDARY * definite_step(x.Y, dx.Y, None, primal / BOUNDARY)
        dM = rows.combine(dx.a)
        linear = M.mT @ dM
        linear, square = -(linear + linear.mT), -(dM.mT @ dM)
        dual = BOUNDARY * definite_step(G, linear, square, dual / BOUNDARY)
        return x.moved(dx, primal, dual, ("a",))
