"""`optimizer=normalized_gd`: the gradient divided by its norm."""

from __future__ import annotations

from attnsvm.linalg import EPS
from attnsvm.optimizer.base import norm
from attnsvm.optimizer.first_order import TINY, FirstOrder, Step
from attnsvm.parameterization import Variables


class NormalizedGD(FirstOrder):
    """V <- V - eta grad / ||grad||_F, each variable by its own norm (arXiv 2308.16898, sec. 3.2).

    With gradient=direct eps is added to the norm, as published; the exact gradient needs none.
    """

    implicit_bias = "frobenius"
    """That of gradient descent (arXiv 2308.16898, sec. 3.2)."""

    def update(self, step: Step) -> Variables:
        """Return V - eta grad / ||grad||_F; V where the gradient is zero."""
        eps = EPS if self.gradient == "direct" else TINY
        return step.moved([-step.eta / (norm(part) + eps) for part in step.parts])
