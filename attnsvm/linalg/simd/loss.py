"""Slopes of the losses and features of the heads for eight instances at a time, compiled."""

from typing import Any

from numba import njit

from attnsvm.linalg.simd.arithmetic import exp, fill, logarithm, where
from attnsvm.linalg.simd.array import LaneArray

LOGISTIC, EXPONENTIAL, LINEAR, SQUARED, LOG = range(5)
"""Codes of the losses."""


@njit(inline="always")
def slope(u: Any, loss: int, target: float) -> Any:
    """Return factor and exponent of -l'(u), as `Loss.slope` does."""
    zero, one = fill(0.0), fill(1.0)
    if loss == SQUARED:
        return 2 * (target - u), zero
    negative = where(u > 0, -u, 0)
    if loss == LOGISTIC:
        return 1 / (1 + exp(where(u > 0, negative, u))), negative
    if loss == EXPONENTIAL:
        return one, -u
    if loss == LOG:
        log = logarithm(u)
        return one + zero * log, -log  # NaN unless u > 0
    return one, zero


@njit(inline="always")
def feature(p: Any, kinds: LaneArray, j: int) -> Any:
    """Return alpha p + beta p^2 / 2 + rho relu(p) and its derivative, as `Head.features` has it.

    `kinds` (3, k) are alpha, beta and rho of each projection; p is projection j.
    """
    kink = where(p > 0, kinds[2, j], 0)
    return p * (kinds[0, j] + 0.5 * kinds[1, j] * p + kink), kinds[0, j] + kinds[1, j] * p + kink
