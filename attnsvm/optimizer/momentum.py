"""`optimizer=momentum`: heavy-ball gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

from attnsvm.optimizer.base import broadcast
from attnsvm.optimizer.first_order import FirstOrder, Step
from attnsvm.parameterization import Variables


@dataclass(kw_only=True, eq=False)
class Momentum(FirstOrder):
    """M <- beta M + grad, V <- V - eta M.

    Parameters
    ----------
    beta : float
        Decay rate of the velocity; 0 is gradient descent.
    """

    beta: float

    implicit_bias = "frobenius"
    """That of gradient descent."""

    def update(self, step: Step) -> Variables:
        """Return the variables after a heavy-ball step."""
        for V, M, _, scale in step.momenta(self.beta):
            V.addcmul_(M, broadcast(-step.eta * scale.exp(), V))
        return step.variables
