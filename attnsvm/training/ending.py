"""Tests at the end of a training: rounding noise of the last step, and minima at finite weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import torch
from torch import Tensor

from attnsvm.attention import Forward, LogitGradient, Risk, token_gradient
from attnsvm.linalg import EPS
from attnsvm.optimizer.base import norm
from attnsvm.optimizer.lbfgs import minimise
from attnsvm.parameterization import Variables, flat, unflat
from attnsvm.problem import ProblemBatch

Index = Tensor | slice

ALL = slice(None)

NEAR = 1e-2
"""Relative distance within which a minimum counts as reached."""

ROUNDING = 1e-8
"""Cosine between gradient and ray below which the derivative along the ray counts as zero; or the
gradient's relative error, where that is larger."""

STATIONARY = 1e-3
"""Largest gradient at a minimum, relative to the contribution of the least attended token."""

GONE = 2.0
"""Multiple of the distance NEAR beyond which the search for a minimum ends."""

PART = 2**18
"""Numbers in the tokens and weights of a part of a large batch: 2 MiB."""

ITERATIONS, LENGTHS = 20, 8
"""Largest number of quasi-Newton iterations of that search, and of step lengths tried in each."""


def ended(
    risk: Risk, variables: Variables, W: Tensor, how: str, ridge: float, threads: int
) -> tuple[Tensor, Tensor]:
    """Return `direction_error` and `at_finite_optimum` of the last variables, each (B,).

    A large batch is taken in parts, whose temporaries fit the cache, by up to `threads` threads.

    Parameters
    ----------
    risk, variables, W, ridge
        As for `Ending`.
    how : str
        direct, log_domain or sphere.
    threads : int
        Number of threads, at least 1.
    """
    numbers = W[0].numel() + risk.batch.X[0].numel()
    parts = max(1, len(W) // max(2, PART // numbers))
    ends = [len(W) * k // parts for k in range(parts + 1)]

    @torch.no_grad()  # of each thread
    def of_part(first: int, last: int) -> tuple[Tensor, Tensor]:
        here = slice(first, last)
        some = risk if parts == 1 else Risk(risk.batch.take(here), risk.rule, risk.loss)
        ending = Ending(some, tuple(V[here] for V in variables), W[here], ridge)
        return ending.direction_error(how), ending.at_finite_optimum()

    if parts == 1:
        return of_part(0, len(W))
    with ThreadPoolExecutor(threads) as pool:
        error, optimum = zip(*pool.map(of_part, ends[:-1], ends[1:]), strict=True)
    return torch.cat(error), torch.cat(optimum)


class Ending:
    """How a training ended: its last gradient's error, and whether it is at a finite minimum.

    Parameters
    ----------
    risk : Risk
        The objective, without the ridge.
    variables : tuple of Tensor
        The last variables, each (B, ...).
    W : Tensor
        Their weights, (B, d, d).
    ridge : float
        Weight of the ridge.
    """

    def __init__(self, risk: Risk, variables: Variables, W: Tensor, ridge: float) -> None:
        self.risk, self.variables, self.W, self.ridge = risk, variables, W, ridge
        self.forward = risk.forward(variables)
        self.gradient = risk.gradient(variables, self.forward, ridge=ridge)
        self.sizes = logit_sizes(risk.batch)

    def direction_error(self, how: str) -> Tensor:
        """Return the relative rounding error of the direction of the last gradient, (B,).

        For how=direct it is measured against the exact gradient. For the exact gradient it is
        estimated from the sizes of its terms. With several variables it is the largest. For
        how=sphere, a point of a regularisation path, it is the error as a minimiser: the distance
        of the negative gradient's direction from the normal of the sphere.
        """
        risk, variables = self.risk, self.variables
        parts = risk.attention(self.gradient.parts)
        if how == "sphere":
            return norm(_unit(flat(parts)) + _unit(flat(risk.attention(variables))))
        if how == "direct":
            direct = risk.gradient(variables, self.forward, "direct", self.ridge)
            pairs = zip(risk.attention(direct.parts), parts, strict=True)
            return torch.stack([norm(_unit(a) - _unit(b)) for a, b in pairs]).amax(0)
        return self.rounding

    @cached_property
    def rounding(self) -> Tensor:
        """Relative rounding error of the direction of the exact gradient, (B,)."""
        risk, parts = self.risk, self.risk.attention(self.gradient.parts)
        bare = risk.gradient(self.variables, self.forward) if self.ridge else self.gradient
        rescaled = (bare.log_scales[0] - self.gradient.log_scales[0]).exp()
        pairs = zip(bare.parts, parts, strict=False)  # the head's parts are left out
        shares = [torch.where(norm(a) > 0, rescaled * norm(a) / norm(b), 0.0) for a, b in pairs]
        noise = self._noise(bare.of_logits)
        return torch.where(noise.isfinite(), noise * torch.stack(shares).amax(0), torch.inf)

    @cached_property
    def steepness(self) -> Tensor:
        """Length of the gradient in the attention variables, up to its scale, (B,)."""
        return length(self.risk.attention(self.gradient.parts))

    def _noise(self, of_logits: LogitGradient) -> Tensor:
        """Return the rounding error of the exact gradient of the risk in W, relative to its norm.

        It is 0 where the gradient is exactly zero.
        """
        batch, forward, top = self.risk.batch, self.forward, self.forward.top
        g, q = of_logits.g, of_logits.q
        others = forward.log_softmax.masked_fill(g == g.gather(-1, top), -torch.inf)
        others = (others + (of_logits.exponent - of_logits.scale.unsqueeze(-1)).unsqueeze(-1)).exp()
        # q_top = -sum of the other q_t: an error of q_t appears in q_top with the opposite sign
        x_top = batch.X.gather(-2, top.unsqueeze(-1).expand(-1, -1, -1, batch.d))
        apart = (batch.X - x_top).norm(dim=-1) * batch.Z.norm(dim=-1, keepdim=True)
        logits = (norm(self.W) * self.sizes.flatten(1).amax(1))[:, None, None]
        of_q = (1 + logits) * q.abs() + g.abs().amax(-1, keepdim=True) * others
        errors = EPS * (of_q * apart + q.abs() * self.sizes).sum((1, 2))
        size = norm(torch.bmm(token_gradient(batch, q).mT, batch.Z))
        return torch.where(errors > 0, errors / size, 0.0)

    def at_finite_optimum(self) -> Tensor:
        """Return whether the weights are at a minimum of risk and ridge, not diverging, (B,) bool.

        Two derivatives are evaluated at the distance NEAR, relative to the weights (or to weights
        that give logits of size one, if those are larger): the objective must not fall any more
        along the negative gradient, nor along the ray through the weights. With a ridge this
        suffices, since a finite minimum exists. Without one, a minimiser must be found within that
        distance. Weights that diverge have none, however slow they are: a V that keeps the attended
        tokens tied and lowers the logits of the others by one has -<grad, V> = the sum of their
        dL/dlogit > 0, so the gradient cannot fall below the contribution of the least attended
        token. Each test is made where those before it leave the question open.
        """
        x, scale = self.risk.attention(self.variables), self.gradient.log_scales[0]
        near = reach(x, self.sizes.flatten(1).amax(1))
        open_ = torch.ones_like(scale, dtype=torch.bool)
        if not self.ridge:
            open_ = scale > math.log(torch.finfo(scale.dtype).tiny)  # below it the risk underflows
        turns = _among(open_, lambda at: self._turns_downhill(at, near))
        turns = _among(turns, self._turns_outwards)
        if self.ridge:
            return turns
        return _among(turns, lambda at: _has_minimum(*self._part(at), near[at]))

    def _turns_downhill(self, at: Index, reach: Tensor) -> Tensor:
        """Return whether the objective stops falling within `reach` along the negative gradient."""
        risk, variables = self._part(at)
        g = tuple(part[at] for part in risk.attention(self.gradient.parts))
        ahead = _shifted(risk.attention(variables), -reach[at] / self.steepness[at], g)
        there = _gradient(risk, ahead + variables[len(g) :], self.ridge)
        return (self.steepness[at] == 0) | (_inner(there, g) <= 0)

    def _turns_outwards(self, at: Index) -> Tensor:
        """Return whether it stops falling within NEAR along the ray through the weights.

        The cosine of gradient and ray is known to the relative error of the gradient.
        """
        risk, variables = self._part(at)
        x = risk.attention(variables)
        beyond = _shifted(x, x[0].new_full((len(x[0]),), NEAR), x)
        outwards = _gradient(risk, beyond + variables[len(x) :], self.ridge)
        known_to = self.rounding[at].clamp(min=ROUNDING)
        turns = _inner(outwards, x) >= -known_to * length(outwards) * length(x)
        return (self.steepness[at] == 0) | turns

    def _part(self, at: Index) -> tuple[Risk, Variables]:
        """Return the objective and the variables of the instances at some indices."""
        risk = self.risk
        if isinstance(at, slice):
            return risk, self.variables
        part = Risk(risk.batch.take(at), risk.rule, risk.loss)
        return part, tuple(V[at] for V in self.variables)


def logit_sizes(batch: ProblemBatch) -> Tensor:
    """Return ||x_it|| ||z_i||, (B, n, T)."""
    sizes: Tensor = batch.X.norm(dim=-1) * batch.Z.norm(dim=-1, keepdim=True)
    return sizes


def reach(x: Variables, largest: Tensor) -> Tensor:
    """Return NEAR times the length of x, or that which gives logits of size one if it is larger.

    `largest` is the largest ||x_it|| ||z_i|| of each instance, (B,).
    """
    return NEAR * torch.maximum(length(x), largest ** (-1 / len(x)))


def _among(open_: Tensor, test: Callable[[Index], Tensor]) -> Tensor:
    """Return where `open_` and `test` hold; the test is given the indices where `open_` holds."""
    found = open_.nonzero()[:, 0]
    if len(found) == len(open_):
        return test(ALL)
    if not len(found):
        return open_
    at = found.repeat(2) if len(found) == 1 else found  # torch rounds a batch of one differently
    return open_.index_put((found,), test(at)[: len(found)])


def _has_minimum(risk: Risk, variables: Variables, reach: Tensor) -> Tensor:
    """Return whether quasi-Newton steps end within `reach` with a negligible gradient.

    The steps are taken in y, with variables start + reach y; the search ends where ||y|| > GONE.
    """
    start = risk.attention(variables)
    x, shapes, head = flat(start), [V.shape for V in start], variables[len(start) :]
    unit = reach[:, None]

    def objective(y: Tensor) -> tuple[Tensor, Tensor]:
        at = unflat(x + unit * y, shapes) + head
        forward = risk.forward(at)
        gradient = risk.gradient(at, forward)
        g = flat(gradient.parts[: len(start)]) * gradient.log_scales[0].exp()[:, None]
        return risk.value(forward), unit * g

    y, steepness = minimise(
        objective,
        torch.zeros_like(x),
        ITERATIONS,
        tolerance=0.0,
        memory=4,
        radius=GONE,
        lengths=LENGTHS,
    )
    at = unflat(x + unit * y, shapes) + head
    forward = risk.forward(at)
    least = forward.softmax.masked_fill(~risk.batch.mask, 1.0).flatten(1).amin(1)
    floor = STATIONARY * least * _largest_contribution(risk, at, forward)
    if len(start) > 1:  # the gradient of a factor is proportional to the other one
        floor = floor * length(start)
    found: Tensor = (y.norm(dim=1) <= 1) & (steepness <= floor * reach)
    return found


def _largest_contribution(risk: Risk, variables: Variables, forward: Forward) -> Tensor:
    """Return the largest dL/du_i (max_t gamma_it - min_t gamma_it) over the samples, (B,)."""
    gamma = risk.batch.scores(risk.head_parameters(variables))
    least = gamma.masked_fill(~risk.batch.mask, torch.inf).amin(-1)
    slope = risk.loss.derivative(forward.margins).abs() / risk.batch.n
    return (slope * (gamma.amax(-1) - least)).amax(-1)


def _gradient(risk: Risk, variables: Variables, ridge: float) -> Variables:
    """Return the gradient in the attention variables, of each instance up to a factor."""
    gradient = risk.gradient(variables, risk.forward(variables), ridge=ridge)
    return gradient.parts[: risk.attention_count]


def _shifted(x: Variables, sizes: Tensor, g: Variables) -> Variables:
    """Return x + sizes g."""
    return tuple(V + sizes.view(-1, 1, 1) * part for V, part in zip(x, g, strict=True))


def _inner(a: Variables, b: Variables) -> Tensor:
    return torch.stack([(V * U).flatten(1).sum(1) for V, U in zip(a, b, strict=True)]).sum(0)


def length(a: Variables) -> Tensor:
    """Return the Euclidean norm of all variables together, (B,)."""
    size: Tensor = torch.linalg.vector_norm(torch.stack([norm(V) for V in a]), dim=0)
    return size


def _unit(part: Tensor) -> Tensor:
    return part / norm(part).clamp(min=1e-300).reshape(-1, *[1] * (part.ndim - 1))
