"""Tests at the end of a training: rounding noise of the last step, and minima at finite weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attnsvm.attention import Forward, log_domain, token_scores
from attnsvm.linalg import EPS
from attnsvm.optimizer.base import norm
from attnsvm.optimizer.lbfgs import minimise
from attnsvm.parameterization import Variables, flat, unflat
from attnsvm.risk import Gradient, Risk

NEAR = 1e-2
"""Relative distance within which a minimum counts as reached."""

ROUNDING = 1e-8
"""Cosine between gradient and ray below which the derivative along the ray counts as zero."""

STATIONARY = 1e-3
"""Largest gradient at a minimum, relative to the contribution of the least attended token."""

GONE = 2.0
"""Multiple of the distance NEAR beyond which the search for a minimum ends."""

ITERATIONS, LENGTHS = 20, 8
"""Largest number of quasi-Newton iterations of that search, and of step lengths tried in each."""


def direction_error(risk: Risk, variables: Variables, how: str, ridge: float) -> Tensor:
    """Return the relative rounding error of the direction of the gradient at `variables`, (B,).

    For how=direct it is measured against the exact gradient. For the exact gradient it is estimated
    from the sizes of its terms. With several variables it is the largest. For how=sphere, a point
    of a regularisation path, it is the error as a minimiser: the distance of the negative
    gradient's direction from the normal of the sphere.
    """
    forward = risk.forward(variables)
    exact = risk.gradient(variables, forward, ridge=ridge)
    parts = exact.parts[: risk.attention_count]
    if how == "sphere":
        return norm(_unit(flat(parts)) + _unit(flat(risk.attention(variables))))
    if how == "direct":
        noisy = risk.gradient(variables, forward, "direct", ridge).parts[: risk.attention_count]
        errors = [norm(_unit(a) - _unit(b)) for a, b in zip(noisy, parts, strict=True)]
        return torch.stack(errors).amax(0)
    bare = risk.gradient(variables, forward) if ridge else exact
    rescaled = (bare.log_scales[0] - exact.log_scales[0]).exp()
    pairs = zip(bare.parts, parts, strict=False)  # the head's parts are left out
    shares = [torch.where(norm(a) > 0, rescaled * norm(a) / norm(b), 0.0) for a, b in pairs]
    noise = _noise(risk, variables, forward)
    return torch.where(noise.isfinite(), noise * torch.stack(shares).amax(0), torch.inf)


def at_finite_optimum(risk: Risk, variables: Variables, ridge: float) -> Tensor:
    """Return whether the weights are at a minimum of risk and ridge, not diverging, (B,) bool.

    Two derivatives are evaluated at the distance NEAR, relative to the weights (or to weights that
    give logits of size one, if those are larger): the objective must not fall any more along the
    negative gradient, nor along the ray through the weights. With a ridge this suffices, since a
    finite minimum exists. Without one, a minimiser must be found within that distance. Weights that
    diverge have none, however slow they are: a V that keeps the attended tokens tied and lowers the
    logits of the others by one has -<grad, V> = the sum of their dL/dlogit > 0, so the gradient
    cannot fall below the contribution of the least attended token.
    """
    x = risk.attention(variables)
    sizes = risk.batch.X.norm(dim=-1).amax(-1) * risk.batch.Z.norm(dim=-1)
    reach = NEAR * torch.maximum(_length(x), sizes.amax(-1) ** (-1 / len(x)))
    gradient = risk.gradient(variables, risk.forward(variables), ridge=ridge)
    near = _turns(risk, variables, gradient, ridge, reach)
    if ridge:
        return near
    scale = gradient.log_scales[0]
    near &= scale > math.log(torch.finfo(scale.dtype).tiny)  # below it the risk itself underflows
    if not near.any():
        return near
    found = near.nonzero()[:, 0]
    index = found.repeat(2) if len(found) == 1 else found  # torch rounds a batch of one differently
    part = Risk(risk.batch.take(index), risk.rule, risk.loss)
    minimum = _has_minimum(part, tuple(V[index] for V in variables), reach[index])
    return near.index_put((found,), minimum[: len(found)])


def _turns(
    risk: Risk, variables: Variables, gradient: Gradient, ridge: float, reach: Tensor
) -> Tensor:
    """Return whether the objective stops falling within `reach` downhill and NEAR along the ray."""
    x, g = risk.attention(variables), gradient.parts[: risk.attention_count]
    head = variables[len(x) :]
    steepness = _length(g)
    ahead = _shifted(x, -reach / steepness, g)
    beyond = _shifted(x, torch.full_like(reach, NEAR), x)
    along_gradient = _inner(_gradient(risk, ahead + head, ridge), g)
    outwards = _gradient(risk, beyond + head, ridge)
    along_ray = _inner(outwards, x) >= -ROUNDING * _length(outwards) * _length(x)
    return (steepness == 0) | ((along_gradient <= 0) & along_ray)


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
    floor = STATIONARY * least * _pull(risk, at, forward)
    if len(start) > 1:  # the gradient of a factor is proportional to the other one
        floor = floor * _length(start)
    found: Tensor = (y.norm(dim=1) <= 1) & (steepness <= floor * reach)
    return found


def _pull(risk: Risk, variables: Variables, forward: Forward) -> Tensor:
    """Return the largest dL/du_i (max_t gamma_it - min_t gamma_it) over the samples, (B,)."""
    gamma = risk.batch.scores(risk.head_parameters(variables))
    least = gamma.masked_fill(~risk.batch.mask, torch.inf).amin(-1)
    slope = risk.loss.derivative(forward.margins).abs() / risk.batch.n
    return (slope * (gamma.amax(-1) - least)).amax(-1)


def _noise(risk: Risk, variables: Variables, forward: Forward) -> Tensor:
    """Return the rounding error of the exact gradient of the risk in W, relative to its norm."""
    batch, parameters = risk.batch, risk.head_parameters(variables)
    slope, exponent = risk.slopes(forward, "log_domain")
    g = token_scores(batch, forward, slope * batch.asked, parameters)
    q, scale = log_domain(forward, g, exponent)
    top = forward.top
    others = forward.log_softmax.masked_fill(g == g.gather(-1, top), -torch.inf)
    others = (others + (exponent - scale.unsqueeze(-1)).unsqueeze(-1)).exp()
    queries = batch.Z.norm(dim=-1, keepdim=True)
    sizes = batch.X.norm(dim=-1) * queries
    # q_top = -sum of the other q_t: an error of q_t appears in q_top with the opposite sign
    x_top = batch.X.gather(-2, top.unsqueeze(-1).expand(-1, -1, -1, batch.d))
    apart = (batch.X - x_top).norm(dim=-1) * queries
    W = risk.rule.combine(risk.attention(variables))
    logits = (norm(W) * sizes.flatten(1).amax(1))[:, None, None]
    of_q = (1 + logits) * q.abs() + g.abs().amax(-1, keepdim=True) * others
    errors = EPS * (of_q * apart + q.abs() * sizes).sum((1, 2))
    length = norm(torch.bmm(torch.einsum("bnt,bntd->bdn", q, batch.X), batch.Z))
    return torch.where(errors > 0, errors / length, 0.0)


def _gradient(risk: Risk, variables: Variables, ridge: float) -> Variables:
    """Return the gradient in the attention variables, of each instance up to a factor."""
    gradient = risk.gradient(variables, risk.forward(variables), ridge=ridge)
    return gradient.parts[: risk.attention_count]


def _shifted(x: Variables, sizes: Tensor, g: Variables) -> Variables:
    """Return x + sizes g."""
    return tuple(V + sizes.view(-1, 1, 1) * part for V, part in zip(x, g, strict=True))


def _inner(a: Variables, b: Variables) -> Tensor:
    return torch.stack([(V * U).flatten(1).sum(1) for V, U in zip(a, b, strict=True)]).sum(0)


def _length(a: Variables) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(torch.stack([norm(V) for V in a]), dim=0)
    return length


def _unit(part: Tensor) -> Tensor:
    return part / norm(part).clamp(min=1e-300).reshape(-1, *[1] * (part.ndim - 1))
