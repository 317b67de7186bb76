"""`optimizer=mirror_descent`: mirror descent with an l_p potential."""

from __future__ import annotations

from dataclasses import dataclass

from attnsvm.norm import Entrywise
from attnsvm.optimizer.base import broadcast
from attnsvm.optimizer.first_order import TINY, FirstOrder, Step
from attnsvm.parameterization import Variables


@dataclass(kw_only=True, eq=False)
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
    """

    p: float
    normalized: bool

    @property
    def implicit_bias(self) -> str:
        """The entry-wise l_p norm (arXiv 2410.14581), Frobenius with p = 2."""
        return Entrywise(self.p).name

    def update(self, step: Step) -> Variables:
        """Return the variables after a mirror step."""
        dual_norm = Entrywise(self.p).dual.value
        for V, part, scale in step.each():
            size = scale.exp()
            if self.normalized:
                size = 1 / (dual_norm(part.flatten(1).unsqueeze(-1)) + TINY)
            dual = V.sign() * V.abs() ** (self.p - 1) - step.eta * broadcast(size, V) * part
            V.copy_(dual.sign() * dual.abs() ** (1 / (self.p - 1)))
        return step.variables
