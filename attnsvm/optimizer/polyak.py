"""`optimizer=polyak`: step size from the distance to the least risk."""

from __future__ import annotations

import torch

from attnsvm.head import Head
from attnsvm.loss import Loss
from attnsvm.optimizer.base import check_decreasing, check_least_risk_known, norm
from attnsvm.optimizer.first_order import TINY, FirstOrder, Step
from attnsvm.parameterization import Variables


class Polyak(FirstOrder):
    """V <- V - eta (L - L*) / ||grad||^2 grad, L* = mean_i l(max_t gamma_it).

    With the linear head u_i = sum_t s_it gamma_it, so L* is the infimum of the risk, approached
    where attention selects the optimal tokens, and L - L* is a sum without cancellation
    (arXiv 2402.05738, sec. 4, up to its factor 1/2: lr=0.5). With other heads a mixture of tokens
    may have a smaller risk than L*, so they are rejected, and so is a head that is trained.

    Where attention saturates at other tokens, the gradient vanishes but L - L* does not: the steps
    overflow, and the instance diverges.
    """

    @property
    def implicit_bias(self) -> str:
        """The Frobenius norm (that of gradient descent)."""
        return "frobenius"

    def check_head(self, head: Head) -> None:
        """Raise ConfigError unless the head is linear and not trained."""
        check_least_risk_known(head, "polyak")

    def check_loss(self, loss: Loss) -> None:
        """Raise ConfigError unless the loss is decreasing: L* must be known."""
        check_decreasing(loss, "polyak")

    def update(self, step: Step) -> Variables:
        """Return the variables after a Polyak step; unchanged where L <= L*."""
        excess = torch.nan_to_num(step.risk.log_excess(step.forward), nan=-torch.inf)
        scale = step.log_scales[0]
        square = sum((norm(part).square() for part in step.parts), torch.zeros_like(scale))
        size = -step.eta * (excess - scale).exp() / square.clamp(min=TINY)
        return step.moved([size] * len(step.parts))
