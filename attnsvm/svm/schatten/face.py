r"""Newton's method on the optimal face: the last digits of spectral and Schatten-norm solutions.

Unlike an interior-point step it does not square the conditioning.

Spectral norm: M(a) has rank r, and W maps its right singular vectors to t times the left ones. With
M(a) = L R^T, L (p, r) and R (q, r) balanced, and P the active rows, the conditions are

    W R = t L,    W^T L = t R,    M(a) = L R^T,    d_k^T W z_k = h_k  (k in P),    ||L||_F^2 = 1.

L and R are unique only up to an orthogonal r x r matrix, W not at all beyond them and P, so every
step is the least-norm least-squares solution.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

STEPS = 8
FAR = 10.0
"""Least size, relative to the point, of a Newton step that counts as divergence."""

ROUNDS = 6
SLACK = 1e-11
"""Tolerance of margins, relative to h_k, when rows enter or leave."""

GUESSES = tuple(itertools.product((0, 1, -1), (1.0, 1e-2, 1e-4), (1e-13, 1e-8)))
"""Rank less the number of large singular values of M(a); active: multiplier > factor * slack; where
small singular values of the equations are cut."""

POWER_GUESSES = tuple(itertools.product((1.0, 1e-2, 1e2, 1e-4), (1e-13, 1e-9)))
"""Active: multiplier > factor * slack; where small singular values of the equations are cut."""

POWER_ROUNDS = 30
"""With p > 2 the steps converge only linearly along singular values that tend to zero."""

TINY = 1e-9
"""Relative to the largest: smaller singular values count as this in the derivative."""

CLOSE = 1e-6
"""Relative distance of singular values that count as equal in the derivative."""


def polish_spectral(
    D: Array, Q: Array, h: Array, free: Mask, W: Array, a: Array
) -> Iterator[tuple[Array, Array]]:
    """Yield W (p, q) and a (N,) on one face after the other, until the caller stops.

    Parameters
    ----------
    D, Q : (N, p), (N, q)
        Rows d_k and z_k of unit size.
    h : (N,)
        Right-hand sides.
    free : (N,) bool
        The equalities.
    W, a : (p, q), (N,)
        A primal and a dual point.
    """
    size = float(np.linalg.norm(W, 2))
    U, sigma, Vt = np.linalg.svd((D * a[:, None]).T @ Q, full_matrices=False)
    total = sigma.sum()
    if not (size > 0 and total > 0):
        return
    a, sigma, h, W = a / total, sigma / total, h / size, W / size
    apart = 1 - np.abs(np.einsum("ir,ij,rj->r", U, W, Vt))
    slack = ((D @ W) * Q).sum(axis=1) - h
    for shift, factor, cut in GUESSES:
        r = min(max(int((sigma > apart).sum()) + shift, 1), len(sigma))
        root = np.sqrt(sigma[:r])
        support = free | ((h > 0) & (a > factor * slack))
        point = (W, U[:, :r] * root, Vt[:r].T * root)
        for _ in range(ROUNDS):
            if not support.any():
                break
            face = _Face(D[support], Q[support], h[support], *point, a[support])
            if not face.converge(cut):
                break
            multipliers = np.zeros_like(a)
            multipliers[support] = face.a
            yield size * face.W, multipliers
            missed = ((D @ face.W) * Q).sum(axis=1) - h
            enter = ~free & (h > 0) & ~support & (missed < -SLACK * h)
            leave = ~free & (h > 0) & support & ((multipliers < 0) | (missed > SLACK * h))
            if not enter.any() and not leave.any():
                break
            support = (support | enter) & ~leave


class _Face:
    """The smooth system on the support: t, W (p, q), L (p, r), R (q, r), a (|P|,)."""

    def __init__(
        self, D: Array, Q: Array, h: Array, W: Array, L: Array, R: Array, a: Array
    ) -> None:
        self.D, self.Q, self.h, self.W, self.L, self.R, self.a = D, Q, h, W, L, R, a
        self.t = 1.0
        self.unit_a = max(float(np.abs(a).max()), 1e-300)
        self.unit_h = max(float(np.abs(h).max()), 1e-300)
        self.rows = (D[:, :, None] * Q[:, None, :]).reshape(len(D), -1)

    def converge(self, cut: float) -> bool:
        """Take Newton steps until they are negligible; return False if they diverge."""
        for _ in range(STEPS):
            size = self._newton(cut)
            if not size < FAR:
                return False
            if size < 1e-15:
                break
        return True

    def _newton(self, cut: float) -> float:
        """Take one step; return its size relative to the point."""
        step = np.linalg.lstsq(self._jacobian(), -self._residual(), rcond=cut)[0]
        ends = np.cumsum([1, self.W.size, self.L.size, self.R.size])
        t, W, L, R, a = np.split(step, ends)
        self.t += float(t[0])
        self.W = self.W + W.reshape(self.W.shape)
        self.L, self.R = self.L + L.reshape(self.L.shape), self.R + R.reshape(self.R.shape)
        self.a = self.a + a * self.unit_a
        return float(np.abs(step).max())

    def _residual(self) -> Array:
        W, L, R, t = self.W, self.L, self.R, self.t
        parts = (W @ R - t * L, W.T @ L - t * R, self._M() - L @ R.T)
        margins = (self.rows @ W.ravel() - self.h) / self.unit_h
        return np.concatenate([*(x.ravel() for x in parts), margins, [(L * L).sum() - 1]])

    def _M(self) -> Array:
        return (self.a @ self.rows).reshape(self.W.shape)

    def _jacobian(self) -> Array:
        """Rows: those of the residual; columns: t, W, L, R, a / unit_a."""
        W, L, R, t = self.W, self.L, self.R, self.t
        (p, r), q, m = L.shape, len(R), len(self.a)
        J = np.zeros(((p + q) * r + p * q + m + 1, 1 + p * q + (p + q) * r + m))
        starts = np.cumsum([0, p * r, q * r, p * q, m, 1])
        left, right, product, active, unit = map(slice, starts[:-1], starts[1:])
        starts = np.cumsum([0, 1, p * q, p * r, q * r, m])
        t_, W_, L_, R_, a_ = map(slice, starts[:-1], starts[1:])
        I_p, I_q, I_r = np.eye(p), np.eye(q), np.eye(r)
        J[left, t_], J[right, t_] = -L.reshape(-1, 1), -R.reshape(-1, 1)
        J[left, W_] = np.kron(I_p, R.T)
        J[right, W_] = np.einsum("ir,jk->jrik", L, I_q).reshape(q * r, p * q)
        J[left, L_], J[right, R_] = -t * np.eye(p * r), -t * np.eye(q * r)
        J[left, R_], J[right, L_] = np.kron(W, I_r), np.kron(W.T, I_r)
        J[product, L_] = -np.einsum("ik,jr->ijkr", I_p, R).reshape(p * q, p * r)
        J[product, R_] = -np.einsum("ir,jk->ijkr", L, I_q).reshape(p * q, q * r)
        J[product, a_] = self.rows.T * self.unit_a
        J[active, W_] = self.rows / self.unit_h
        J[unit, L_] = 2 * L.reshape(1, -1)
        return J


def polish_power(
    D: Array, Q: Array, h: Array, free: Mask, W: Array, a: Array, p: float
) -> Iterator[tuple[Array, Array]]:
    """Yield W (p, q) and a (N,) of the Schatten p norm after Newton steps on the active rows.

    In an orthonormal basis of matrices where the derivative of Psi at W is diag(1 / theta), with
    B = diag(theta)^{1/2} G_S^T = U S V^T of the active rows G_S, and r = h_S - G_S w,
    g = theta^{1/2} Psi(W), the step and the multipliers are

        theta^{1/2} (U S^{-1} V^T r - (I - U U^T) g),    a_S = V S^{-1} (U^T g + S^{-1} V^T r).

    Arguments as those of `polish_spectral`.
    """
    for factor, cut in POWER_GUESSES:
        X, y = W, a
        slack = ((D @ X) * Q).sum(axis=1) - h
        share = y / max(float(np.abs(y).sum()), 1e-300)
        support = free | ((h > 0) & (share > factor * slack / np.linalg.norm(X, 2)))
        for _ in range(POWER_ROUNDS):
            if not support.any():
                break
            left, sigma, right = np.linalg.svd(X)
            root = np.sqrt(_inverse_derivative(sigma, X.shape, p))
            powers = np.zeros(X.shape)
            np.fill_diagonal(powers, sigma ** (p - 1))
            turned = (D[support] @ left)[:, :, None] * (Q[support] @ right.T)[:, None, :]
            B = (root * _pairs(turned)).reshape(len(turned), -1).T
            g = (root * powers).ravel()
            U, s, Vt = np.linalg.svd(B, full_matrices=False)
            kept = s > cut * s[0]
            U, s, Vt = U[:, kept], s[kept], Vt[kept]
            missing = Vt @ (h[support] - ((D[support] @ X) * Q[support]).sum(axis=1)) / s
            along = U.T @ g
            step = root * (U @ (missing + along) - g).reshape(X.shape)
            X, y = X + left @ _pairs(step) @ right, np.zeros_like(a)
            y[support] = Vt.T @ ((along + missing) / s)
            if not (np.isfinite(X).all() and np.isfinite(y).all()):
                break
            yield X, y
            missed = ((D @ X) * Q).sum(axis=1) - h
            enter = ~free & (h > 0) & ~support & (missed < -SLACK * h)
            leave = ~free & (h > 0) & support & (y < 0)
            support = (support | enter) & ~leave


def _inverse_derivative(sigma: Array, shape: tuple[int, ...], p: float) -> Array:
    """Return theta (p, q) in the basis of `_pairs`: for i <= j the symmetric parts, else others."""
    x = np.zeros(max(shape))
    x[: len(sigma)] = np.maximum(sigma, TINY * sigma[0])
    f = x ** (p - 1)
    rows, columns = x[: shape[0], None], x[None, : shape[1]]
    f_rows, f_columns = f[: shape[0], None], f[None, : shape[1]]
    sums = (rows + columns) / (f_rows + f_columns)
    apart = np.abs(rows - columns) > CLOSE * (rows + columns)
    slope = np.where(apart, f_rows - f_columns, 1.0) / np.where(apart, rows - columns, 1.0)
    differences = np.where(apart, 1 / np.where(apart, slope, 1.0), sums / (p - 1))
    r = len(sigma)
    theta = sums
    theta[:r, :r] = np.where(np.tri(r, k=-1), sums[:r, :r], differences[:r, :r])
    return theta


def _pairs(X: Array) -> Array:
    """Return X with (X_ij + X_ji) / sqrt(2) for i < j, (X_ji - X_ij) / sqrt(2) for i > j.

    For i, j < r = min(p, q); the other entries stay. It is an orthogonal map, and its own inverse.
    """
    r = min(X.shape[-2:])
    block, result = X[..., :r, :r], X.copy()
    other, below = block.swapaxes(-1, -2), np.tri(r, k=-1)
    mixed = np.where(below, other - block, other + block) / np.sqrt(2)
    result[..., :r, :r] = np.where(np.eye(r), block, mixed)
    return result
