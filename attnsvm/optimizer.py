"""How the weights move: full-batch first-order steps, every instance for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnsvm.config import MACHINE_EPS, ConfigError
from attnsvm.gradient import Forward, View
from attnsvm.head import Head, Linear
from attnsvm.parameterization import Variables
from attnsvm.risk import Gradient, Risk

Visit = Callable[[Variables, View], None]
Report = Callable[[int], None]
Memory = dict[str, Any]

TINY = 1e-300
"""Added to norms of exact gradients: leaves every normal number alone, makes 0 / 0 a zero step."""

REPORT_EVERY = 50
"""Steps between two reports of progress."""


@dataclass(frozen=True, eq=False)
class Step:
    """What an update may draw on.

    Attributes
    ----------
    risk : Risk
        The objective.
    variables : tuple of Tensor
        Where it stands, each (B, ...).
    forward, gradient : Forward, Gradient
        The forward pass and the gradient there.
    eta : float
        Step size.
    memory : dict
        What the rule keeps from step to step; empty at the first.
    """

    risk: Risk
    variables: Variables
    forward: Forward
    gradient: Gradient
    eta: float
    memory: Memory

    @property
    def parts(self) -> Variables:
        """The gradient of each variable but for its scale."""
        return self.gradient.parts

    @property
    def log_scales(self) -> Variables:
        """Logarithm of the scale of each part, shape (B,)."""
        return self.gradient.log_scales

    def each(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Return the variables, each with its part and log-scale."""
        return zip(self.variables, self.parts, self.log_scales, strict=True)

    def moved(self, sizes: list[Tensor]) -> Variables:
        """Return the variables, to each of which `sizes` (B,) times its part was added in place."""
        for V, part, size in zip(self.variables, self.parts, sizes, strict=True):
            V.addcmul_(part, _beside(size, V))
        return self.variables


class Optimizer(ABC):
    """A rule that leads from initial variables to a sequence of recorded ones.

    Parameters
    ----------
    init : str
        Initial weights: zero, uniform or small.
    init_scale : float
        Factor on the uniform draw when init=small.
    """

    def __init__(self, *, init: str, init_scale: float) -> None:
        self.init, self.init_scale = init, init_scale

    def check_head(self, head: Head) -> None:  # noqa: B027
        """Raise ConfigError if `head` is not one that the optimizer can train with."""

    @abstractmethod
    def grid(self) -> list[float]:
        """Return what is recorded: numbers of steps done, or radii."""

    @abstractmethod
    def run(self, risk: Risk, variables: Variables, visit: Visit, report: Report) -> Variables:
        """Minimise `risk` from `variables` and return where it ends.

        Parameters
        ----------
        risk : Risk
            The objective.
        variables : tuple of Tensor
            Initial values, which may be overwritten.
        visit : callable
            To be called with the variables and their view, once for each entry of `grid()`.
        report : callable
            To be called with the number of units of work done so far.
        """


class FirstOrder(Optimizer):
    """Steps along a direction made of gradients.

    Parameters
    ----------
    lr, growth, schedule
        Step k = 0, 1, ... has size lr (1 + growth k), or lr (1 + growth)^k if `geometric`.
    steps : int
        Number of updates.
    gradient : str
        `log_domain`, exact at any norm of W, or `direct`, as published.
    ridge : float
        The loss carries ridge * ||.||_F^2 of each attention variable.
    record_every, record
        A snapshot every so many steps; or, if `geometric`, at 1, 2, 5, 10, 20, 50, ...
    init, init_scale
        Initial weights.
    """

    def __init__(
        self,
        *,
        lr: float,
        steps: int,
        growth: float,
        schedule: str,
        gradient: str,
        ridge: float,
        record_every: int,
        record: str,
        init: str,
        init_scale: float,
    ) -> None:
        super().__init__(init=init, init_scale=init_scale)
        self.lr, self.steps, self.growth, self.schedule = lr, steps, growth, schedule
        self.gradient, self.ridge = gradient, ridge
        self.record_every, self.record = record_every, record

    def step_size(self, k: int) -> float:
        """Return the size of step k = 0, 1, ..."""
        if self.schedule == "geometric":
            return float(self.lr * (1 + self.growth) ** k)
        return self.lr * (1 + self.growth * k)

    def grid(self) -> list[float]:
        """Return the steps at which a snapshot is taken, from 0 to `steps`."""
        if self.record == "linear":
            return [*range(0, self.steps, self.record_every), self.steps]
        series = [m * 10**e for e in range(len(str(self.steps))) for m in (1, 2, 5)]
        return [0, *(k for k in series if k < self.steps), *([self.steps] if self.steps else [])]

    def run(self, risk: Risk, variables: Variables, visit: Visit, report: Report) -> Variables:
        """Take `steps` steps."""
        recorded, memory = set(self.grid()), Memory()
        for k in range(self.steps + 1):
            forward = risk.forward(variables)
            if k in recorded:
                visit(variables, forward)
            if k % REPORT_EVERY == 0 or k == self.steps:
                report(k)
            if k < self.steps:
                gradient = risk.gradient(variables, forward, self.gradient, self.ridge)
                eta = self.step_size(k)
                variables = self.update(Step(risk, variables, forward, gradient, eta, memory))
        return variables

    @abstractmethod
    def update(self, step: Step) -> Variables:
        """Return the variables after `step`; those of the step may be overwritten."""


class NormalizedGD(FirstOrder):
    """V <- V - eta grad / ||grad||_F, each variable by its own norm (arXiv 2308.16898, sec. 3.2).

    With gradient=direct the norm carries the published + eps; the exact gradient needs none.
    """

    def update(self, step: Step) -> Variables:
        """Return V - eta grad / ||grad||_F; a gradient of zero moves nothing."""
        eps = MACHINE_EPS if self.gradient == "direct" else TINY
        return step.moved([-step.eta / (norm(part) + eps) for part in step.parts])


class GD(FirstOrder):
    """V <- V - eta grad, gradient descent with a fixed step (algorithm W-GD)."""

    def update(self, step: Step) -> Variables:
        """Return V - eta grad."""
        return step.moved([-step.eta * scale.exp() for scale in step.log_scales])


class Polyak(FirstOrder):
    """V <- V - eta (L - L*) / ||grad||^2 grad, L* = mean_i l(max_t gamma_it).

    With the linear head u_i = sum_t s_it gamma_it, so L* is the infimum of the risk, approached
    where attention selects the optimal tokens, and L - L* is a sum without cancellation
    (arXiv 2402.05738, sec. 4, up to its factor 1/2: lr=0.5). With other heads a mixture of tokens
    may have a smaller risk than L*; they are refused, and so is a head that is trained.

    Where attention saturates at other tokens the gradient vanishes and L - L* does not: the steps
    grow beyond the floating-point numbers, and the instance diverges.
    """

    def check_head(self, head: Head) -> None:
        """Raise ConfigError unless the head is linear and stays as it is."""
        if not isinstance(head, Linear) or head.train:
            raise ConfigError(
                "optimizer=polyak: allowed is head=linear with train=false, whose least risk is "
                "known"
            )

    def update(self, step: Step) -> Variables:
        """Return the variables after a Polyak step; none where L <= L*."""
        excess = torch.nan_to_num(step.risk.log_excess(step.forward), nan=-torch.inf)
        scale = step.log_scales[0]
        square = sum((norm(part).square() for part in step.parts), torch.zeros_like(scale))
        size = -step.eta * (excess - scale).exp() / square.clamp(min=TINY)
        return step.moved([size] * len(step.parts))


class Momentum(FirstOrder):
    """M <- beta M + grad, V <- V - eta M.

    Parameters
    ----------
    beta : float
        Share of the velocity that a step keeps; 0 is gradient descent.
    **settings
        Those of every first-order optimizer.
    """

    def __init__(self, *, beta: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.beta = beta

    def update(self, step: Step) -> Variables:
        """Return the variables after a heavy-ball step."""
        velocities = step.memory.setdefault("M", [torch.zeros_like(V) for V in step.variables])
        for (V, part, scale), M in zip(step.each(), velocities, strict=True):
            M.mul_(self.beta).addcmul_(part, _beside(scale.exp(), V))
            V.sub_(M, alpha=step.eta)
        return step.variables


class Adam(FirstOrder):
    """V <- V - eta m / (sqrt(v) + eps) with bias-corrected means m of grad and v of grad^2.

    The means are kept relative to a scale of their own, so that with eps = 0 the rule is exact
    also where squares of the gradient underflow.

    Parameters
    ----------
    beta1, beta2 : float
        Shares of the means that a step keeps.
    eps : float
        Added to the root.
    **settings
        Those of every first-order optimizer.
    """

    def __init__(self, *, beta1: float, beta2: float, eps: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.beta1, self.beta2, self.eps = beta1, beta2, eps

    def update(self, step: Step) -> Variables:
        """Return the variables after an Adam step."""
        k = step.memory["k"] = step.memory.get("k", 0) + 1
        means = step.memory.setdefault("means", [_Mean(V) for V in step.variables])
        for (V, part, scale), mean in zip(step.each(), means, strict=True):
            mean.add(part, scale, self.beta1, self.beta2)
            first = mean.first / (1 - self.beta1**k)
            root = (mean.second / (1 - self.beta2**k)).sqrt()
            floor = _beside(self.eps * (-mean.scale).exp() if self.eps else root.new_zeros(()), V)
            V.sub_(step.eta * first / (root + floor + TINY))
        return step.variables


class SignGD(FirstOrder):
    """V <- V - eta sign(grad): steepest descent in the entry-wise maximum norm."""

    def update(self, step: Step) -> Variables:
        """Return V - eta sign(grad)."""
        for V, part, _ in step.each():
            V.sub_(part.sign(), alpha=step.eta)
        return step.variables


class MirrorDescent(FirstOrder):
    """Mirror descent with the potential psi(V) = sum |V|^p / p, in the limit margins in l_p.

    psi'(V) <- psi'(V) - eta grad, or grad / ||grad||_F if `normalized`; with p = 2 this is
    gradient descent.

    Parameters
    ----------
    p : float
        Exponent, p > 1.
    normalized : bool
        Whether the gradient of each variable is divided by its norm.
    **settings
        Those of every first-order optimizer.
    """

    def __init__(self, *, p: float, normalized: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self.p, self.normalized = p, normalized

    def update(self, step: Step) -> Variables:
        """Return the variables after a mirror step."""
        for V, part, scale in step.each():
            size = 1 / (norm(part) + TINY) if self.normalized else scale.exp()
            dual = V.sign() * V.abs() ** (self.p - 1) - step.eta * _beside(size, V) * part
            V.copy_(dual.sign() * dual.abs() ** (1 / (self.p - 1)))
        return step.variables


class _Mean:
    """Running means of a gradient and its square, in units of exp(scale) and its square."""

    def __init__(self, V: Tensor) -> None:
        self.first, self.second = torch.zeros_like(V), torch.zeros_like(V)
        self.scale = V.new_full((len(V),), -torch.inf)

    def add(self, part: Tensor, scale: Tensor, beta1: float, beta2: float) -> None:
        """Add a gradient `part` exp(`scale`)."""
        common = torch.maximum(self.scale, scale)
        old, new = (self.scale - common).exp(), (scale - common).exp()
        part = part * _beside(new, part)
        self.first = beta1 * self.first * _beside(old, part) + (1 - beta1) * part
        self.second = beta2 * self.second * _beside(old, part) ** 2 + (1 - beta2) * part**2
        size = torch.maximum(norm(self.first), norm(self.second.sqrt()))
        size = torch.where(size > 0, size, 1.0)
        self.first /= _beside(size, part)
        self.second /= _beside(size, part) ** 2
        self.scale = common + size.log()


def norm(part: Tensor) -> Tensor:
    """Return the Euclidean norm of each instance's entries, shape (B,), of `part` (B, ...)."""
    axes = tuple(range(1, part.ndim))
    size: Tensor = torch.linalg.vector_norm(part, dim=axes)
    return size


def _beside(size: Tensor, V: Tensor) -> Tensor:
    """Return `size` (B,) with axes of length 1 behind, to broadcast against V (B, ...)."""
    return size.reshape(-1, *[1] * (V.ndim - 1))
