r"""The last digits of a linear program: the equations that hold on its optimal face.

Near the optimum, strict complementarity says which rows are active, and which entries of W are at a
bound: at +-t (max), or at zero (l1). With G = (vec(d_k z_k^T))_k, S the active rows and I the
entries that are not at a bound, the face is

    max:  G_SI w_I + t G_SB sign_B = h_S,      G_SI^T a_S = 0,          h^T a = 1
    l1:   G_SI w_I = h_S,                      G_SI^T a_S = c sign_I,   h^T a = 1

The point is moved onto it by the least correction. Unlike an interior-point step this does not
square the conditioning.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ROUNDS = 6
SLACK = 1e-11
"""Tolerance of margins, relative to h_k, when rows enter or leave."""

GUESSES = tuple(itertools.product((1.0, 1e-2, 1e2, 1e-4), (1e-13, 1e-9)))
"""Active: multiplier > factor * slack; where small singular values of the equations are cut."""


def polish(
    G: Array, h: Array, free: Mask, w: Array, a: Array, norm: str
) -> Iterator[tuple[Array, Array]]:
    """Yield w (m,) and a (N,) on one face after the other, until the caller stops.

    Parameters
    ----------
    G : (N, m)
        Rows of unit size.
    h : (N,)
        Right-hand sides.
    free : (N,) bool
        The equalities.
    w, a : (m,), (N,)
        A primal and a dual point.
    norm : str
        max or l1.
    """
    for factor, cut in GUESSES:
        x, y = w, a / max(float(np.abs(a).sum()), 1e-300)
        support, entries = _support(G, h, free, x, y, factor), _entries(G, x, y, norm, factor)
        for _ in range(ROUNDS):
            if not support.any():
                break
            x = _primal(G, h, support, entries, x, y @ G, norm, cut)
            y = _dual(G, h, support, entries, x, y, norm, cut)
            if not (np.isfinite(x).all() and np.isfinite(y).all()):
                break
            yield x, y
            missed = G @ x - h
            separating = ~free & (h > 0)
            enter = separating & ~support & (missed < -SLACK * h)
            leave = separating & support & (y < 0)
            if not enter.any() and not leave.any():
                break
            support = (support | enter) & ~leave


def _support(G: Array, h: Array, free: Mask, w: Array, a: Array, factor: float) -> Mask:
    size = max(float(np.abs(w).max()), 1e-300)
    return np.asarray(free | ((h > 0) & (a > factor * (G @ w - h) / size)))


def _entries(G: Array, w: Array, a: Array, norm: str, factor: float) -> Mask:
    """Return which entries of w are not at a bound."""
    m = np.abs(a @ G)
    if norm == "max":
        return np.asarray(1 - np.abs(w) / np.abs(w).max() > factor * m / m.max())
    return np.asarray(np.abs(w) / np.abs(w).max() > factor * (1 - m / m.max()))


def _primal(
    G: Array, h: Array, support: Mask, entries: Mask, w: Array, m: Array, norm: str, cut: float
) -> Array:
    """Return w on the face."""
    columns, x = G[np.ix_(support, entries)], w[entries]
    if norm == "max":
        sign = np.where(m[~entries] < 0, -1.0, 1.0)
        columns = np.column_stack([columns, G[np.ix_(support, ~entries)] @ sign])
        x = np.append(x, np.abs(w).max())
    x = x + np.linalg.lstsq(columns, h[support] - columns @ x, rcond=cut)[0]
    result = np.zeros_like(w)
    if norm == "max":
        result[~entries], x = x[-1] * sign, x[:-1]
    result[entries] = x
    return result


def _dual(
    G: Array, h: Array, support: Mask, entries: Mask, w: Array, a: Array, norm: str, cut: float
) -> Array:
    """Return a on the face."""
    columns, y = G[np.ix_(support, entries)].T, a[support]
    value = float(h[support] @ y)
    if not value > 0:
        return np.full_like(a, np.nan)
    y = y / value
    if norm == "l1":
        columns = np.column_stack([columns, -np.where(w[entries] < 0, -1.0, 1.0)])
        y = np.append(y, np.abs(y @ G[support]).max())
    last = np.append(h[support], np.zeros(columns.shape[1] - int(support.sum())))
    size = max(float(np.abs(last).max()), 1e-300)
    equations = np.vstack([columns, last / size])
    target = np.append(np.zeros(len(columns)), 1 / size)
    y = y + np.linalg.lstsq(equations, target - equations @ y, rcond=cut)[0]
    result = np.zeros_like(a)
    result[support] = y[: int(support.sum())]
    return result


def polish_power(
    G: Array, h: Array, free: Mask, w: Array, a: Array, p: float
) -> Iterator[tuple[Array, Array]]:
    """Yield w (m,) and a (N,) of the l_p norm after steps of Newton's method on the active rows.

    With theta = |w|^{2-p} / (p - 1), B = diag(theta)^{1/2} G_S^T = U S V^T and the residuals
    r = h_S - G_S w, g = theta^{1/2} psi(w), the step and the multipliers are

        theta^{1/2} (U S^{-1} V^T r - (I - U U^T) g),    a_S = V S^{-1} (U^T g + S^{-1} V^T r).

    Arguments as those of `polish`.
    """
    for factor, cut in GUESSES:
        x, y = w, a
        support = _support(G, h, free, x, y / max(float(np.abs(y).sum()), 1e-300), factor)
        for _ in range(ROUNDS):
            if not support.any():
                break
            size = np.maximum(np.abs(x), 1e-9 * np.abs(x).max())
            theta = np.sqrt(size ** (2 - p) / (p - 1))
            g = theta * np.sign(x) * np.abs(x) ** (p - 1)
            U, s, Vt = np.linalg.svd(theta[:, None] * G[support].T, full_matrices=False)
            kept = s > cut * s[0]
            U, s, Vt = U[:, kept], s[kept], Vt[kept]
            missing = (Vt @ (h[support] - G[support] @ x)) / s
            along = U.T @ g
            x, y = x + theta * (U @ (missing + along) - g), np.zeros_like(a)
            y[support] = Vt.T @ ((along + missing) / s)
            if not (np.isfinite(x).all() and np.isfinite(y).all()):
                break
            yield x, y
            missed = G @ x - h
            enter = ~free & (h > 0) & ~support & (missed < -SLACK * h)
            leave = ~free & (h > 0) & support & (y < 0)
            support = (support | enter) & ~leave
