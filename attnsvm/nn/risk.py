"""Softmax attention, the risk, and its gradient: as published, and exact at any norm.

With r_i = dL/do_i from head and loss, g_it = -r_i^T x_it plays the role of a token score and

    q_it = dL/dlogit_it = -s_it (g_it - sum_u s_iu g_iu).

When the softmax saturates, g_top - sum_u s_iu g_iu cancels in floating point and q is rounding
noise. The rows of q sum to zero, so q_top follows from the other entries. These neither cancel nor
underflow relative to the instance's largest product of slope and attention.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attnsvm.data.problem import ProblemBatch
from attnsvm.head import Parameters
from attnsvm.loss import Loss
from attnsvm.parameterization import Parameterization, Variables


@dataclass(frozen=True, eq=False)
class Forward:
    """A forward pass: attention and predictions at given weights.

    log s and s (B, n, T), -inf and 0 at inadmissible tokens; margins u_i = Y_i h(o_i), (B, n), of
    the attended o_i = X_i^T s_i, (B, n, d).
    """

    log_softmax: Tensor
    softmax: Tensor
    margins: Tensor
    attended: Tensor

    @cached_property
    def top(self) -> Tensor:
        """The token of largest attention of each sample, shape (B, n, 1)."""
        return self.log_softmax.argmax(-1, keepdim=True)


def attend(batch: ProblemBatch, U: Tensor, parameters: Parameters) -> Forward:
    """Return the forward pass with logits X_i u_i, `U` of shape (B, n, d) being u_i = W z_i.

    `parameters` are those of the head, which may differ from the batch's where it is trained.
    """
    B, n, T, d = batch.X.shape
    tokens = batch.X.view(B * n, T, d)
    logits = torch.bmm(tokens, U.reshape(B * n, d, 1)).view(B, n, T)
    if not batch.unmasked:
        logits = logits.masked_fill(~batch.mask, -torch.inf)
    log_softmax = log_attention(logits)
    softmax = log_softmax.exp()
    attended = torch.bmm(softmax.view(B * n, 1, T), tokens).view(B, n, d)
    margins = batch.Y * batch.head.mean_value(softmax, batch.X, attended, parameters)
    return Forward(log_softmax, softmax, margins, attended)


def log_attention(logits: Tensor) -> Tensor:
    """Return log s of the logits (B, n, T), those of inadmissible tokens being -inf."""
    # torch.log_softmax starts all threads even for a few rows, which is slower
    shifted = logits - logits.amax(-1, keepdim=True)
    return shifted - shifted.exp().sum(-1, keepdim=True).log()


def direct(forward: Forward, g: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Return q as published, shape (B, n, T), and its log-scale, zero for each instance (B,).

    The scores are g e^exponent, the exponent being zero here.
    """
    s = forward.softmax
    q = s * ((s * g).sum(-1, keepdim=True) - g)
    return q, q.new_zeros(len(q))


def log_domain(forward: Forward, g: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Return q (B, n, T), dL/dlogit = q e^scale, free of cancellation, overflow and underflow.

    The scores are g_it exp(exponent_i), shapes (B, n, T) and (B, n). The scale (B,) is the largest
    log s_it + exponent_i over the tokens that contribute to the gradient, those with g_it != g_top
    of their sample; 0 where there are none.
    """
    log_s, top = forward.log_softmax, forward.top
    above = g - g.gather(-1, top)
    contributing = log_s.masked_fill(above == 0, -torch.inf)
    shift = contributing.amax(-1, keepdim=True)
    size = shift.squeeze(-1) + exponent
    scale = size.amax(-1)
    scale = torch.where(scale == -torch.inf, 0.0, scale)
    e = (contributing - torch.where(shift == -torch.inf, 0.0, shift)).exp()
    q = forward.softmax * (e * above).sum(-1, keepdim=True) - e * above
    q = q * (size - scale.unsqueeze(-1)).exp().unsqueeze(-1)
    q = q.scatter_(-1, top, 0.0)
    return q.scatter_(-1, top, -q.sum(-1, keepdim=True)), scale


def token_gradient(batch: ProblemBatch, q: Tensor) -> Tensor:
    """Return P_i = X_i^T q_i, shape (B, n, d), so that dL/dW = sum_i P_i z_i^T."""
    B, n, T, d = batch.X.shape
    return torch.bmm(q.view(B * n, 1, T), batch.X.view(B * n, T, d)).view(B, n, d)


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of each variable; that of variable j is `parts[j] * exp(log_scales[j])`.

    The parts, each of the shape of its variable, (B, ...), are of ordinary size; log-scales (B,)
    may be far below the logarithm of the smallest float64. `of_logits` are g, exponent, q, scale
    of the risk alone, without the ridge: dL/dlogit_it = q_it exp(scale), shapes (B, n, T) and (B,),
    from token scores g_it exp(exponent_i), shapes (B, n, T) and (B, n).
    """

    parts: Variables
    log_scales: Variables
    of_logits: tuple[Tensor, Tensor, Tensor, Tensor]


class Risk:
    """L = (1/n) sum_i l(Y_i f_i) + ridge (sum of squared norms of the attention variables).

    Its variables are those of the parameterization `rule`, followed by those of the head if it is
    trained.
    """

    def __init__(self, batch: ProblemBatch, rule: Parameterization, loss: Loss) -> None:
        self.batch, self.rule, self.loss = batch, rule, loss
        self.attention_count = len(rule.NAMES)

    def attention(self, variables: Variables) -> Variables:
        """Return the variables of the parameterization."""
        return variables[: self.attention_count]

    def head_parameters(self, variables: Variables) -> Parameters:
        """Return the parameters of the head: the trained ones, or those of the batch."""
        if len(variables) == self.attention_count:
            return self.batch.head_parameters
        return dict(zip(self.batch.head_parameters, variables[self.attention_count :], strict=True))

    def forward(self, variables: Variables) -> Forward:
        """Return attention and predictions."""
        U = self.rule.query(self.attention(variables), self.batch.Z)
        return attend(self.batch, U, self.head_parameters(variables))

    def value(self, forward: Forward) -> Tensor:
        """Return the risk without the ridge, shape (B,)."""
        return self.loss.value(forward.margins).mean(-1)

    def gradient(
        self,
        variables: Variables,
        forward: Forward,
        how: str = "log_domain",
        ridge: float = 0.0,
        weights: Tensor | None = None,
    ) -> Gradient:
        """Return the gradient of risk and ridge: `log_domain`, exact at any norm, or `direct`.

        The ridge is the weight of the squared Frobenius norms of the attention variables; `weights`
        (n,) are those of the samples in the risk, of a batch of some, by default all one. The scale
        of the attention part is that of the larger of the two: neither overflows, and the smaller
        one keeps its relative size.
        """
        batch, parameters = self.batch, self.head_parameters(variables)
        u = forward.margins
        slope, exponent = self.loss.slope(u)
        if how == "direct":
            slope, exponent = -self.loss.derivative(u), torch.zeros_like(u)
        slope = -slope * batch.Y / batch.n  # dL/df_i is slope e^exponent
        if weights is not None:
            slope, exponent = slope * weights, exponent.masked_fill(weights == 0, -torch.inf)
        slopes = batch.head.token_slopes(batch.X, forward.attended, parameters)
        g = -(slope * batch.has_query).unsqueeze(-1) * slopes  # -x_it^T dL/do_i
        q, scale = (direct if how == "direct" else log_domain)(forward, g, exponent)
        of_logits = g, exponent, q, scale
        weight = q.new_full((), 2 * ridge)
        if ridge and how == "log_domain":
            shift, scale = scale, scale.clamp(min=math.log(2 * ridge))
            q = q * (shift - scale).exp()[:, None, None]
            weight = (math.log(2 * ridge) - scale).exp()[:, None, None]
        attention = self.attention(variables)
        parts = self.rule.pullback(attention, token_gradient(batch, q), batch.Z)
        if ridge:
            parts = tuple(g + weight * V for g, V in zip(parts, attention, strict=True))
        scales = (scale,) * len(parts)
        if len(variables) > self.attention_count:
            largest = exponent.amax(-1)
            relative = slope * (exponent - largest.unsqueeze(-1)).exp()
            trained = batch.head.parameter_gradient(forward.attended, parameters, relative)
            parts += tuple(trained.values())
            scales += (largest,) * len(trained)
        return Gradient(parts, scales, of_logits)

    @cached_property
    def best(self) -> Tensor:
        """Tokens of largest score, shape (B, n)."""
        return self.batch.scores().argmax(-1)

    def log_excess(self, forward: Forward, tokens: Tensor | None = None) -> Tensor:
        """Return log(L - L*), shape (B,), L* the risk of attending to `tokens` (B, n) alone.

        For the linear head: u*_i - u_i = sum_t s_it (gamma*_i - gamma_it) is summed without
        cancellation, relative to the largest attention in it, sample by sample. NaN where L < L*.
        By default the tokens are those of largest score.
        """
        if tokens is None:
            tokens = self.best
        gamma = self.batch.scores()
        target = gamma.gather(-1, tokens.unsqueeze(-1))
        gap = (target - gamma).masked_fill(~self.batch.mask, 0.0)
        others = forward.log_softmax.masked_fill(gap == 0, -torch.inf)
        shift = others.amax(-1)
        shift = torch.where(shift == -torch.inf, 0.0, shift)
        deficit = ((others - shift.unsqueeze(-1)).exp() * gap).sum(-1)
        slope, exponent = self.loss.excess_slope(target.squeeze(-1), deficit * shift.exp())
        part, exponent = slope * deficit, exponent + shift
        top = exponent.masked_fill(part == 0, -torch.inf).amax(-1)
        top = torch.where(top == -torch.inf, 0.0, top)
        return top + (part * (exponent - top.unsqueeze(-1)).exp()).mean(-1).log()
