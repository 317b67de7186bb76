"""Tests at the end of a training: rounding noise of the last step, and minima at finite weights."""

import math
from collections.abc import Iterable
from functools import cached_property, partial
from typing import NamedTuple, Self

import torch
from torch import Tensor

from attnsvm.linalg import EPS
from attnsvm.linalg.jit import in_parts
from attnsvm.nn.risk import Forward, Gradient, Risk, token_gradient
from attnsvm.optimizer.base import TINY, broadcast, norm
from attnsvm.optimizer.lbfgs import minimise
from attnsvm.parameterization import Variables, flat, unflat

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
    `how` is direct, log_domain or sphere; the others are as for `Ending`.
    """
    whole = Ending(risk, variables, W, ridge)
    size = len(W) * (W[0].numel() + risk.batch.X[0].numel())

    @torch.no_grad()  # of each thread
    def of_part(first: int, end: int) -> tuple[Tensor, Tensor]:
        part = whole.take(slice(first, end))
        return part.direction_error(how), part.at_finite_optimum()

    # parts of one instance would have other last bits
    parts = in_parts(of_part, len(W), min(size // PART, len(W) // 2), threads)
    error, optimum = zip(*parts, strict=True)
    return torch.cat(error), torch.cat(optimum)


class Point(NamedTuple):
    """The forward pass, the gradient, and that in the attention variables as a vector, (B, N)."""

    forward: Forward
    gradient: Gradient
    g: Tensor


class Ending:
    """How a training ended: its last gradient's error, and whether it is at a finite minimum.

    The objective `risk` is without the ridge, whose weight is given. The last variables are each
    (B, ...), their weights W (B, d, d).
    """

    def __init__(self, risk: Risk, variables: Variables, W: Tensor, ridge: float) -> None:
        self.risk, self.variables, self.W, self.ridge = risk, variables, W, ridge
        self.x = flat(risk.attention(variables))

    def take(self, at: Tensor | slice) -> Self:
        """Return the ending of the instances at `at`."""
        risk = Risk(self.risk.batch.take(at), self.risk.rule, self.risk.loss)
        return type(self)(risk, tuple(V[at] for V in self.variables), self.W[at], self.ridge)

    def at(self, x: Tensor, ridge: float) -> Point:
        """Return what there is at other attention variables, a vector x (B, N)."""
        attention = self.risk.attention(self.variables)
        moved = unflat(x, [V.shape for V in attention])
        variables = (*moved, *self.variables[len(moved) :])
        forward = self.risk.forward(variables)
        gradient = self.risk.gradient(variables, forward, ridge=ridge)
        return Point(forward, gradient, flat(self.risk.attention(gradient.parts)))

    @cached_property
    def here(self) -> Point:
        """What there is at the last variables."""
        return self.at(self.x, self.ridge)

    @cached_property
    def sizes(self) -> Tensor:
        """||x_it|| ||z_i||, (B, n, T)."""
        batch = self.risk.batch
        return batch.X.norm(dim=-1) * batch.Z.norm(dim=-1, keepdim=True)

    @cached_property
    def reach(self) -> Tensor:
        """NEAR times the length of the variables, or of those that give logits of size one, (B,).

        The larger of the two.
        """
        largest = self.sizes.flatten(1).amax(1)
        return NEAR * torch.maximum(norm(self.x), largest ** (-1 / self.risk.attention_count))

    # --- rounding noise ---------------------------------------------------------------------------

    def direction_error(self, how: str) -> Tensor:
        """Return the relative rounding error of the direction of the last gradient, (B,).

        For how=direct it is measured against the exact gradient. For the exact gradient it is
        estimated from the sizes of its terms. With several variables it is the largest. For
        how=sphere, a point of a regularisation path, it is the error as a minimiser: the distance
        of the negative gradient's direction from the normal of the sphere.
        """
        forward, exact, g = self.here
        if how == "sphere":
            return norm(_unit(g) + _unit(self.x))
        if how == "direct":
            direct = self.risk.gradient(self.variables, forward, "direct", self.ridge)
            return torch.stack(
                [norm(_unit(a) - _unit(b)) for a, b in self._pairs(direct, exact)]
            ).amax(0)
        return self.rounding

    def _pairs(self, first: Gradient, second: Gradient) -> Iterable[tuple[Tensor, Tensor]]:
        """Return the parts of two gradients in the attention variables, side by side."""
        return zip(*(self.risk.attention(of.parts) for of in (first, second)), strict=True)

    @cached_property
    def rounding(self) -> Tensor:
        """Relative rounding error of the direction of the exact gradient, (B,)."""
        gradient = self.here.gradient
        bare = self.at(self.x, 0.0).gradient if self.ridge else gradient
        rescaled = (bare.log_scales[0] - gradient.log_scales[0]).exp()
        shares = [
            torch.where(norm(a) > 0, rescaled * norm(a) / norm(b), 0.0)
            for a, b in self._pairs(bare, gradient)
        ]
        noise = self._noise(bare.of_logits)
        return torch.where(noise.isfinite(), noise * torch.stack(shares).amax(0), torch.inf)

    def _noise(self, of_logits: tuple[Tensor, ...]) -> Tensor:
        """Return the rounding error of the exact gradient of the risk in W, relative to its norm.

        It is 0 where the gradient is exactly zero.
        """
        batch, forward, top = self.risk.batch, self.here.forward, self.here.forward.top
        g, exponent, q, scale = of_logits
        others = forward.log_softmax.masked_fill(g == g.gather(-1, top), -torch.inf)
        others = (others + (exponent - scale.unsqueeze(-1)).unsqueeze(-1)).exp()
        # q_top = -sum of the other q_t: an error of q_t appears in q_top with the opposite sign
        x_top = batch.X.gather(-2, top.unsqueeze(-1).expand(-1, -1, -1, batch.d))
        apart = (batch.X - x_top).norm(dim=-1) * batch.Z.norm(dim=-1, keepdim=True)
        logits = (norm(self.W) * self.sizes.flatten(1).amax(1))[:, None, None]
        of_q = (1 + logits) * q.abs() + g.abs().amax(-1, keepdim=True) * others
        errors = EPS * (of_q * apart + q.abs() * self.sizes).sum((1, 2))
        size = norm(torch.bmm(token_gradient(batch, q).mT, batch.Z))
        return torch.where(errors > 0, errors / size, 0.0)

    # --- minima -----------------------------------------------------------------------------------

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
        scale = self.here.gradient.log_scales[0]
        finite = torch.ones_like(scale, dtype=torch.bool)
        if not self.ridge:
            finite = scale > math.log(torch.finfo(scale.dtype).tiny)  # below it the risk underflows
        tests = Ending._turns_downhill, Ending._turns_outwards, Ending._has_minimum
        for test in tests[:2] if self.ridge else tests:
            at = finite.nonzero()[:, 0]
            if not len(at):
                break
            part = self if len(at) == len(finite) else self.take(at)
            finite = finite.index_put((at,), test(part))
        return finite

    def _turns_downhill(self) -> Tensor:
        """Return whether the objective stops falling within `reach` along the negative gradient."""
        g = self.here.g
        there = self.at(self.x - (self.reach / norm(g))[:, None] * g, self.ridge).g
        return (norm(g) == 0) | ((there * g).sum(1) <= 0)

    def _turns_outwards(self) -> Tensor:
        """Return whether it stops falling within NEAR along the ray through the weights.

        The cosine of gradient and ray is known to the relative error of the gradient.
        """
        outwards = self.at(self.x + NEAR * self.x, self.ridge).g
        known_to = self.rounding.clamp(min=ROUNDING)
        turns = (outwards * self.x).sum(1) >= -known_to * norm(outwards) * norm(self.x)
        return (norm(self.here.g) == 0) | turns

    def _has_minimum(self) -> Tensor:
        """Return whether quasi-Newton steps end within `reach` with a negligible gradient.

        The steps are taken in y, with variables x + reach y; the search ends where ||y|| > GONE.
        """
        risk, unit = self.risk, self.reach[:, None]

        def objective(y: Tensor) -> tuple[Tensor, Tensor]:
            forward, gradient, g = self.at(self.x + unit * y, 0.0)
            return risk.value(forward), unit * g * gradient.log_scales[0].exp()[:, None]

        search = partial(minimise, memory=4, radius=GONE, lengths=LENGTHS)
        y, steepness = search(objective, torch.zeros_like(self.x), ITERATIONS, 0.0)
        forward = self.at(self.x + unit * y, 0.0).forward
        least = forward.softmax.masked_fill(~risk.batch.mask, 1.0).flatten(1).amin(1)
        floor = STATIONARY * least * _largest_contribution(risk, self.variables, forward)
        if risk.attention_count > 1:  # the gradient of a factor is proportional to the other one
            floor = floor * norm(self.x)
        return (y.norm(dim=1) <= 1) & (steepness <= floor * self.reach)


def _largest_contribution(risk: Risk, variables: Variables, forward: Forward) -> Tensor:
    """Return the largest dL/du_i (max_t gamma_it - min_t gamma_it) over the samples, (B,)."""
    gamma = risk.batch.scores(risk.head_parameters(variables))
    least = gamma.masked_fill(~risk.batch.mask, torch.inf).amin(-1)
    slope = risk.loss.derivative(forward.margins).abs() / risk.batch.n
    return (slope * (gamma.amax(-1) - least)).amax(-1)


def _unit(part: Tensor) -> Tensor:
    return part / broadcast(norm(part).clamp(min=TINY), part)
