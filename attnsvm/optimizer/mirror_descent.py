"""`optimizer=mirror_descent`: mirror descent with an l_p potential."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from attnsvm.norm import Entrywise
from attnsvm.optimizer.base import beside
from attnsvm.optimizer.first_order import TINY, FirstOrder, Step
from attnsvm.parameterization import Variables


class MirrorDescent(FirstOrder):
    """Mirror descent with the potential psi(V) = sum |V|^p / p, whose limit is the l_p SVM.

    psi'(V) <- psi'(V) - eta grad, or grad / ||grad||_q if `normalized`, 1/p + 1/q = 1, as in the
    scripts of arXiv 2410.14581; with p = 2 this is gradient descent.

    Parameters
    ----------
    p : float
        Exponent, p > 1.
    normalized : bool
        Whether the gradient of each variable is divided by its norm, the dual one of l_p.
    **settings
        Those of every first-order optimizer.
    """

    def __init__(self, *, p: float, normalized: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self.p, self.normalized = p, normalized
        self._dual = Entrywise(p).dual

    @property
    def implicit_bias(self) -> str:
        """The entry-wise l_p norm (arXiv 2410.14581), Frobenius with p = 2."""
        return "frobenius" if self.p == 2 else Entrywise(self.p).name

    def update(self, step: Step) -> Variables:
        """Return the variables after a mirror step."""
        for V, part, scale in step.each():
            size = 1 / (self._size(part) + TINY) if self.normalized else scale.exp()
            dual = V.sign() * V.abs() ** (self.p - 1) - step.eta * beside(size, V) * part
            V.copy_(dual.sign() * dual.abs() ** (1 / (self.p - 1)))
        return step.variables

    def _size(self, part: Tensor) -> Tensor:
        """Return the dual norm of each instance's entries, shape (B,)."""
        return self._dual.value(part.flatten(1).unsqueeze(-1))
