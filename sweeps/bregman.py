"""The Bregman divergence of the l_p potentials of mirror descent (arXiv 2410.14581)."""

from typing import Any

import numpy as np

MATRIX = (-2, -1)


def bregman_divergence(W: Any, V: Any, p: float) -> np.ndarray:
    """Return D(W, V) = psi(W) - psi(V) - <psi'(V), W - V> of psi(W) = sum_ij |w_ij|^p / p.

    It is >= 0, and 0 exactly if W = V; not symmetric except with p = 2, where it is
    ||W - V||_F^2 / 2. W and V are (..., d, d), their leading axes broadcast; p > 1. The result
    (...) has an absolute error of about 1e-16 (psi(W) + psi(V)).

    Raises
    ------
    ValueError
        If p is not a finite number > 1: the potential is not strictly convex.
    """
    if not 1 < p < np.inf:
        raise ValueError(f"p={p}: must be a finite number > 1")
    W, V = np.asarray(W, dtype=float), np.asarray(V, dtype=float)
    slope = np.sign(V) * np.abs(V) ** (p - 1)
    # entry by entry, since each entry's terms are >= 0 together
    terms = np.abs(W) ** p / p + (1 - 1 / p) * np.abs(V) ** p - slope * W
    divergence: np.ndarray = np.maximum(terms.sum(MATRIX), 0.0)
    return divergence


def directional_bregman_divergence(W: Any, V: Any, p: float) -> np.ndarray:
    """Return D(W / ||W||_p, V / ||V||_p), which is 0 exactly if the directions are equal.

    It is 1 - <psi'(v), w> for the matrices w, v of norm one, so at most 2; with p = 2 it is
    1 - correlation; NaN where a matrix is zero or not finite. The published figures show it for the
    SVM's W and the trained V. Shapes are those of `bregman_divergence`.
    """
    return bregman_divergence(_unit(W, p), _unit(V, p), p)


def _unit(W: Any, p: float) -> np.ndarray:
    """Return W / ||W||_p; NaN where W is zero or not finite."""
    W = np.asarray(W, dtype=float)
    largest = np.abs(W).max(MATRIX, keepdims=True)
    usable = np.isfinite(largest) & (largest > 0)
    W = np.where(usable, W, np.nan) / np.where(usable, largest, 1.0)
    unit: np.ndarray = W / (np.abs(W) ** p).sum(MATRIX, keepdims=True) ** (1 / p)
    return unit
