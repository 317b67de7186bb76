"""Directions of weights: correlations, and the matrices of Gen-SVM, with error bounds."""

from __future__ import annotations

import math

import numpy as np

from attnsvm.verify.exact import EPS, Array


def one_minus_correlation(W: Array, target: Array, slack: float = 0.0) -> tuple[float, float]:
    """Return 1 - <W, V> / (||W|| ||V||) and its error bound; NaN where a matrix is zero or NaN.

    It is ||W / ||W|| - V / ||V||||^2 / 2, which does not cancel. `slack` is the relative error of
    the target's direction.
    """
    value = 0.5 * float(np.square(_unit(W) - _unit(target)).sum())
    apart = 16 * len(W) * EPS + slack
    return value, 1e-12 * value + 2 * apart * math.sqrt(value) + apart**2


def svmeq(W: Array, W_fin: Array, W_mm: Array) -> Array:
    """Return the W_fin + C W_mm, 0 <= C <= inf, of largest correlation with W (d, d)."""
    p, q = _shares(W, W_fin, W_mm)
    return np.asarray(p * _scaled(W_fin) + q * _scaled(W_mm))


def svmeq_factors(W: Array, W_fin: Array, W_mm: Array, error: float) -> tuple[float, float]:
    """Return the least and the largest C of that matrix if its angle is known up to `error`.

    The angle is that of (||W_fin||, C ||W_mm||); it is 90 degrees for C = inf.
    """
    if not all(np.isfinite(V).all() for V in (W, W_fin, W_mm)):
        return math.nan, math.nan
    p, q = _shares(W, W_fin, W_mm)
    angle = math.atan2(q, p)
    low, high = max(angle - error, 0.0), angle + error
    sizes = [float(np.linalg.norm(V)) for V in (W_fin, W_mm)]
    if not all(sizes):
        return (math.inf, math.inf) if sizes[1] else (0.0, 0.0)
    factor = sizes[0] / sizes[1]
    reached = high >= math.pi / 2
    return factor * math.tan(low), math.inf if reached else factor * math.tan(high)


def _shares(W: Array, W_fin: Array, W_mm: Array) -> tuple[float, float]:
    """Return the shares p, q >= 0 of the two parts, each scaled to unit length.

    A part that is zero is not considered.
    """
    parts = _scaled(W_fin), _scaled(W_mm)
    f, m = (float(np.square(V).sum()) for V in parts)
    c = float((parts[0] * parts[1]).sum())
    a, b = (float((W * V).sum()) for V in parts)
    p, q = a * m - b * c, b * f - a * c
    if p > 0 and q >= 0:
        return p, q
    fin = f > 0 and (m == 0 or a > b)
    return float(fin), float(not fin)


def _scaled(V: Array) -> Array:
    size = np.linalg.norm(V)
    return np.asarray(V / size) if size > 0 else V


def svmeq_least_squares(W: Array, W_fin: Array, W_mm: Array) -> Array:
    """Return W_fin + C W_mm with the C that minimises its distance to W (d, d)."""
    m = float(np.square(W_mm).sum())
    C = float(((W - W_fin) * W_mm).sum()) / m if m > 0 else 0.0
    return np.asarray(W_fin + C * W_mm)


def _unit(V: Array) -> Array:
    V = V / np.abs(V).max()
    return np.asarray(V / np.linalg.norm(V))
