"""Exact arithmetic on float64 arrays, and norms with rigorous error bounds.

Every float64 is an integer times a power of two, so sums and products are computed exactly, in
Python's integers. Frobenius norms follow exactly (squared). Nuclear and spectral norms come from a
floating-point SVD with a bound of its error: with the computed U, s, V and the residual
R = A - U s V^T,

    ||A||_op <= s_1 u v + ||R||_F,      ||A||_* <= (sum_i s_i) u v + sqrt(d) ||R||_F,
    u = ||U||_op <= sqrt(1 + ||U^T U - I||_F),  likewise v.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.object_]

EPS = 2.0**-52
SMALLEST_NORMAL = 2.0**-1022
"""Below it a float64 has fewer than 53 bits."""


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
    def of(cls, x: Array) -> Exact:
        """Return the float64 array `x`, exactly."""
        require(bool(np.isfinite(x).all()), "a number is not finite")
        mantissa, exponent = np.frexp(x)
        whole = np.ldexp(mantissa, 53).astype(np.int64)
        least = int(exponent[whole != 0].min()) if whole.any() else 0
        shift = np.where(whole != 0, exponent - least, 0)
        return cls(whole.astype(object) << shift.astype(object), least - 53)

    def fraction(self, value: Any) -> Fraction:
        """Return the number that one of the integers (or a sum of them) represents."""
        return Fraction(int(value)) * Fraction(2) ** self.exponent

    def floats(self) -> Array:
        """Return the nearest float64 of each entry."""
        try:
            whole = self.integers.astype(np.float64)  # each the nearest one
            with np.errstate(over="ignore", under="ignore"):
                nearest = np.ldexp(whole, self.exponent)
            once = (np.abs(nearest) > SMALLEST_NORMAL) & np.isfinite(nearest)  # rounded once
            unsure = (whole != 0) & ~once
        except OverflowError:
            nearest = np.zeros(self.integers.shape)
            unsure = np.ones(self.integers.shape, dtype=bool)
        try:
            nearest[unsure] = [float(self.fraction(value)) for value in self.integers[unsure]]
        except OverflowError as error:
            raise RejectedError("a number is too large for a float64") from error
        return nearest

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
