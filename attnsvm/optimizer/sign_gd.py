"""`optimizer=sign_gd`: every entry moves by the step size."""

from __future__ import annotations

from attnsvm.optimizer.first_order import FirstOrder, Step
from attnsvm.parameterization import Variables


class SignGD(FirstOrder):
    """V <- V - eta sign(grad): steepest descent in the entry-wise maximum norm."""

    def update(self, step: Step) -> Variables:
        """Return V - eta sign(grad)."""
        for V, part, _ in step.each():
            V.sub_(part.sign(), alpha=step.eta)
        return step.variables
