"""Exact arithmetic on float64 arrays, and norms with rigorous error bounds.

Every float64 is an integer times a power of two, so sums and products are computed exactly, in
Python's integers. Frobenius norms follow exactly (squared). Nuclear and spectral norms come from a
floating-point SVD with a bound of its error: with the computed U, s, V and the residual
R = A - U s V^T,

    ||A||_op <= s_1 u v + ||R||_F,      ||A||_* <= (sum_i s_i) u v + sqrt(d) ||R||_F,
    u = ||U||_op <= sqrt(1 + ||U^T U - I||_F),  likewise v.
"""

import math
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attnsvm.config.norm import families_of

Array = NDArray[np.float64]
Integers = NDArray[np.object_]

EPS = 2.0**-52


class RejectedError(Exception):
    """A check failed; the message is the reason."""


def require(holds: bool, reason: str) -> None:
    """Raise RejectedError with `reason` unless `holds`."""
    if not holds:
        raise RejectedError(reason)


class Exact:
    """An array of dyadic numbers: integers times 2^exponent."""

    def __init__(self, integers: Integers, exponent: int) -> None:
        self.integers, self.exponent = integers, exponent

    @classmethod
    def of(cls, x: Array) -> Self:
        """Return the float64 array `x`, exactly."""
        require(bool(np.isfinite(x).all()), "a number is not finite")
        mantissa, exponent = np.frexp(x)
        whole = np.ldexp(mantissa, 53).astype(np.int64)
        least = int(exponent[whole != 0].min()) if whole.any() else 0
        shift = np.where(whole != 0, exponent - least, 0)
        return cls(whole.astype(object) << shift.astype(object), least - 53)

    def floats(self) -> Array:
        """Return the nearest float64 of each entry: Python divides integers correctly rounded."""
        up, down = max(self.exponent, 0), 1 << max(-self.exponent, 0)
        try:
            nearest = [(value << up) / down for value in self.integers.ravel()]
        except OverflowError as error:
            raise RejectedError("a number is too large for a float64") from error
        return np.array(nearest, dtype=np.float64).reshape(self.integers.shape)

    @cached_property
    def squared_norm(self) -> Fraction:
        """The exact sum of squares."""
        return Fraction(sum_of_squares(self.integers.ravel())) * Fraction(4) ** self.exponent


def sum_of_squares(x: Integers) -> int:
    """Return x^T x."""
    return int(x @ x) if x.size else 0


def unit_rows(A: Exact, index: Any) -> Array:
    """Return the rows at `index` divided by their lengths; a zero row stays zero."""
    rows = A.floats()[index]
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1.0))


def root(x: Fraction) -> tuple[Fraction, Fraction]:
    """Return lower and upper bounds of the square root, 2^-100 apart relatively."""
    if x == 0:
        return Fraction(0), Fraction(0)
    shift = 2 * max(0, 110 - (x.numerator.bit_length() - x.denominator.bit_length()) // 2)
    whole = math.isqrt((x.numerator << shift) // x.denominator)
    unit = Fraction(1, 1 << (shift // 2))
    return whole * unit, (whole + 1) * unit


# --- norms ----------------------------------------------------------------------------------------


def upper_bound(A: Exact, norm: str, dual: bool = False) -> tuple[Fraction, float]:
    """Return a rigorous upper bound of the norm, or of its dual, and its possible excess.

    The bound is exact, or but 2^-100 above, for the entry-wise norms with p = 1, 2 and inf. Of A+B
    it is the larger one of the blocks, and of the dual the sum.
    """
    bounds = [
        _upper_bound(Exact(A.integers[:, columns], A.exponent), kind, conjugate(p) if dual else p)
        for kind, p, columns in blocks(norm, A.integers.shape[1])
    ]
    sizes, errors = zip(*bounds, strict=True)
    return sum(sizes, Fraction(0)) if dual else max(sizes), max(errors)


def _upper_bound(A: Exact, kind: str, p: float) -> tuple[Fraction, float]:
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


def blocks(norm: str, d: int) -> list[tuple[str, float, slice]]:
    """Return family, l (of the entries) or schatten, p and columns of each block of a norm.

    Of A+B these are all columns but the last, and the last one; any other norm has one block.
    """
    families = families_of(norm)
    if families is None:
        raise RejectedError(f"norm {norm!r} is unknown")
    if len(families) == 1:
        return [(*families[0], slice(None))]
    return [(*families[0], slice(d - 1)), (*families[1], slice(d - 1, d))][d == 1 :]


def conjugate(p: float) -> float:
    """Return q with 1/p + 1/q = 1."""
    return math.inf if p == 1 else 1.0 if p == math.inf else p / (p - 1)


def spread(norm: str, d: int) -> float:
    """Return a bound of the largest norm(W) / ||W||_F of d x d matrices."""
    return max(_spread(kind, p, d) for kind, p, _ in blocks(norm, d))


def _spread(kind: str, p: float, d: int) -> float:
    return float(d ** max(0.0, (1 / p - 0.5) * (2 if kind == "l" else 1)))


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
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    d = max(A.shape)
    gamma = 2 * (d + 2) * EPS
    residual = np.abs(A - (U * s) @ Vt) + gamma * (np.abs(A) + np.abs(U * s) @ np.abs(Vt))
    remainder = np.linalg.norm(residual) * (1 + d * d * EPS)
    stretch = math.prod(
        math.sqrt(
            1 + np.linalg.norm(np.abs(Q.T @ Q - np.eye(len(s))) + gamma * np.abs(Q.T) @ np.abs(Q))
        )
        for Q in (U, Vt.T)
    )
    main, rest = _power_norm(s, p), _spread("schatten", p, d) * remainder
    return float((main * stretch + rest) * (1 + 8 * d * EPS)), float(main)
