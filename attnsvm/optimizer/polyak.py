"""`optimizer=polyak`: step size from the distance to the least risk."""

from __future__ import annotations

import torch

from attnsvm.optimizer.base import OfLinearHead, norm
from attnsvm.optimizer.first_order import TINY, FirstOrder, Step
from attnsvm.parameterization import Variables


class Polyak(OfLinearHead, FirstOrder):
    """V <- V - eta (L - L*) / ||grad||^2 grad, L* = mean_i l(max_t gamma_it).

    With the linear head u_i = sum_t s_it gamma_it, so L - L* is a sum without cancellation
    (arXiv 2402.05738, sec. 4, up to its factor 1/2: lr=0.5).

    Where attention saturates at other tokens, the gradient vanishes but L - L* does not: the steps
    overflow, and the instance diverges.
    """

    NAME, KNOWN = "polyak", "its least risk is known"

    implicit_bias = "frobenius"
    """That of gradient descent."""

    def update(self, step: Step) -> Variables:
        """Return the variables after a Polyak step; unchanged where L <= L*."""
        excess = torch.nan_to_num(step.risk.log_excess(step.forward), nan=-torch.inf)
        scale = step.log_scales[0]
        square = sum((norm(part).square() for part in step.parts), torch.zeros_like(scale))
        size = -step.eta * (excess - scale).exp() / square.clamp(min=TINY)
        return step.moved([size] * len(step.parts))
