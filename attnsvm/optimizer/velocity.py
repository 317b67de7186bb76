"""Sums of past gradients, exact where the gradients underflow."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attnsvm.optimizer.base import broadcast


class Velocity:
    """M <- beta M + grad of one variable, as `part` exp(`scale`).

    One of the two terms has weight one in units of the larger, so no part vanishes, however far
    below the smallest float64 the gradients are.

    Parameters
    ----------
    V : Tensor
        The variable, (B, ...).
    beta : float
        Decay rate, 0 <= beta <= 1.
    """

    def __init__(self, V: Tensor, beta: float) -> None:
        self.log_beta = math.log(beta) if beta else -math.inf
        self.part, self.scale = torch.zeros_like(V), V.new_full((len(V),), -torch.inf)

    def add(self, part: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add a gradient `part` exp(`scale`), scale (B,); return M and it, and their log-scale."""
        older = self.scale + self.log_beta
        self.scale = torch.maximum(older, scale)
        part = part * broadcast((scale - self.scale).exp(), part)
        self.part = torch.addcmul(part, self.part, broadcast((older - self.scale).exp(), part))
        return self.part, part, self.scale
