r"""The spectral norm, by an interior-point method with the direction of Nesterov and Todd.

    primal  min t       s.t.  S = [[t I, -W], [-W^T, t I]] >= 0,  d_k^T W z_k - s_k = h_k,  s_k >= 0
    dual    max h^T a   s.t.  Y = [[Y_1, M / 2], [M^T / 2, Y_2]] >= 0,  tr Y = 1,
                              M = sum_k a_k d_k z_k^T,  a_k >= 0

(s_k = 0 and a_k free on equalities). Optimality: Y S = nu I, a_k s_k = nu, nu -> 0, with Mehrotra's
second-order correction (M. Todd, K. Toh, R. Tutuncu, SIAM J. Optim. 8, 1998). Scaling, with
Cholesky factors S = L_S L_S^T, Y = L_Y L_Y^T and L_S^T L_Y = U diag(delta) R^T:

    G = L_Y R diag(delta)^{-1/2}:  G^T S G = G^{-1} Y G^{-T} = diag(delta),  V = G G^T,  V S V = Y.

With dW = dt W / t + X the step in t is along S / t, whose image under the scaling is Y / t; hence
nothing cancels where S is almost singular. Eliminating X, dt and ds leaves the N x N system

    (A H^{-1} A^T / 2 + c c^T / kappa + diag(s / a)) da = f

with H X = V_11 X V_22 + V_12 X^T V_12, (A X)_k = d_k^T X z_k, C = Y_12 / t, c = A (W / t + H^{-1}
C) and kappa = <S, Y> / t^2 - 2 <C, H^{-1} C>. With V_11 = L_1 L_1^T, V_22 = L_2 L_2^T and
L_1^{-1} V_12 L_2^{-T} = U_1 diag(c) U_2^T, H is X -> X + diag(c) X^T diag(c) for dW = X_1 X X_2^T,
X_1 = L_1^{-T} U_1, X_2 = L_2^{-T} U_2: pairs of entries, inverted at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.linalg.decompositions import (
    blocks,
    cholesky,
    definite_step,
    diagonal,
    full_svd,
    identity,
    inverse_factor,
    thin_svd,
    total,
)
from attnsvm.norm.cone import BOUNDARY, CENTRING, Cone, Point, size_of, step_length
from attnsvm.norm.rows import weighted


@dataclass(frozen=True)
class SpectralPoint(Point):
    """With t (1, 1), Y (P, P), P = p + q, and of the scaling delta (P, 1), G (P, P)."""

    t: Tensor
    Y: Tensor
    delta: Tensor
    G: Tensor


Direction = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""Changes of t, W / t, s and a, and of S and Y in the scaling."""


class SpectralCone(Cone[SpectralPoint]):
    """The cone of the spectral norm."""

    def sizes(self, x: SpectralPoint, M: Tensor) -> tuple[Tensor, Tensor]:
        """Return t and the nuclear norm of M."""
        return x.t, size_of(self.norm.dual, M)

    def start(self, W: Tensor, a: Tensor) -> SpectralPoint:
        """Return a strictly feasible point near the Frobenius solution."""
        rows, (p, q) = self.rows, W.shape[1:3]
        W, s, a = self.centred(W, a)
        M = rows.combine(a)
        U, sigma, V = thin_svd(M)
        size = sigma.sum(1)[:, None, None]
        Y = 0.5 * blocks(U, sigma, V, M) + 0.3 / (p + q) * size * identity(p + q, M)
        Y /= 1.3 * size
        t = 1.3 * size_of(self.norm, W)
        S = (t * identity(p + q, Y)).contiguous()
        S[:, :p, p:], S[:, p:, :p] = -W, -W.mT
        L = cholesky(Y)
        delta, G = _scaling(cholesky(S), L, L)
        return SpectralPoint(W, s, a / (1.3 * size), t, Y, delta, G)

    def step(self, x: SpectralPoint, M: Tensor, margin: Tensor) -> SpectralPoint:
        """Return the point after a step with Mehrotra's second-order correction."""
        rows, t, (p, q) = self.rows, x.t, x.W.shape[1:3]
        r = min(p, q)
        G_1, G_2 = x.G[:, :p], x.G[:, p:]
        T_1, T_2 = (inverse_factor(G_i @ G_i.mT) for G_i in (G_1, G_2))
        H_1, H_2 = T_1.mT @ G_1, T_2.mT @ G_2
        U_1, cosine, U_2 = full_svd(H_1 @ H_2.mT)
        X_1, X_2 = T_1 @ U_1, T_2 @ U_2
        H_1, H_2 = U_1.mT @ H_1, U_2.mT @ H_2
        both = cosine * cosine.mT
        inverse = 1 / ((1 - both) * (1 + both))
        theta, beta = torch.ones_like(x.W), -both * inverse
        theta[:, :r, :r] = inverse
        turned = rows.turned(X_1, X_2)

        Y_12 = x.Y[:, :p, p:]
        rho, C = 0.5 * M - Y_12, X_1.mT @ Y_12 @ X_2 / t
        HC = weighted(theta, beta, C)
        inner, left = total(x.delta.square()), 1 - total(diagonal(x.Y))
        kappa = inner / t**2 - 2 * total(C * HC)
        c = turned.margins(HC) + margin / t
        K = turned.gram(theta, beta).mul_(0.5).addcmul_(c / kappa, c.mT)
        solve = rows.solver(K, x.s, x.a)
        rs = rows.h - margin + rows.on_inequalities(x.s)
        along, turned_rho = 2 * total(x.W * rho), X_1.mT @ rho @ X_2

        def direction(R: Tensor, cs: Tensor) -> Direction:
            target = turned_rho - H_1 @ R @ H_2.mT
            X = weighted(theta, beta, target)
            tau = (along + total(x.delta * diagonal(R))) / t - left + 2 * total(C * X)
            f = rs + rows.on_inequalities(cs / x.a) - turned.margins(X) - c * (tau / kappa)
            da = solve(f)
            dt = (tau + total(c * da)) / kappa
            X = X + 0.5 * weighted(theta, beta, turned.combine(da)) + dt * HC
            dS = -(H_1.mT @ X @ H_2)
            dS = dS + dS.mT + identity(p + q, dS) * (dt / t * x.delta)
            ds = rows.on_inequalities((cs - x.s * da) / x.a)
            return dt, X_1 @ X @ X_2.mT, ds, da, dS, R - dS

        sa, eye = x.s * x.a, identity(p + q, x.Y)
        count = p + q + total(rows.inequality)
        nu = CENTRING * (inner + total(rows.on_inequalities(sa))) / count
        _, _, ds, da, dS, dY = direction(-eye * x.delta, -sa)
        curve = dS @ dY
        curve = (curve + curve.mT) / (x.delta + x.delta.mT)
        R = eye * (nu / x.delta - x.delta) - curve
        return self._moved(x, direction(R, nu - sa - ds * da))

    def _moved(self, x: SpectralPoint, dx: Direction) -> SpectralPoint:
        """Return the point after most of the largest primal and dual steps."""
        diag, (dt, X, ds, da, dS, dY) = identity(x.Y.shape[1], x.Y) * x.delta, dx
        primal, dual = (step_length(pair, back=BOUNDARY) for pair in self.moves(x, ds, da))
        primal = BOUNDARY * definite_step(diag, dS, None, primal / BOUNDARY)
        dual = BOUNDARY * definite_step(diag, dY, None, dual / BOUNDARY)
        L_S, L_Y = cholesky(diag + primal * dS), cholesky(diag + dual * dY)
        delta, G = _scaling(L_S, L_Y, x.G @ L_Y)
        change, stretch = x.G @ dY @ x.G.mT, 1 + primal * dt / x.t
        return SpectralPoint(
            stretch * x.W + primal * X,
            x.s + primal * ds,
            x.a + dual * da,
            stretch * x.t,
            x.Y + 0.5 * dual * (change + change.mT),
            delta,
            G,
        )


def _scaling(L_S: Tensor, L_Y: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """Return delta and G = root R diag(delta)^{-1/2} of L_S^T L_Y = U diag(delta) R^T."""
    _, delta, R = thin_svd(L_S.mT @ L_Y)
    return delta[..., None], root @ R / delta[:, None].sqrt()
