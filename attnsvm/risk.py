"""The risk of a batch as a function of the trained variables: forward pass, value, gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attnsvm.attention import GRADIENTS, Forward, View, attend, token_gradient, token_scores
from attnsvm.head import Parameters
from attnsvm.loss import Loss
from attnsvm.parameterization import Parameterization, Variables
from attnsvm.problem import ProblemBatch


@dataclass(frozen=True, eq=False)
class Pull:
    """The gradient of the risk with respect to the logits, and what it is made of.

    Attributes
    ----------
    g, exponent : Tensor
        The token scores are g_it exp(exponent_i), shapes (B, n, T) and (B, n).
    q, scale : Tensor
        dL/dlogit_it = q_it exp(scale), shapes (B, n, T) and (B,).
    """

    g: Tensor
    exponent: Tensor
    q: Tensor
    scale: Tensor


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of each variable; that of variable j is `parts[j] * exp(log_scales[j])`.

    Attributes
    ----------
    parts : tuple of Tensor
        Each of the shape of its variable, (B, ...), and of ordinary size.
    log_scales : tuple of Tensor
        Each of shape (B,); may be far below the logarithm of the smallest float64.
    pull : Pull
        The gradient of the risk alone, without the ridge, with respect to the logits.
    """

    parts: Variables
    log_scales: Variables
    pull: Pull


class Risk:
    """L = (1/n) sum_i l(Y_i f_i) + ridge (sum of squared norms of the attention variables).

    `variables` are those of the parameterization, followed by those of the head if it is trained.

    Parameters
    ----------
    batch : ProblemBatch
        The instances.
    rule : Parameterization
        The variables of the attention weights.
    loss : Loss
        The loss l.
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

    def value(self, view: View) -> Tensor:
        """Return the risk without the ridge, shape (B,)."""
        return self.loss.value(view.margins).mean(-1)

    def gradient(
        self, variables: Variables, forward: Forward, how: str = "log_domain", ridge: float = 0.0
    ) -> Gradient:
        """Return the gradient of risk and ridge.

        The scale of the attention part is that of the larger of the two: neither overflows, and
        the smaller one keeps its relative size.

        Parameters
        ----------
        variables : tuple of Tensor
            The point.
        forward : Forward
            The forward pass at this point.
        how : str
            `log_domain`, exact at any norm, or `direct`, as published.
        ridge : float
            Weight of the squared Frobenius norms of the attention variables.
        """
        batch, parameters = self.batch, self.head_parameters(variables)
        slope, exponent = self.slopes(forward, how)
        g = token_scores(batch, forward, slope * batch.asked, parameters)
        q, scale = GRADIENTS[how](forward, g, exponent)
        pull = Pull(g, exponent, q, scale)
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
            weights = slope * (exponent - largest.unsqueeze(-1)).exp()
            trained = batch.head.parameter_gradient(forward.attended, parameters, weights)
            parts += tuple(trained.values())
            scales += (largest,) * len(trained)
        return Gradient(parts, scales, pull)

    def slopes(self, forward: Forward, how: str) -> tuple[Tensor, Tensor]:
        """Return a and c of dL/df_i = a_i e^{c_i}, each (B, n); c is zero for how=direct."""
        u = forward.margins
        if how == "direct":
            slope, exponent = -self.loss.derivative(u), torch.zeros_like(u)
        else:
            slope, exponent = self.loss.slope(u)
        return -slope * self.batch.Y / self.batch.n, exponent

    @cached_property
    def best(self) -> tuple[Tensor, Tensor]:
        """Tokens of largest score, shape (B, n), and the score u* of each, shape (B, n)."""
        score, token = self.batch.scores().max(-1)
        return token, score

    def log_excess(self, forward: Forward, tokens: Tensor | None = None) -> Tensor:
        """Return log(L - L*), shape (B,), L* the risk of attending to `tokens` alone.

        For the linear head: u*_i - u_i = sum_t s_it (gamma*_i - gamma_it) is summed without
        cancellation, relative to the largest attention in it, sample by sample. NaN where L < L*.

        Parameters
        ----------
        forward : Forward
            A forward pass.
        tokens : Tensor, optional
            Shape (B, n); by default the tokens of largest score.
        """
        if tokens is None:
            tokens = self.best[0]
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
