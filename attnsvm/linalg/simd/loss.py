"""The slopes of the losses for eight instances at a time, in compiled code."""

from __future__ import annotations

from typing import Any

from numba import njit

from attnsvm.linalg.simd.arithmetic import exp, fill, where_greater

LOGISTIC, EXPONENTIAL, LINEAR, SQUARED = range(4)
"""Codes of the losses."""


@njit(inline="always")  # type: ignore[untyped-decorator]
def slope(u: Any, loss: Any, target: Any) -> Any:
    """Return factor and exponent of -l'(u), as `Loss.slope` does."""
    zero, one = fill(0.0), fill(1.0)
    if loss == SQUARED:
        return fill(2.0) * (fill(target) - u), zero
    negative = where_greater(u, zero, zero - u, zero)
    if loss == LOGISTIC:
        return one / (one + exp(where_greater(u, zero, negative, u))), negative
    if loss == EXPONENTIAL:
        return one, zero - u
    return one, zero
