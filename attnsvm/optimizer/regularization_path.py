"""`optimizer=regularization_path`: minimisers of the risk in balls of growing radius."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.config import optimizer as schema
from attnsvm.nn.risk import Forward, Risk
from attnsvm.optimizer.base import LinearHeadOptimizer, Report, Visit
from attnsvm.optimizer.lbfgs import minimise
from attnsvm.parameterization import Variables, flat, unflat


class RegularizationPath(LinearHeadOptimizer, options=schema.RegularizationPathConfig):
    """W_R = argmin_{||W||_F <= R} L(W), or the factors with (||K||_F^2 + ||Q||_F^2) / 2 <= R.

    As R grows, W_R / R tends to the direction of the Frobenius attention SVM and K_R Q_R^T / R to
    that of the nuclear one (arXiv 2308.16898, the theorem on regularisation paths). The risk has no
    minimiser inside the ball, so log(L - L*) is minimised on its sphere, x = radius * v / ||v||, by
    quasi-Newton steps in v. Each radius starts from the minimiser of the one before, in a cone from
    its axis. L* is the risk of the optimal tokens, or, once the instance has saturated, that of the
    tokens it attends to most. Of the initial weights only the direction matters; `zero` has none:
    then one normalised gradient step is taken first.

    With `cone` it is a local path: the minimisers among the weights within that angle (degrees) of
    the initial ones. About the SVM direction of locally optimal tokens, and within a small enough
    angle, they too tend to this direction (same paper, on local regularisation paths).
    """

    radii: Sequence[float]
    iterations: int
    cone: float | None

    NAME, KNOWN = "regularization_path", "its least risk is known"

    implicit_bias = "frobenius"
    """The theorem on regularisation paths of arXiv 2308.16898."""

    def grid(self) -> list[float]:
        """Return 0, for the initial weights, and the radii."""
        return [0.0, *self.radii]

    def run(self, risk: Risk, variables: Variables, visit: Visit, report: Report) -> Variables:
        """Follow the path."""
        forward = risk.forward(variables)
        visit(variables, forward)
        shapes = [V.shape for V in variables]
        v = flat(variables) - _first_step(risk, variables, forward)
        cone = Cone(v, self.cone) if self.cone else torch.clone
        tokens = risk.best
        for done, radius in enumerate(self.radii):
            size = radius if len(variables) == 1 else math.sqrt(2 * radius)
            changed = torch.ones_like(tokens[:, 0], dtype=torch.bool)
            for _ in range(2):  # again, for instances that saturated at other tokens
                objective = _Sphere(risk, shapes, size, tokens, cone)
                # from the axis: at small radii the minimiser is at the border, where v is infinite
                start = torch.zeros_like(v) if self.cone else v / v.norm(dim=1, keepdim=True)
                minimiser, _ = minimise(objective, start, self.iterations, tolerance=1e-9 * radius)
                v = torch.where(changed[:, None], minimiser, v)
                variables = objective.variables(v)
                forward = risk.forward(variables)
                settled = _attended(forward, tokens)
                changed, tokens = (settled != tokens).any(-1), settled
                if not changed.any():
                    break
            visit(variables, forward)
            report(done + 1)
        return variables


class Cone:
    """v -> y = D + tan(angle) w / sqrt(1 + ||w||^2), w the part of v that is orthogonal to D.

    D is the unit axis, and y any vector at less than `angle` degrees from it, up to a factor.
    """

    def __init__(self, axis: Tensor, angle: float) -> None:
        self.D = axis / axis.norm(dim=1, keepdim=True)
        self.slope = math.tan(math.radians(angle))

    def __call__(self, v: Tensor) -> Tensor:
        """Return y, (B, N), at v, (B, N)."""
        w = v - (v * self.D).sum(1, keepdim=True) * self.D
        return self.D + self.slope * w / (1 + w.square().sum(1, keepdim=True)).sqrt()


@dataclass(frozen=True, eq=False)
class _Sphere:
    """v -> log(L - L*) at size * y / ||y||, with its gradient; y is a copy of v, or of a cone."""

    risk: Risk
    shapes: Sequence[torch.Size]
    size: float
    tokens: Tensor
    cone: Callable[[Tensor], Tensor]

    def variables(self, v: Tensor) -> Variables:
        """Return the variables at v, shape (B, N)."""
        y = self.cone(v)
        return unflat(self.size * y / y.norm(dim=1, keepdim=True), self.shapes)

    def __call__(self, v: Tensor) -> tuple[Tensor, Tensor]:
        variables = self.variables(v)
        forward = self.risk.forward(variables)
        excess = self.risk.log_excess(forward, self.tokens)
        gradient = self.risk.gradient(variables, forward)
        g = flat(gradient.parts) * (gradient.log_scales[0] - excess).exp()[:, None]
        with torch.enable_grad():
            tracked = v.detach().requires_grad_()
            y = self.cone(tracked)
        length = y.detach().norm(dim=1, keepdim=True)
        unit = y.detach() / length
        slope = (g - (g * unit).sum(1, keepdim=True) * unit) * (self.size / length)
        (slope,) = torch.autograd.grad(y, tracked, slope)
        value = torch.nan_to_num(excess, nan=torch.inf)
        return value, torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)


def _first_step(risk: Risk, variables: Variables, forward: Forward) -> Tensor:
    """Return the unit gradient, to be subtracted, where the variables are zero, else zero."""
    g = flat(risk.gradient(variables, forward).parts)
    at_zero = (flat(variables).norm(dim=1) == 0).to(g.dtype)
    return at_zero[:, None] * g / g.norm(dim=1, keepdim=True).clamp(min=1e-300)


def _attended(forward: Forward, tokens: Tensor) -> Tensor:
    """Return the tokens of largest attention where all samples are saturated, else `tokens`."""
    top, selected = forward.softmax.max(-1)
    saturated = (top > 0.999).all(-1, keepdim=True)
    return torch.where(saturated, selected, tokens)
