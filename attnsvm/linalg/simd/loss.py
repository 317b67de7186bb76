"""Slopes of the losses and features of the heads for eight instances at a time, compiled."""

from math import log
from typing import Any

import numpy as np
from numba import njit

from attnsvm.linalg.simd.arithmetic import exp, fill, split, where
from attnsvm.linalg.simd.array import LaneArray

LOGISTIC, EXPONENTIAL, LINEAR, SQUARED, LOG = range(5)
"""Codes of the losses."""

LN2 = log(2)


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
        m, e = split(u)
        return where(u > 0, 1 / m, np.nan), -LN2 * e
    return one, zero


@njit(inline="always")
def feature(p: Any, kinds: LaneArray, j: int) -> Any:
    """Return alpha p + beta p^2 / 2 + rho relu(p) and its derivative, as `Head.features` has it.

    `kinds` (3, k) are alpha, beta and rho of each projection; p is projection j.
    """
    kink = where(p > 0, kinds[2, j], 0)
    return p * (kinds[0, j] + 0.5 * kinds[1, j] * p + kink), kinds[0, j] + kinds[1, j] * p + kink
