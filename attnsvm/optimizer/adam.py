"""`optimizer=adam`: Adam with bias correction."""

from __future__ import annotations

from dataclasses import dataclass

from attnsvm.optimizer.base import broadcast
from attnsvm.optimizer.first_order import TINY, FirstOrder, Step, Velocity
from attnsvm.parameterization import Variables


@dataclass(kw_only=True, eq=False)
class Adam(FirstOrder):
    """V <- V - eta m / (sqrt(v) + eps) with bias-corrected means m of grad and v of grad^2.

    Both are sums with scales of their own, so that with eps = 0 the rule is exact even where
    squares of the gradient underflow.

    Parameters
    ----------
    beta1, beta2 : float
        Decay rates of the means.
    eps : float
        Added to sqrt(v).
    """

    beta1: float
    beta2: float
    eps: float

    def update(self, step: Step) -> Variables:
        """Return the variables after an Adam step."""
        k = step.memory["k"] = step.memory.get("k", 0) + 1
        share1, share2 = ((1 - beta) / (1 - beta**k) for beta in (self.beta1, self.beta2))
        sums = step.memory.setdefault(
            "means",
            [(Velocity(V, self.beta1), Velocity(V, self.beta2)) for V in step.variables],
        )
        for (V, part, scale), (first, second) in zip(step.each(), sums, strict=True):
            m, _, log_m = first.add(part, scale)
            v, _, log_v = second.add(part.square(), 2 * scale)
            eps = self.eps * (-log_v / 2).exp() if self.eps else log_v.new_zeros(())
            root = (share2 * v).sqrt() + broadcast(eps, V) + TINY
            V.sub_(step.eta * share1 * broadcast((log_m - log_v / 2).exp(), V) * m / root)
        return step.variables
