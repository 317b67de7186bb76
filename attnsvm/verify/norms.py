"""Norms of stored matrices: upper bounds with all rounding errors, and how far they may be off."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from attnsvm.config.norm import family_of
from attnsvm.verify.exact import EPS, Array, Exact, require, root


def upper_bound(A: Exact, norm: str, dual: bool = False) -> tuple[Fraction, float]:
    """Return a rigorous upper bound of the norm, or of its dual, and its possible excess.

    The bound is exact, or but 2^-100 above, for the entry-wise norms with p = 1, 2 and inf.
    """
    kind, p = named(norm, dual)
    magnitudes = np.abs(A.integers)
    unit = Fraction(2) ** A.exponent
    if kind == "l" and p in (1, math.inf):
        return int(magnitudes.sum() if p == 1 else magnitudes.max()) * unit, 0.0
    if kind == "l" and p == 2:
        return root(A.squared_norm)[1], 0.0
    # An exact common scaling avoids overflow and underflow.
    bits = int(magnitudes.max()).bit_length()
    scaled = Exact(A.integers, -bits).floats()
    upper, computed = _entrywise_upper(scaled, p) if kind == "l" else _schatten_upper(scaled, p)
    error = 2 * (upper / computed - 1) if computed > 0 else 0.0
    return Fraction(upper) * unit * Fraction(2) ** bits, error


def named(norm: str, dual: bool = False) -> tuple[str, float]:
    """Return the family, l (of the entries) or schatten, of a norm or of its dual, and its p.

    Raises
    ------
    RejectedError
        If there is no norm of that name.
    """
    found = family_of(norm)
    require(found is not None, f"norm {norm!r} is unknown")
    assert found is not None
    kind, p = found
    if dual:
        p = math.inf if p == 1 else 1.0 if p == math.inf else p / (p - 1)
    return kind, p


def spread(kind: str, p: float, d: int) -> float:
    """Return the largest norm(W) / ||W||_F of d x d matrices."""
    return float(d ** max(0.0, (1 / p - 0.5) * (2 if kind == "l" else 1)))


def computed(W: Array, norm: str) -> float:
    """Return norm(W) in floating point."""
    kind, p = named(norm)
    sizes = np.linalg.svd(W, compute_uv=False) if kind == "schatten" else W.ravel()
    return _power_norm(np.asarray(sizes), p)


def _power_norm(x: Array, p: float) -> float:
    largest = float(np.abs(x).max())
    if p == math.inf or largest == 0:
        return largest
    return float((np.abs(x / largest) ** p).sum() ** (1 / p) * largest)


def _entrywise_upper(A: Array, p: float) -> tuple[float, float]:
    """Return an upper bound of the l_p norm, and the norm as computed.

    Each power is off by a few EPS, the sum of m terms by m EPS, and the root by p times less.
    """
    main = _power_norm(A, p)
    return main * (1 + (2 * A.size + 16 + 4 * p) * EPS), main


def _schatten_upper(A: Array, p: float) -> tuple[float, float]:
    """Return an upper bound of the Schatten norm, and the norm as computed.

    The bound includes all rounding errors: gamma bounds that of an inner product of length m by
    m eps |x|^T |y| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), and
    covers the rounding of A itself. The true norm is at most as far below the computed one.
    """
    U, s, Vt = np.linalg.svd(A)
    d = len(A)
    gamma = 2 * (d + 2) * EPS
    residual = np.abs(A - (U * s) @ Vt) + gamma * (np.abs(A) + np.abs(U * s) @ np.abs(Vt))
    remainder = np.linalg.norm(residual) * (1 + d * d * EPS)
    stretch = math.prod(
        math.sqrt(1 + np.linalg.norm(np.abs(Q.T @ Q - np.eye(d)) + gamma * np.abs(Q.T) @ np.abs(Q)))
        for Q in (U, Vt.T)
    )
    main, rest = _power_norm(s, p), spread("schatten", p, d) * remainder
    return float((main * stretch + rest) * (1 + 8 * d * EPS)), float(main)
