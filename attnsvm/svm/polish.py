r"""Newton's method on the optimal face: the last digits of a nuclear-norm solution.

Near the optimum of rank r with support P (the active rows) write W = L R^T, so that
||W||_* = (||L||_F^2 + ||R||_F^2) / 2 at a balanced factorisation. The optimality conditions

    L = M(a) R,    R = M(a)^T L,    d_k^T L R^T z_k = h_k  (k in P)

are smooth and free of the interior point's growing conditioning. The factors turn freely by an
orthogonal r x r matrix and multipliers of a degenerate vertex are not unique, so every Newton step
is the least-norm least-squares one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS = 8


def polish(
    D: Array, Q: Array, h: Array, free: NDArray[np.bool_], W: Array, a: Array
) -> tuple[Array, Array]:
    """Return W (p, q) and a (N,) moved to the nearest solution on their own face.

    Parameters
    ----------
    D, Q : (N, p), (N, q)
        Rows d_k and z_k, of comparable size.
    h : (N,)
        Right-hand sides; zero rows of D are padding.
    free : (N,) bool
        The equality rows, always in the support.
    W, a : (p, q), (N,)
        A primal and a dual point with a bracket of about 1e-6 or better, ||M(a)||_op = 1.
    """
    U, sigma, Vt = np.linalg.svd(W, full_matrices=False)
    size = sigma.sum()
    cosine = np.linalg.svd((D * a[:, None]).T @ Q, compute_uv=False)
    rank = max(int((sigma / size > 1 - cosine).sum()), 1)
    slack = ((D @ W) * Q).sum(axis=1) / np.where(h > 0, h, 1.0) - 1
    support = np.flatnonzero(free | ((a * h / (a @ h) > slack) & (h > 0)))
    if not support.size:
        return W, a
    root = np.sqrt(sigma[:rank] / size)
    face = _Face(
        D[support],
        Q[support],
        h[support] / size,
        U[:, :rank] * root,
        Vt[:rank].T * root,
        a[support],
    )
    for _ in range(STEPS):
        if face.newton() < 1e-15:
            break
    polished = np.zeros_like(a)
    polished[support] = face.a
    return size * face.L @ face.R.T, polished


class _Face:
    """The smooth system on the support: L (p, r), R (q, r), a (|P|,)."""

    def __init__(self, D: Array, Q: Array, h: Array, L: Array, R: Array, a: Array) -> None:
        self.D, self.Q, self.h, self.L, self.R, self.a = D, Q, h, L, R, a
        self.unit_a = max(float(np.abs(a).max()), 1e-300)  # the multipliers' own unit
        self.unit_h = max(float(np.abs(h).max()), 1e-300)

    def newton(self) -> float:
        """Take one step; return its size relative to the point."""
        (p, r), q = self.L.shape, len(self.R)
        step = np.linalg.lstsq(self._jacobian(), -self._residual(), rcond=1e-13)[0]
        self.L = self.L + step[: p * r].reshape(p, r)
        self.R = self.R + step[p * r : (p + q) * r].reshape(q, r)
        self.a = self.a + step[(p + q) * r :] * self.unit_a
        return float(np.abs(step).max())

    def _residual(self) -> Array:
        M = (self.D * self.a[:, None]).T @ self.Q
        margins = ((self.D @ self.L) * (self.Q @ self.R)).sum(axis=1)
        stationary = (self.L - M @ self.R, self.R - M.T @ self.L)
        return np.concatenate([*(s.ravel() for s in stationary), (margins - self.h) / self.unit_h])

    def _jacobian(self) -> Array:
        """Rows: the two stationarity blocks and the margins; columns: L, R, a / unit_a."""
        (p, r), q, m = self.L.shape, len(self.R), len(self.a)
        M = (self.D * self.a[:, None]).T @ self.Q
        J = np.zeros(((p + q) * r + m, (p + q) * r + m))
        left, right, dual = slice(0, p * r), slice(p * r, (p + q) * r), slice((p + q) * r, None)
        eye = np.eye(r)
        J[left, left] = np.eye(p * r)
        J[right, right] = np.eye(q * r)
        J[left, right] = -np.kron(M, eye)
        J[right, left] = -np.kron(M.T, eye)
        by_L = (self.D[:, :, None] * (self.Q @ self.R)[:, None, :]).reshape(m, p * r)
        by_R = (self.Q[:, :, None] * (self.D @ self.L)[:, None, :]).reshape(m, q * r)
        J[left, dual], J[right, dual] = -by_L.T * self.unit_a, -by_R.T * self.unit_a
        J[dual, left], J[dual, right] = by_L / self.unit_h, by_R / self.unit_h
        return J
