"""The risk of a prediction: a loss of the margin u = Y f, decreasing in all options but one."""

from abc import ABC, abstractmethod
from math import log
from typing import Any, ClassVar

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import logsigmoid

from attnsvm.linalg.simd.arithmetic import exp, fill, split, where

LARGE = 300.0
"""Up to it e^u, e^delta and their product neither underflow nor overflow."""

NEGLIGIBLE = 40.0
"""From here on log(1 + e^-u) = e^-u in double precision."""


class Loss(ABC):
    """A loss l(u) of the margins u = Y f, any shape; the risk is its mean over the n samples.

    The empirical risk is equation (ERM) of arXiv 2308.16898; its assumption A requires l to be
    strictly decreasing and smooth.
    """

    DECREASING: ClassVar[bool] = True
    """Whether l is strictly decreasing; only then attending to tokens of highest score is best."""

    SELF_BOUNDED: ClassVar[bool] = False
    """Whether abs(l'') <= abs(l') and abs(l'(u + t)) <= abs(l'(u)) e^abs(t), for `safe_gd`."""

    POSITIVE: ClassVar[bool] = False
    """Whether l is defined for u > 0 only."""

    @abstractmethod
    def value(self, u: Tensor) -> Tensor:
        """Return l(u), with the shape of `u`."""

    @abstractmethod
    def slope(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return a and c of -l'(u) = a e^c, which neither underflow nor overflow.

        1/2 <= a <= 1 for a loss that is decreasing; else a has the sign of -l'(u).
        """

    def derivative(self, u: Tensor) -> Tensor:
        """Return l'(u), with the shape of `u`."""
        factor, exponent = self.slope(u)
        return -factor * torch.exp(exponent)

    @abstractmethod
    def excess_slope(self, u: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Return a and c of (l(u - delta) - l(u)) / delta = a e^c, -l'(u) at delta = 0.

        Without cancellation, and neither a nor c underflows or overflows.
        """


class Logistic(Loss):
    """l(u) = log(1 + exp(-u))."""

    SELF_BOUNDED: ClassVar[bool] = True

    def value(self, u: Tensor) -> Tensor:
        """Return log(1 + exp(-u)), accurate even where exp(-u) overflows or is negligible."""
        return -logsigmoid(u)  # the last bits of softplus depend on the position in the tensor

    def slope(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return 1 / (1 + e^-|u|) and -max(u, 0).

        Not torch.sigmoid, whose last bit depends on the position of an entry in the tensor.
        """
        return 1 / (1 + torch.exp(-u.abs())), -u.clamp(min=0)

    def derivative(self, u: Tensor) -> Tensor:
        """Return -1 / (1 + exp(u)), with the rounding of the published update."""
        return -1 / (1 + torch.exp(u))

    def excess_slope(self, u: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Return log(1 + (e^delta - 1) / (1 + e^u)) / delta and 0; in the far tail that of e^-u.

        It is symmetric in u and u - delta: with the smaller one second nothing cancels.
        """
        u, delta = torch.maximum(u, u - delta), delta.abs()
        rise = torch.log1p(torch.expm1(delta) / (1 + torch.exp(u)))
        above = delta + self.value(delta - u) - self.value(-u)
        far = torch.where(u > 0, self.value(u - delta) - self.value(u), above)
        a = _quotient(torch.where(delta > LARGE, far, rise), delta, -self.derivative(u))
        factor, exponent = _exponential_slope(u, delta)
        tail = (u > LARGE) & (u - delta > NEGLIGIBLE)
        return torch.where(tail, factor, a), torch.where(tail, exponent, 0.0)


class Exponential(Loss):
    """l(u) = exp(-u)."""

    SELF_BOUNDED: ClassVar[bool] = True

    def value(self, u: Tensor) -> Tensor:
        """Return exp(-u)."""
        return torch.exp(-u)

    def slope(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return 1 and -u."""
        return torch.ones_like(u), -u

    def excess_slope(self, u: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Return e^-u (e^delta - 1) / delta and 0; of large numbers a is at most 1."""
        near = torch.exp(-u) * _quotient(torch.expm1(delta), delta, torch.ones_like(delta))
        factor, exponent = _exponential_slope(u, delta)
        large = (u.abs() > LARGE) | (delta.abs() > LARGE)
        return torch.where(large, factor, near), torch.where(large, exponent, 0.0)


class Log(Loss):
    """l(u) = -log(u) of a probability u > 0, NaN elsewhere; arXiv 2403.08081."""

    POSITIVE: ClassVar[bool] = True

    def value(self, u: Tensor) -> Tensor:
        """Return -log(u)."""
        return -torch.log(u)

    def slope(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return 1 and -log(u)."""
        return torch.ones_like(u), -torch.log(u)

    def excess_slope(self, u: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Return -log(1 - delta / u) / (delta / u) and -log(u)."""
        share = delta / u
        return _quotient(-torch.log1p(-share), share, torch.ones_like(u)), -torch.log(u)


class LinearLoss(Loss):
    """l(u) = -u, the correlation loss."""

    SELF_BOUNDED: ClassVar[bool] = True

    def value(self, u: Tensor) -> Tensor:
        """Return -u."""
        return -u

    def slope(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return 1 and 0."""
        return torch.ones_like(u), torch.zeros_like(u)

    def excess_slope(self, u: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Return 1 and 0."""
        return torch.ones_like(delta), torch.zeros_like(delta)


class Squared(Loss):
    """l(u) = (u - target)^2, which is (f - target Y)^2: not decreasing, on purpose.

    Assumption A of arXiv 2308.16898 does not hold. Where every score is below the target, l
    decreases on all margins that a linear head can reach; to break the theory set the target below
    the optimal scores.
    """

    DECREASING: ClassVar[bool] = False

    def __init__(self, target: float) -> None:
        self.target = target

    def value(self, u: Tensor) -> Tensor:
        """Return (u - target)^2."""
        return (u - self.target).square()

    def slope(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return 2 (target - u) and 0."""
        return 2 * (self.target - u), torch.zeros_like(u)

    def excess_slope(self, u: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Return delta - 2 (u - target) and 0."""
        return delta - 2 * (u - self.target), torch.zeros_like(delta)


def _exponential_slope(u: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Return a <= 1 and c of e^-u (e^delta - 1) / delta = a e^c."""
    size = delta.abs()
    a = _quotient(-torch.expm1(-size), size, torch.ones_like(size))
    return a, delta.clamp(min=0) - u


def _quotient(rise: Tensor, delta: Tensor, limit: Tensor) -> Tensor:
    """Return rise / delta, and `limit` where they are equal to rounding: `rise` may underflow."""
    small = delta.abs() < 1e-17
    return torch.where(small, limit, rise / torch.where(small, 1.0, delta))


LOGISTIC, EXPONENTIAL, LINEAR, SQUARED, LOG = range(5)

LOSS_CODES = {
    Logistic: LOGISTIC,
    Exponential: EXPONENTIAL,
    LinearLoss: LINEAR,
    Squared: SQUARED,
    Log: LOG,
}
"""Codes of the losses in compiled code, of one layer and of networks."""

LN2 = log(2)


@njit(inline="always")
def slope(u: Any, loss: int, target: float) -> Any:
    """Return factor and exponent of -l'(u), as `Loss.slope` does, in compiled code."""
    zero, unit = fill(0.0), fill(1.0)
    if loss == SQUARED:
        return 2 * (target - u), zero
    negative = where(u > 0, -u, 0)
    if loss == LOGISTIC:
        return 1 / (1 + exp(where(u > 0, negative, u))), negative
    if loss == EXPONENTIAL:
        return unit, -u
    if loss == LOG:
        m, e = split(u)
        return where(u > 0, 1 / m, np.nan), -LN2 * e
    return unit, zero
