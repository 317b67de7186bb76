"""`optimizer=steepest`: normalised steepest descent in a norm, with or without momentum."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attnsvm.norm import norm_of
from attnsvm.optimizer.first_order import FirstOrder, Step
from attnsvm.parameterization import Variables


@dataclass(kw_only=True, eq=False)
class Steepest(FirstOrder):
    """V <- V - eta S, S = argmax <S, M> over norm(S) <= 1, M <- beta M + grad.

    Each variable makes its own steps, of the size eta in the norm: the gradient over its norm
    (frobenius), its signs (max), its polar factor U V^T (spectral), its largest entry alone (l1),
    its leading singular vectors u v^T (nuclear). For linear models the margin in this norm becomes
    the largest one (arXiv 2502.04664). The size of M does not matter, so beta M + (1 - beta) grad
    makes the same steps.

    Parameters
    ----------
    norm : str
        The norm (`attnsvm.norm.norm_of`).
    beta : float
        Decay rate of the momentum M; 0 is none.
    nesterov : bool
        Steps along grad + beta M instead of M.
    """

    norm: str
    beta: float
    nesterov: bool

    @property
    def implicit_bias(self) -> str | None:
        """The norm of the steps (arXiv 2502.04664, for linear models)."""
        return norm_of(self.norm).name

    def direction(self, M: Tensor) -> Tensor:
        """Return the step of size one along M; a vector counts as a matrix with one column."""
        if M.ndim == 2:
            return norm_of(self.norm).steepest(M.unsqueeze(-1)).squeeze(-1)
        return norm_of(self.norm).steepest(M)

    def update(self, step: Step) -> Variables:
        """Return the variables after a step; unchanged where M is zero."""
        for V, M, part, _ in step.momenta(self.beta):
            V.sub_(self.direction(part + self.beta * M if self.nesterov else M), alpha=step.eta)
        return step.variables
