r"""The spectral norm: an interior-point method on changing rows.

Its equations and names are those of `attnsvm.svm.schatten.interior_point`; here one instance at a
time, so that products and factorisations of its many rows are those of BLAS and LAPACK.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.svm.large.predictor_corrector import Point, PredictorCorrector, length

CENTRING = 0.1
BOUNDARY = 0.95
"""Share of the way to the boundary of the cone."""


@dataclass(frozen=True)
class SpectralPoint(Point):
    """With t, Y (2d, 2d), and delta (2d,), G (2d, 2d): G^T S G = G^{-1} Y G^{-T} = diag(delta)."""

    t: Tensor
    Y: Tensor
    delta: Tensor
    G: Tensor


@dataclass(frozen=True)
class Direction:
    """Changes of t, W / t, s and a, and of S and Y in the scaling."""

    dt: Tensor
    X: Tensor
    ds: Tensor
    da: Tensor
    dS: Tensor
    dY: Tensor


class SpectralOnRows(PredictorCorrector[SpectralPoint]):
    """The spectral norm on some rows."""

    def start(self, W: Tensor, a: Tensor) -> SpectralPoint:
        """Return a strictly positive point near the Frobenius solution."""
        rows, d = self.rows, len(W)
        W, s, size = self.near(W, a)
        top = self.on_inequalities(a).amax().clamp(min=0.0)
        a = torch.where(rows.inequality, a.clamp(min=0.0) + 0.1 * top, a)
        M = rows.combine(a)
        U, sigma, Vt = torch.linalg.svd(M)
        total = sigma.sum()
        Y = torch.cat(
            (torch.cat((U * sigma @ U.mT, M), 1), torch.cat((M.mT, Vt.mT * sigma @ Vt), 1))
        )
        Y = (0.5 * Y + 0.15 / d * total * torch.eye(2 * d, dtype=Y.dtype)) / (1.3 * total)
        t = 1.3 * torch.linalg.matrix_norm(W, 2)
        S = t * torch.eye(2 * d, dtype=W.dtype)
        S[:d, d:], S[d:, :d] = -W, -W.mT
        L = torch.linalg.cholesky(Y)
        delta, G = _scaling(torch.linalg.cholesky(S), L, L)
        s = torch.where(rows.inequality, s + 0.1 * size, 1.0)
        return SpectralPoint(W, s, a / (1.3 * total), t, Y, delta, G)

    def step(self, x: SpectralPoint, M: Tensor, margin: Tensor) -> SpectralPoint | None:
        """Return the point after a step with Mehrotra's second-order correction."""
        rows, t, d = self.rows, x.t, len(x.W)
        G_1, G_2 = x.G[:d], x.G[d:]
        L_1, info_1 = torch.linalg.cholesky_ex(G_1 @ G_1.mT)
        L_2, info_2 = torch.linalg.cholesky_ex(G_2 @ G_2.mT)
        if info_1 or info_2:
            return None
        V_12 = _solved(L_2, _solved(L_1, G_1 @ G_2.mT).mT).mT
        U_1, cosine, U_2t = torch.linalg.svd(V_12)
        X_1, X_2 = _solved(L_1.mT, U_1, upper=True), _solved(L_2.mT, U_2t.mT, upper=True)
        H_1, H_2 = X_1.mT @ G_1, X_2.mT @ G_2
        both = cosine[:, None] * cosine
        theta = 1 / ((1 - both) * (1 + both))
        beta = -both * theta
        turned = rows.turned(X_1, X_2)

        Y_12 = x.Y[:d, d:]
        rho, C = 0.5 * M - Y_12, X_1.mT @ Y_12 @ X_2 / t
        HC = theta * C + beta * C.mT
        inner, left = x.delta @ x.delta, 1 - x.Y.trace()
        kappa = inner / t**2 - 2 * (C * HC).sum()
        c = turned.margins(HC) + margin / t
        K = turned.weighted_gram(theta, beta).mul_(0.5).addr_(c, c, alpha=float(1 / kappa))
        solve = rows.solver(K, x.s, x.a)
        if solve is None:
            return None
        rs = rows.h - margin + self.on_inequalities(x.s)
        along, turned_rho = 2 * (x.W * rho).sum(), X_1.mT @ rho @ X_2

        def direction(R: Tensor, cs: Tensor) -> Direction:
            target = turned_rho - H_1 @ R @ H_2.mT
            X = theta * target + beta * target.mT
            tau = (along + x.delta @ R.diagonal()) / t - left + 2 * (C * X).sum()
            f = rs + self.on_inequalities(cs / x.a) - turned.margins(X) - c * (tau / kappa)
            da = solve(f)
            dt = (tau + c @ da) / kappa
            dM = turned.combine(da)
            X = X + 0.5 * (theta * dM + beta * dM.mT) + dt * HC
            dS = -(H_1.mT @ X @ H_2)
            dS = dS + dS.mT + torch.diag(dt / t * x.delta)
            ds = self.on_inequalities((cs - x.s * da) / x.a)
            return Direction(dt, X_1 @ X @ X_2.mT, ds, da, dS, R - dS)

        sa = x.s * x.a
        count = 2 * d + rows.inequality.sum()
        nu = CENTRING * (inner + self.on_inequalities(sa).sum()) / count
        first = direction(torch.diag(-x.delta), -sa)
        curve = first.dS @ first.dY
        curve = (curve + curve.mT) / (x.delta[:, None] + x.delta)
        R = torch.diag(nu / x.delta - x.delta) - curve
        return self._moved(x, direction(R, nu - sa - first.ds * first.da))

    def _moved(self, x: SpectralPoint, dx: Direction) -> SpectralPoint | None:
        """Return the point after most of the largest primal and dual steps."""
        root = x.delta.sqrt()
        one = torch.ones_like(root)
        worst_S, worst_Y = (
            torch.linalg.eigvalsh(V / root / root[:, None])[0] for V in (dx.dS, dx.dY)
        )
        primal = length((x.s, dx.ds), (one[:1], worst_S[None]), back=BOUNDARY)
        dual = length((x.a, self.on_inequalities(dx.da)), (one[:1], worst_Y[None]), back=BOUNDARY)
        L_S, info_S = torch.linalg.cholesky_ex(torch.diag(x.delta) + primal * dx.dS)
        L_Y, info_Y = torch.linalg.cholesky_ex(torch.diag(x.delta) + dual * dx.dY)
        if info_S or info_Y:
            return None
        delta, G = _scaling(L_S, L_Y, x.G @ L_Y)
        dY = x.G @ dx.dY @ x.G.mT
        stretch = 1 + primal * dx.dt / x.t
        return SpectralPoint(
            stretch * x.W + primal * dx.X,
            x.s + primal * dx.ds,
            x.a + dual * dx.da,
            stretch * x.t,
            x.Y + 0.5 * dual * (dY + dY.mT),
            delta,
            G,
        )


def _solved(L: Tensor, X: Tensor, upper: bool = False) -> Tensor:
    """Return L^{-1} X of a triangular L."""
    solution: Tensor = torch.linalg.solve_triangular(L, X, upper=upper)
    return solution


def _scaling(L_S: Tensor, L_Y: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """Return delta and G = root R diag(delta)^{-1/2} of L_S^T L_Y = U diag(delta) R^T."""
    _, delta, Rt = torch.linalg.svd(L_S.mT @ L_Y)
    return delta, root @ Rt.mT / delta.sqrt()
