"""`optimizer=steepest`: normalised steepest descent in a norm, with or without momentum."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from attnsvm.norm import norm_of
from attnsvm.optimizer.first_order import FirstOrder, Step
from attnsvm.optimizer.velocity import Velocity
from attnsvm.parameterization import Variables


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
    **settings
        Those of every first-order optimizer.
    """

    def __init__(self, *, norm: str, beta: float, nesterov: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self.norm, self.beta, self.nesterov = norm, beta, nesterov
        self._norm = norm_of(norm)

    @property
    def implicit_bias(self) -> str | None:
        """The norm of the steps (arXiv 2502.04664, for linear models)."""
        return self._norm.name

    def direction(self, M: Tensor) -> Tensor:
        """Return the step of size one along M; a vector counts as a matrix with one column."""
        if M.ndim == 2:
            return self._norm.steepest(M.unsqueeze(-1)).squeeze(-1)
        return self._norm.steepest(M)

    def update(self, step: Step) -> Variables:
        """Return the variables after a step; unchanged where M is zero."""
        for V, M in zip(step.variables, self._momenta(step), strict=True):
            V.sub_(self.direction(M), alpha=step.eta)
        return step.variables

    def _momenta(self, step: Step) -> list[Tensor]:
        """Return the momentum of each variable, up to a positive factor for each instance."""
        if not self.beta:
            return list(step.parts)
        velocities = step.memory.setdefault("M", [Velocity(V, self.beta) for V in step.variables])
        momenta = []
        for (_, part, scale), velocity in zip(step.each(), velocities, strict=True):
            M, part = velocity.add(part, scale)
            momenta.append(part + self.beta * M if self.nesterov else M)
        return momenta
