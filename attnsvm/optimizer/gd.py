"""`optimizer=gd`: gradient descent with a fixed step."""

from __future__ import annotations

from attnsvm.optimizer.first_order import FirstOrder, Step
from attnsvm.parameterization import Variables


class GD(FirstOrder):
    """V <- V - eta grad, gradient descent with a fixed step (algorithm W-GD)."""

    implicit_bias = "frobenius"
    """Local and global convergence of W-GD (arXiv 2308.16898)."""

    def update(self, step: Step) -> Variables:
        """Return V - eta grad."""
        return step.moved([-step.eta * scale.exp() for scale in step.log_scales])
