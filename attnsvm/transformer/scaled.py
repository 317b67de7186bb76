"""Numbers v e^c whose exponents c may be far outside of the range of float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Scaled:
    """Vectors v e^c.

    Attributes
    ----------
    value : Tensor
        v, shape (..., d), of ordinary size.
    exponent : Tensor
        c, shape (...); -inf where the vector is zero.
    """

    value: Tensor
    exponent: Tensor

    def normalized(self) -> Scaled:
        """Return the same vectors with largest entries of magnitude 1, and exponent -inf if 0."""
        size = self.value.abs().amax(-1)
        safe = torch.where(size > 0, size, 1.0)
        exponent = torch.where(size > 0, self.exponent + safe.log(), -torch.inf)
        return Scaled(self.value / safe.unsqueeze(-1), exponent)

    def times(self, log_factor: float) -> Scaled:
        """Return the vectors times e^log_factor."""
        return Scaled(self.value, self.exponent + log_factor)


def relative(exponent: Tensor, largest: Tensor) -> Tensor:
    """Return e^(exponent - largest), 0 where both are -inf."""
    return torch.where(exponent == -torch.inf, 0.0, (exponent - largest).exp())


def total(terms: Scaled, axis: int) -> Scaled:
    """Return the sum over one axis (negative, counted without the vectors' own axis)."""
    largest = terms.exponent.amax(axis, keepdim=True)
    share = relative(terms.exponent, largest).unsqueeze(-1)
    return Scaled((terms.value * share).sum(axis - 1), largest.squeeze(axis)).normalized()


def added(*terms: Scaled) -> Scaled:
    """Return the sum of vectors of one shape."""
    values = torch.stack([term.value for term in terms], dim=-2)
    exponents = torch.stack([term.exponent.expand(values.shape[:-2]) for term in terms], dim=-1)
    return total(Scaled(values, exponents), -1)
