"""Gradient descent and its relatives, `optimizer=`.

`gd`, `normalized_gd`, `momentum`, `polyak`, `adam` and `mirror_descent`.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from attnsvm.config import optimizer as schema
from attnsvm.linalg import EPS
from attnsvm.linalg.simd.arithmetic import exp, maximum, sqrt
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.nn.risk import Risk
from attnsvm.norm import Entrywise
from attnsvm.optimizer.base import (
    TINY,
    Direction,
    FirstOrder,
    LinearHeadOptimizer,
    Rule,
    Step,
    Velocity,
    broadcast,
    finite,
    norm,
    remember,
)
from attnsvm.parameterization import Variables

ADAM = 0
"""Code of the direction; those of directions in a norm are in `steepest`."""


class Descent(FirstOrder, options=schema.DescentConfig):
    """Steps along the gradient or a mean of gradients, which converge in direction as W-GD does."""

    implicit_bias = "frobenius"
    """Local and global convergence of W-GD (arXiv 2308.16898, normalised steps: sec. 3.2)."""


class GD(Descent, options=schema.GDConfig):
    """V <- V - eta grad, gradient descent with a fixed step (algorithm W-GD)."""

    def rule(self, risk: Risk) -> Rule:
        """Return steps along the gradient."""
        return Rule()

    def update(self, step: Step) -> Variables:
        """Return V - eta grad."""
        return step.moved([-step.eta * scale.exp() for scale in step.log_scales])


class NormalizedGD(Descent, options=schema.NormalizedGDConfig):
    """V <- V - eta grad / ||grad||_F, each variable by its own norm (arXiv 2308.16898, sec. 3.2).

    With gradient=direct eps is added to the norm, as published; the exact gradient needs none.
    """

    def rule(self, risk: Risk) -> Rule:
        """Return steps of length one."""
        return Rule(normalised=True)

    def update(self, step: Step) -> Variables:
        """Return V - eta grad / ||grad||_F; V where the gradient is zero."""
        eps = EPS if self.gradient == "direct" else TINY
        return step.moved([-step.eta / (norm(part) + eps) for part in step.parts])


class Momentum(Descent, options=schema.MomentumConfig):
    """Heavy-ball gradient descent: M <- beta M + grad, V <- V - eta M.

    With `nesterov`, V <- V - eta (grad + beta M).
    """

    beta: float
    nesterov: bool

    def rule(self, risk: Risk) -> Rule:
        """Return steps along the momentum."""
        return Rule(False, self.beta, self.nesterov)

    def update(self, step: Step) -> Variables:
        """Return the variables after a heavy-ball step."""
        for V, M, part, scale in step.momenta(self.beta):
            along = part + self.beta * M if self.nesterov else M
            V.addcmul_(along, broadcast(-step.eta * scale.exp(), V))
        return step.variables


class Polyak(LinearHeadOptimizer, Descent, options=schema.PolyakConfig):
    """V <- V - eta (L - L*) / ||grad||^2 grad, L* = mean_i l(max_t gamma_it).

    With the linear head u_i = sum_t s_it gamma_it, so L - L* is a sum without cancellation
    (arXiv 2402.05738, sec. 4, up to its factor 1/2: lr=0.5).

    Where attention saturates at other tokens, the gradient vanishes but L - L* does not: the steps
    overflow, and the instance diverges.
    """

    NAME, KNOWN = "polyak", "its least risk is known"

    def update(self, step: Step) -> Variables:
        """Return the variables after a Polyak step; unchanged where L <= L*."""
        excess = torch.nan_to_num(step.risk.log_excess(step.forward), nan=-torch.inf)
        scale = step.log_scales[0]
        square = sum((norm(part).square() for part in step.parts), torch.zeros_like(scale))
        size = -step.eta * (excess - scale).exp() / square.clamp(min=TINY)
        return step.moved([size] * len(step.parts))


class Adam(FirstOrder, options=schema.AdamConfig):
    """V <- V - eta m / (sqrt(v) + eps) with bias-corrected means m of grad and v of grad^2.

    beta1 and beta2 are the decay rates of the means. Both are sums with scales of their own, so
    that with eps = 0 the rule is exact even where squares of the gradient underflow.
    """

    beta1: float
    beta2: float
    eps: float

    def shares(self, k: Any) -> tuple[Any, Any]:
        """Return the factors of both sums at step k = 0, 1, ... that make means of them."""
        first, second = ((1 - beta) / (1 - beta ** (k + 1)) for beta in (self.beta1, self.beta2))
        return first, second

    def plan(self, start: int, end: int) -> NDArray[np.float64]:
        """Return the sizes of steps by sums, in place of means, and eps beside their root."""
        first, second = self.shares(np.arange(start, end))
        eta, decay, _ = super().plan(start, end).T
        root = np.sqrt(second)
        return np.stack([eta * first / root, decay, self.eps / root], 1)

    def rule(self, risk: Risk) -> Rule:
        """Return steps along the quotient of the sums."""
        return Rule(beta=self.beta1, direction=Direction(ADAM, beta2=self.beta2))

    def update(self, step: Step) -> Variables:
        """Return the variables after an Adam step."""
        k = step.memory["k"] = step.memory.get("k", -1) + 1
        share1, share2 = self.shares(k)
        sums = step.memory.setdefault(
            "means", [(Velocity(V, self.beta1), Velocity(V, self.beta2)) for V in step.variables]
        )
        for (V, part, scale), (first, second) in zip(step.each(), sums, strict=True):
            m, _, log_m = first.add(part, scale)
            v, _, log_v = second.add(part.square(), 2 * scale)
            eps = self.eps * (-log_v / 2).exp() if self.eps else log_v.new_zeros(())
            root = (share2 * v).sqrt() + broadcast(eps, V) + TINY
            size = step.eta * share1 * broadcast((log_m - log_v / 2).exp(), V)
            V.sub_(size * m / root)
        return step.variables


@njit(inline="always")
def adapt(G: LaneArray, memory: Any, scale: Any, rule: Rule, beta2: float, eps: float) -> Any:
    """Overwrite G e^scale by Adam's direction, compiled; return its log-scale.

    `memory` are the sums M <- beta1 M + G and S <- beta2 S + G^2, each with its log-scale.
    """
    M, scale_M, S, scale_S = memory
    older, newer = scale_S[0] + np.log(beta2), scale + scale
    scale_S[0] = maximum(older, newer)
    square = finite(scale_S[0])
    old, new, g, s = exp(older - square), exp(newer - square), G.flat, S.flat
    for j in range(len(g)):
        s[j] = old * s[j] + new * g[j] * g[j]
    scale = remember(G, M, scale_M, scale, rule)
    factor, floor = exp(scale - 0.5 * square), eps * exp(-0.5 * square) + TINY
    for j in range(len(g)):
        g[j] = factor * g[j] / (sqrt(s[j]) + floor)
    return scale


class MirrorDescent(FirstOrder, options=schema.MirrorDescentConfig):
    """Mirror descent with the potential psi(V) = sum |V|^p / p, p > 1, whose limit is the l_p SVM.

    psi'(V) <- psi'(V) - eta grad, or grad / ||grad||_q of each variable if `normalized`,
    1/p + 1/q = 1, as in the scripts of arXiv 2410.14581; with p = 2 this is gradient descent.
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
