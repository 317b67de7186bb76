"""`optimizer=adam`: Adam with bias correction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnsvm.optimizer.base import beside, norm
from attnsvm.optimizer.first_order import TINY, FirstOrder, Step
from attnsvm.parameterization import Variables


class Adam(FirstOrder):
    """V <- V - eta m / (sqrt(v) + eps) with bias-corrected means m of grad and v of grad^2.

    The means are stored relative to their own scale, so that with eps = 0 the rule is exact even
    where squares of the gradient underflow.

    Parameters
    ----------
    beta1, beta2 : float
        Decay rates of the means.
    eps : float
        Added to sqrt(v).
    **settings
        Those of every first-order optimizer.
    """

    def __init__(self, *, beta1: float, beta2: float, eps: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.beta1, self.beta2, self.eps = beta1, beta2, eps

    def update(self, step: Step) -> Variables:
        """Return the variables after an Adam step."""
        k = step.memory["k"] = step.memory.get("k", 0) + 1
        means = step.memory.setdefault("means", [_Mean(V) for V in step.variables])
        for (V, part, scale), mean in zip(step.each(), means, strict=True):
            mean.add(part, scale, self.beta1, self.beta2)
            first = mean.first / (1 - self.beta1**k)
            root = (mean.second / (1 - self.beta2**k)).sqrt()
            floor = beside(self.eps * (-mean.scale).exp() if self.eps else root.new_zeros(()), V)
            V.sub_(step.eta * first / (root + floor + TINY))
        return step.variables


class _Mean:
    """Running means of a gradient and its square, in units of exp(scale) and its square."""

    def __init__(self, V: Tensor) -> None:
        self.first, self.second = torch.zeros_like(V), torch.zeros_like(V)
        self.scale = V.new_full((len(V),), -torch.inf)

    def add(self, part: Tensor, scale: Tensor, beta1: float, beta2: float) -> None:
        """Add a gradient `part` exp(`scale`)."""
        common = torch.maximum(self.scale, scale)
        old, new = (self.scale - common).exp(), (scale - common).exp()
        part = part * beside(new, part)
        self.first = beta1 * self.first * beside(old, part) + (1 - beta1) * part
        self.second = beta2 * self.second * beside(old, part) ** 2 + (1 - beta2) * part**2
        size = torch.maximum(norm(self.first), norm(self.second.sqrt()))
        size = torch.where(size > 0, size, 1.0)
        self.first /= beside(size, part)
        self.second /= beside(size, part) ** 2
        self.scale = common + size.log()
