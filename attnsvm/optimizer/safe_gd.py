"""`optimizer=safe_gd`: gradient descent with the largest step that provably lowers the risk."""

import math

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config import optimizer as schema
from attnsvm.data.problem import ProblemBatch
from attnsvm.nn.risk import Risk
from attnsvm.optimizer.base import LinearHeadOptimizer, Step, norm
from attnsvm.optimizer.gradient_descent import Descent
from attnsvm.parameterization import KQ, Variables, W

REACH = 0.4
"""Largest change of a logit difference in a step: near the maximum of min(c, e^(-2c))."""

LONGEST = 1e100
"""Largest multiple of the gradient's part in a step; reached where it moves no logit."""


class SafeGD(LinearHeadOptimizer, Descent, options=schema.SafeGDConfig):
    """V <- V - eta grad with eta = lr / M, M a bound of the curvature along the step.

    Gradient descent with a fixed step eta <= 1/M, M a bound of the curvature everywhere, lowers the
    risk in each step by at least eta ||grad||^2 / 2, and its weights grow like log(steps): the
    gradient vanishes as attention saturates. So does the curvature. Therefore M is here a bound on
    the segment from V to V - eta grad, in its direction,

        |d^2/dt^2 L(V - t grad)| <= M ||grad||^2   for 0 <= t <= eta <= lr / M,    lr <= 1,

    which gives the same guarantee, L(V - eta grad) <= L(V) - eta ||grad||^2 / 2, while the weights
    grow like the number of steps. Direction and guarantee of a step are those of a fixed step; only
    its size differs.

    The bound, for a linear head and a loss with |l''| <= |l'| and |l'(u + w)| <= |l'(u)| e^|w|: in
    sample i let P = sum_tr s_t s_r |gamma_t - gamma_r|. Along the step let the logits' first and
    second derivatives differ among its tokens by at most B and B2, and the logits' changes by at
    most c. Then attention grows at most by e^c, P by e^(2c), and the margin u = sum_t s_t gamma_t
    changes by at most w = c e^(2c) P. With p_t = s_t (gamma_t - u), sum_t |p_t| <= P, and b, b2 the
    derivatives of the logits less their mean under s,

        u' = sum_t p_t b_t,    u'' = sum_t p_t (b_t^2 + b2_t),    l(u)'' = l'' u'^2 + l' u'',

        |l(u)''| <= |l'(u)| e^w e^(2c) P ((1 + e^(2c) P) B^2 + B2),

    u, P and l' on the right at the start of the step. Steps with c > REACH are not taken. For W the
    logits are linear, B2 = 0; for the factors they are quadratic. A ridge adds its own curvature.
    """

    NAME, KNOWN = "safe_gd", "its curvature is bounded"
    ALLOWED, LOSSES = "SELF_BOUNDED", "logistic | exponential | linear"

    def update(self, step: Step) -> Variables:
        """Return V - eta grad; V where the gradient is zero."""
        risk, parts = step.risk, step.parts
        if type(risk.rule) not in (W, KQ):
            raise ConfigError("optimizer=safe_gd: parameterization must be w | kq")
        if "log_gaps" not in step.memory:
            gamma, mask = risk.batch.scores(), risk.batch.mask
            gaps = (gamma.unsqueeze(-1) - gamma.unsqueeze(-2)).abs()
            pairs = mask.unsqueeze(-1) & mask.unsqueeze(-2)
            step.memory["log_gaps"] = gaps.masked_fill(~pairs, 0.0).log()
        terms = step.forward.log_softmax.unsqueeze(-1) + step.forward.log_softmax.unsqueeze(-2)
        P = (terms + step.memory["log_gaps"]).flatten(2).logsumexp(-1)  # its logarithm
        B, B2 = _rates(risk, step.variables, parts)
        reach = 2 * REACH / (B + (B.square() + 2 * REACH * B2).sqrt())
        reach = reach.amin(-1).clamp(max=LONGEST)
        t = reach.unsqueeze(-1)
        c = t * B + t.square() * B2 / 2
        factor, exponent = risk.loss.slope(step.forward.margins)
        grown = 2 * c + P
        A = factor.log() + exponent + c * grown.exp() + grown
        bound = torch.log1p(grown.exp()) + 2 * (B + t * B2).log()
        M = (A + torch.logaddexp(bound, B2.log())).logsumexp(-1) - math.log(risk.batch.n)
        squared = sum((norm(part).square() for part in parts), torch.zeros_like(M))
        if self.ridge:
            M = torch.logaddexp(M, math.log(2 * self.ridge) + squared.log())
        falling = squared.log() + step.log_scales[0]
        t = torch.minimum((math.log(step.eta) + falling - M).exp(), reach)
        return step.moved([torch.where(squared > 0, -t, 0.0)] * len(parts))


def _rates(risk: Risk, variables: Variables, parts: Variables) -> tuple[Tensor, Tensor]:
    """Return B at the start and B2 of V - t part, both (B, n)."""
    Z, query = risk.batch.Z, risk.rule.query
    if len(variables) == 1:
        B = _range(risk.batch, query(parts, Z))
        return B, torch.zeros_like(B)
    (K, Q), (G, H) = variables, parts
    first = query((G, Q), Z) + query((K, H), Z)
    return _range(risk.batch, first), 2 * _range(risk.batch, query((G, H), Z))


def _range(batch: ProblemBatch, U: Tensor) -> Tensor:
    """Return max_tr (x_t - x_r)^T u over the admissible tokens of each sample, (B, n)."""
    logits = (batch.X @ U.unsqueeze(-1)).squeeze(-1)
    highest = logits.masked_fill(~batch.mask, -torch.inf).amax(-1)
    return highest - logits.masked_fill(~batch.mask, torch.inf).amin(-1)
