"""`optimizer=momentum`: heavy-ball gradient descent."""

from __future__ import annotations

from typing import Any

import torch

from attnsvm.optimizer.base import beside
from attnsvm.optimizer.first_order import FirstOrder, Step
from attnsvm.parameterization import Variables


class Momentum(FirstOrder):
    """M <- beta M + grad, V <- V - eta M.

    Parameters
    ----------
    beta : float
        Decay rate of the velocity; 0 is gradient descent.
    **settings
        Those of every first-order optimizer.
    """

    def __init__(self, *, beta: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.beta = beta

    @property
    def implicit_bias(self) -> str:
        """The Frobenius norm (that of gradient descent)."""
        return "frobenius"

    def update(self, step: Step) -> Variables:
        """Return the variables after a heavy-ball step."""
        velocities = step.memory.setdefault("M", [torch.zeros_like(V) for V in step.variables])
        for (V, part, scale), M in zip(step.each(), velocities, strict=True):
            M.mul_(self.beta).addcmul_(part, beside(scale.exp(), V))
            V.sub_(M, alpha=step.eta)
        return step.variables
