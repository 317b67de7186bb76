"""The risk of a prediction: a decreasing loss of the margin u = Y f."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

LARGE_MARGIN = 100.0
"""Least margin of an instance from which on the slopes of its loss are scaled by e^margin."""


class Loss(ABC):
    """A loss l(u) of the margins u = Y f, any shape; the risk is its mean over the n samples.

    The empirical risk is equation (ERM) of arXiv 2308.16898; its assumption A asks for l strictly
    decreasing and smooth.
    """

    @abstractmethod
    def value(self, u: Tensor) -> Tensor:
        """Return l(u), the shape of `u`."""

    @abstractmethod
    def derivative(self, u: Tensor) -> Tensor:
        """Return l'(u) < 0, the shape of `u`."""

    @abstractmethod
    def scaled_derivative(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return l'(u) e^-c and c, which keeps slopes from underflow; u (B, n), c (B,).

        c = 0 unless all margins of an instance are larger than LARGE_MARGIN.
        """

    @abstractmethod
    def excess_slope(self, u: Tensor, delta: Tensor) -> Tensor:
        """Return (l(u - delta) - l(u)) / delta without cancellation; -l'(u) at delta = 0."""


class Logistic(Loss):
    """l(u) = log(1 + exp(-u))."""

    def value(self, u: Tensor) -> Tensor:
        """Return log(1 + exp(-u)), exact also where exp(-u) overflows or is negligible."""
        return -logsigmoid(u)  # softplus has other last bits at the end of a tensor

    def derivative(self, u: Tensor) -> Tensor:
        """Return -1 / (1 + exp(u)).

        Not torch.sigmoid, whose last bit depends on the position of an entry in the tensor.
        """
        return -1 / (1 + torch.exp(u))

    def scaled_derivative(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return -1 / (e^c + e^{u + c}) and c."""
        c = _log_size(u)
        return -1 / (torch.exp(c) + torch.exp(u + c)), c.squeeze(-1)

    def excess_slope(self, u: Tensor, delta: Tensor) -> Tensor:
        """Return log(1 + (e^delta - 1) / (1 + e^u)) / delta."""
        rise = torch.log1p(torch.expm1(delta) / (1 + torch.exp(u)))
        return _quotient(rise, delta, -self.derivative(u))


class Exponential(Loss):
    """l(u) = exp(-u)."""

    def value(self, u: Tensor) -> Tensor:
        """Return exp(-u)."""
        return torch.exp(-u)

    def derivative(self, u: Tensor) -> Tensor:
        """Return -exp(-u)."""
        return -torch.exp(-u)

    def scaled_derivative(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return -exp(-u - c) and c."""
        c = _log_size(u)
        return -torch.exp(-u - c), c.squeeze(-1)

    def excess_slope(self, u: Tensor, delta: Tensor) -> Tensor:
        """Return e^{-u} (e^delta - 1) / delta."""
        return torch.exp(-u) * _quotient(torch.expm1(delta), delta, torch.ones_like(delta))


class Linear(Loss):
    """l(u) = -u, the correlation loss."""

    def value(self, u: Tensor) -> Tensor:
        """Return -u."""
        return -u

    def derivative(self, u: Tensor) -> Tensor:
        """Return -1."""
        return -torch.ones_like(u)

    def scaled_derivative(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return -1 and 0."""
        return self.derivative(u), torch.zeros_like(u[:, 0])

    def excess_slope(self, u: Tensor, delta: Tensor) -> Tensor:
        """Return 1."""
        return torch.ones_like(delta)


def _log_size(u: Tensor) -> Tensor:
    """Return c = -min_i u_i (B, 1), where that is large."""
    least = u.amin(-1, keepdim=True)
    return torch.where(least > LARGE_MARGIN, -least, 0.0)


def _quotient(rise: Tensor, delta: Tensor, limit: Tensor) -> Tensor:
    """Return rise / delta, and `limit` where delta is too small for a quotient to be of use."""
    small = delta.abs() < 1e-290
    return torch.where(small, limit, rise / torch.where(small, 1.0, delta))
