"""The Bregman divergence of the l_p potentials of mirror descent (arXiv 2410.14581)."""

from typing import Any

import numpy as np

MATRIX = (-2, -1)


def directional_bregman_divergence(W: Any, V: Any, p: float) -> np.ndarray:
    """Return D(w, v) of w = W / ||W||_p, v = V / ||V||_p, which is 0 exactly if these are equal.

    D(w, v) = psi(w) - psi(v) - <psi'(v), w - v> of psi(w) = sum_ij |w_ij|^p / p, for 1 < p < inf.
    It is 1 - <psi'(v), w>, so at most 2; with p = 2 it is 1 - correlation; NaN where a matrix is
    zero or not finite. The published figures show it for the SVM's W and the trained V. W and V are
    (..., d, d), their leading axes broadcast.
    """
    w, v = _unit(W, p), _unit(V, p)
    slope = np.sign(v) * np.abs(v) ** (p - 1)
    # entry by entry, since each entry's terms are >= 0 together
    terms = np.abs(w) ** p / p + (1 - 1 / p) * np.abs(v) ** p - slope * w
    return np.maximum(terms.sum(MATRIX), 0.0)


def _unit(W: Any, p: float) -> np.ndarray:
    """Return W / ||W||_p; NaN where W is zero or not finite."""
    W = np.asarray(W, dtype=float)
    largest = np.abs(W).max(MATRIX, keepdims=True)
    usable = np.isfinite(largest) & (largest > 0)
    W = np.where(usable, W, np.nan) / np.where(usable, largest, 1.0)
    return W / (np.abs(W) ** p).sum(MATRIX, keepdims=True) ** (1 / p)
