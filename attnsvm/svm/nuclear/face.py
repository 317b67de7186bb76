r"""Newton's method on the optimal face: the last digits of a nuclear-norm solution.

Near the optimum of rank r with support P (the active rows) write W = L R^T, so that
||W||_* = (||L||_F^2 + ||R||_F^2) / 2 at a balanced factorisation. The optimality conditions

    L = M(a) R,    R = M(a)^T L,    d_k^T L R^T z_k = h_k  (k in P)

are smooth, and their conditioning does not grow as that of an interior-point method does. The
factors are unique only up to an orthogonal r x r matrix, and the multipliers of a degenerate vertex
are not unique, so every Newton step is the least-norm least-squares solution.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS = 8
FAR = 10.0  # least size, relative to the point, of a Newton step that counts as divergence
ROUNDS = 6
SLACK = 1e-11  # tolerance of margins, relative to h_k, when rows enter or leave the support
# Guesses, the most likely first: rank = shift + number of sigma_i > 1 - cosine_i; support =
# {k : a_k > factor * slack_k}; where to cut small singular values of a Newton system (nearly equal
# rows need a coarse cut, nearly contradictory rows a fine one).
GUESSES = tuple(itertools.product((0, 1, -1), (1.0, 1e-2, 1e-4), (1e-13, 1e-8)))


def polish(
    D: Array, Q: Array, h: Array, free: NDArray[np.bool_], W: Array, a: Array
) -> Iterator[tuple[Array, Array]]:
    """Yield W (p, q) and a (N,) on one face after the other, until the caller stops.

    The support is corrected as in an active-set method: violated rows enter; rows leave if their
    multiplier is negative, or if they contradict the others (nearly equal rows). Guesses often lead
    to the same faces; each is solved once.

    Parameters
    ----------
    D, Q : (N, p), (N, q)
        Rows d_k and z_k of unit size.
    h : (N,)
        Right-hand sides; zero rows of D are padding.
    free : (N,) bool
        The equality rows, always in the support.
    W, a : (p, q), (N,)
        A primal and a dual point with a bracket of about 1e-4 or better, ||M(a)||_op = 1.
    """
    U, sigma, Vt = np.linalg.svd(W, full_matrices=False)
    size = sigma.sum()
    h = h / size
    cosine = np.linalg.svd((D * a[:, None]).T @ Q, compute_uv=False)
    separating = h > 0
    slack = ((D @ W) * Q).sum(axis=1) / size - h
    followed: dict[tuple[int, float, bytes], NDArray[np.bool_] | None] = {}
    for shift, factor, cut in GUESSES:
        rank = min(max(int((sigma / size > 1 - cosine).sum()) + shift, 1), len(sigma))
        root = np.sqrt(sigma[:rank] / size)
        L, R = U[:, :rank] * root, Vt[:rank].T * root
        support = free | (separating & (a / np.abs(a).sum() > factor * slack))
        for _ in range(ROUNDS):
            face_key = rank, cut, support.tobytes()
            if face_key in followed:
                if (known := followed[face_key]) is None:
                    break
                support = known
                continue
            followed[face_key] = None
            if not support.any():
                break
            face = _Face(D[support], Q[support], h[support], L, R, a[support])
            if not face.converge(cut):
                break
            multipliers = np.zeros_like(a)
            multipliers[support] = face.a
            yield size * face.L @ face.R.T, multipliers
            missed = ((D @ face.L) * (Q @ face.R)).sum(axis=1) - h
            enter = separating & ~support & (missed < -SLACK * h)
            leave = separating & support & ((multipliers < 0) | (missed > SLACK * h))
            if not enter.any() and not leave.any():
                break
            support = (support | enter) & ~leave
            followed[face_key] = support


class _Face:
    """The smooth system on the support: L (p, r), R (q, r), a (|P|,)."""

    def __init__(self, D: Array, Q: Array, h: Array, L: Array, R: Array, a: Array) -> None:
        self.D, self.Q, self.h, self.L, self.R, self.a = D, Q, h, L, R, a
        self.unit_a = max(float(np.abs(a).max()), 1e-300)  # unit of the multipliers
        self.unit_h = max(float(np.abs(h).max()), 1e-300)

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
        (p, r), q = self.L.shape, len(self.R)
        step = np.linalg.lstsq(self._jacobian(), -self._residual(), rcond=cut)[0]
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
