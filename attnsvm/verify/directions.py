"""Directions of weights: correlations, and the matrices of Gen-SVM, with error bounds."""

from __future__ import annotations

import math

import numpy as np

from attnsvm.verify.exact import EPS, Array


def one_minus_correlation(W: Array, target: Array, slack: float = 0.0) -> tuple[Array, Array]:
    """Return 1 - <W, V> / (||W|| ||V||) and its error bounds; NaN where a matrix is zero or NaN.

    It is ||W / ||W|| - V / ||V||||^2 / 2, which does not cancel. `slack` is the relative error of
    the target's direction.
    """
    a, b = _unit(W), _unit(target)
    value = 0.5 * np.square(a - b).sum((-2, -1))
    apart = 16 * W.shape[-1] * EPS + slack
    return value, 1e-12 * value + 2 * apart * np.sqrt(value) + apart**2


def svmeq(W: Array, W_fin: Array, W_mm: Array) -> Array:
    """Return the W_fin + C W_mm, 0 <= C <= inf, of largest correlation with W (..., d, d)."""
    p, q = _shares(W, W_fin, W_mm)
    return np.asarray(p[..., None, None] * _scaled(W_fin) + q[..., None, None] * _scaled(W_mm))


def svmeq_factors(W: Array, W_fin: Array, W_mm: Array, error: float) -> tuple[float, float]:
    """Return the least and the largest C of that matrix if its angle is known up to `error`.

    The angle is that of (||W_fin||, C ||W_mm||); it is 90 degrees for C = inf.
    """
    if not all(np.isfinite(V).all() for V in (W, W_fin, W_mm)):
        return math.nan, math.nan
    p, q = _shares(W, W_fin, W_mm)
    angle = math.atan2(float(q), float(p))
    low, high = max(angle - error, 0.0), angle + error
    sizes = [float(np.linalg.norm(V)) for V in (W_fin, W_mm)]
    if not all(sizes):
        return (math.inf, math.inf) if sizes[1] else (0.0, 0.0)
    factor = sizes[0] / sizes[1]
    reached = high >= math.pi / 2
    return factor * math.tan(low), math.inf if reached else factor * math.tan(high)


def _shares(W: Array, W_fin: Array, W_mm: Array) -> tuple[Array, Array]:
    """Return the shares p, q >= 0 of the two parts, each scaled to unit length.

    A part that is zero is not considered.
    """
    parts = _scaled(W_fin), _scaled(W_mm)
    f, m = (float(np.square(V).sum()) for V in parts)
    c = float((parts[0] * parts[1]).sum())
    a, b = (np.einsum("...de,de->...", W, V) for V in parts)
    p, q = a * m - b * c, b * f - a * c
    inside = (p > 0) & (q >= 0)
    fin = ~inside & (f > 0) & ((m == 0) | (a > b))
    return np.where(inside, p, fin), np.where(inside, q, ~fin)


def _scaled(V: Array) -> Array:
    size = np.linalg.norm(V)
    return np.asarray(V / size) if size > 0 else V


def svmeq_least_squares(W: Array, W_fin: Array, W_mm: Array) -> Array:
    """Return W_fin + C W_mm with the C that minimises its distance to W (..., d, d)."""
    m = np.square(W_mm).sum()
    C = np.einsum("...de,de->...", W - W_fin, W_mm) / m if m > 0 else np.zeros(W.shape[:-2])
    return np.asarray(W_fin + C[..., None, None] * W_mm)


def _unit(V: Array) -> Array:
    largest = np.abs(V).max((-2, -1), keepdims=True)
    V = V / largest
    return np.asarray(V / np.linalg.norm(V, axis=(-2, -1), keepdims=True))
