"""`optimizer=mirror_descent`: mirror descent with an l_p potential."""

from __future__ import annotations

from typing import Any

from attnsvm.norm import Entrywise
from attnsvm.optimizer.base import beside, norm
from attnsvm.optimizer.first_order import TINY, FirstOrder, Step
from attnsvm.parameterization import Variables


class MirrorDescent(FirstOrder):
    """Mirror descent with the potential psi(V) = sum |V|^p / p, whose limit is the l_p SVM.

    psi'(V) <- psi'(V) - eta grad, or grad / ||grad||_F if `normalized`; with p = 2 this is
    gradient descent.

    Parameters
    ----------
    p : float
        Exponent, p > 1.
    normalized : bool
        Whether the gradient of each variable is divided by its norm.
    **settings
        Those of every first-order optimizer.
    """

    def __init__(self, *, p: float, normalized: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self.p, self.normalized = p, normalized

    @property
    def implicit_bias(self) -> str:
        """The entry-wise l_p norm (arXiv 2410.14581), Frobenius with p = 2."""
        return "frobenius" if self.p == 2 else Entrywise(self.p).name

    def update(self, step: Step) -> Variables:
        """Return the variables after a mirror step."""
        for V, part, scale in step.each():
            size = 1 / (norm(part) + TINY) if self.normalized else scale.exp()
            dual = V.sign() * V.abs() ** (self.p - 1) - step.eta * beside(size, V) * part
            V.copy_(dual.sign() * dual.abs() ** (1 / (self.p - 1)))
        return step.variables
