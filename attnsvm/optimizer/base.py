"""What all optimizers have in common, and first-order steps of every instance."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, dataclass_transform

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.config import ConfigError, FirstOrderConfig, OptimizerConfig
from attnsvm.head import Head, Linear, RowScores
from attnsvm.linalg.simd.arithmetic import exp, fill, maximum, where
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.loss import Loss
from attnsvm.nn.risk import Forward, Gradient, Risk
from attnsvm.parameterization import Variables

Visit = Callable[[Variables, Forward], None]
Report = Callable[[int], None]
Memory = dict[str, Any]

TINY = 1e-300
"""Added to norms of exact gradients: changes no normal number, and makes 0 / 0 a zero step."""

REPORT_EVERY = 50
"""Steps between two reports of progress."""


@dataclass_transform(kw_only_default=True)
@dataclass(kw_only=True, eq=False)
class Optimizer(ABC):
    """A rule that computes a sequence of recorded variables from initial ones.

    A subclass is a dataclass without a decorator. Its fields have the defaults of its schema
    `options`, without one those of the class that it extends; it may add fields of its own.
    """

    init: str = OptimizerConfig.init
    init_scale: float = OptimizerConfig.init_scale
    init_path: str | None = None
    init_angle: float = OptimizerConfig.init_angle

    def __init_subclass__(cls, options: type | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        for f in dataclasses.fields(options) if options else ():
            if f.name != "_target_" and f.name not in vars(cls):
                cls.__annotations__[f.name] = f.type
                both: Any = {"default": f.default, "default_factory": f.default_factory}
                setattr(cls, f.name, dataclasses.field(**both))
        dataclass(kw_only=True, eq=False)(cls)

    @property
    def implicit_bias(self) -> str | None:
        """Norm of the SVM that training W converges to in direction; None where it is not known."""
        return None

    def check_head(self, head: Head) -> None:  # noqa: B027
        """Raise ConfigError if the optimizer cannot be used with `head`."""

    def check_loss(self, loss: Loss) -> None:  # noqa: B027
        """Raise ConfigError if the optimizer cannot be used with `loss`."""

    @abstractmethod
    def grid(self) -> list[float]:
        """Return the points at which to record: numbers of steps, or radii."""

    @abstractmethod
    def run(self, risk: Risk, variables: Variables, visit: Visit, report: Report) -> Variables:
        """Minimise `risk` from `variables`, which may be overwritten; return the final variables.

        `visit` is called with the variables and their forward pass for each entry of `grid()`,
        `report` with the number of steps or points done so far.
        """


class LinearHeadOptimizer(Optimizer):
    """An optimizer that needs what is known with a linear head that is not trained.

    With a loss that decreases, L* = mean_i l(max_t gamma_it) is the infimum of the risk, approached
    where attention selects the optimal tokens; with other heads a mixture of tokens may have a
    smaller risk.
    """

    NAME: ClassVar[str]
    """The optimizer's name in messages."""

    KNOWN: ClassVar[str]
    """What is known of the head, and of the loss, in messages."""

    ALLOWED, LOSSES = "DECREASING", "decreasing"
    """The attribute of losses that are allowed, and what they are in messages."""

    def check_head(self, head: Head) -> None:
        """Raise ConfigError unless the head is linear and not trained."""
        if type(head) not in (Linear, RowScores) or head.train:
            raise ConfigError(
                f"optimizer={self.NAME}: head must be linear with train=false: {self.KNOWN}"
            )

    def check_loss(self, loss: Loss) -> None:
        """Raise ConfigError unless the loss is allowed."""
        if not getattr(loss, self.ALLOWED):
            raise ConfigError(f"optimizer={self.NAME}: loss must be {self.LOSSES}: {self.KNOWN}")


def norm(part: Tensor) -> Tensor:
    """Return the Euclidean norm of each instance's entries, shape (B,), of `part` (B, ...)."""
    return torch.linalg.vector_norm(part, dim=tuple(range(1, part.ndim)))


def broadcast(size: Tensor, V: Tensor) -> Tensor:
    """Return `size` (B,) with axes of length 1 appended, to broadcast against V (B, ...)."""
    return size.reshape(-1, *[1] * (V.ndim - 1))


class Direction(NamedTuple):
    """A direction other than the gradient's, for compiled code.

    Its `code`, whether it turns with the gradient if both are rotated, a, b and c of each of Muon's
    iterations, factors of K, and of Q or W, and the decay rate of Adam's mean of squares.
    """

    code: int
    turns: bool = False
    polynomials: NDArray[np.float64] = np.empty((0, 3))
    factors: tuple[float, float] = (1.0, 1.0)
    beta2: float = 0.0


class Rule(NamedTuple):
    """The steps of an optimizer as compiled code takes them.

    They are along the gradient, divided by its norm if `normalised`, or along its `direction`. The
    momentum has its decay rate `beta` (0: none), and steps may be along gradient + beta momentum.
    """

    normalised: bool = False
    beta: float = 0.0
    nesterov: bool = False
    direction: Direction | None = None


def log_of(x: float) -> float:
    """Return log(x), of 0 too."""
    return math.log(x) if x else -math.inf


class Velocity:
    """M <- beta M + grad of one variable V (B, ...), as `part` exp(`scale`).

    One of the two terms has weight one in units of the larger, so no part vanishes, however far
    below the smallest float64 the gradients are.
    """

    def __init__(self, V: Tensor, beta: float) -> None:
        self.log_beta = log_of(beta)
        self.part, self.scale = torch.zeros_like(V), V.new_full((len(V),), -torch.inf)

    def add(self, part: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add a gradient `part` exp(`scale`), scale (B,); return M and it, and their log-scale.

        A gradient of zero, as of a batch whose samples all have one score, leaves M its scale.
        """
        older = self.scale + self.log_beta
        scale = torch.where(part.flatten(1).any(1), scale, -torch.inf)
        self.scale = torch.maximum(older, scale)
        common = torch.where(self.scale > -torch.inf, self.scale, 0.0)
        part = part * broadcast((scale - common).exp(), part)
        self.part = torch.addcmul(part, self.part, broadcast((older - common).exp(), part))
        return self.part, part, common


@njit(inline="always")
def finite(scale: Any) -> Any:
    """Return a log-scale, 0 in place of that of zero."""
    return where(scale > -np.inf, scale, 0)


@njit(inline="always")
def remember(G: LaneArray, M: LaneArray, scale_M: LaneArray, scale: Any, rule: Rule) -> Any:
    """Do as `Velocity`, in compiled code: M <- beta M + G.

    G is overwritten by the momentum, whose log-scale is returned.
    """
    older = scale_M[0] + np.log(rule.beta)
    scale_M[0] = maximum(older, scale)
    common = finite(scale_M[0])
    old, new, beta = exp(older - common), exp(scale - common), fill(rule.beta)
    G, M = G.flat, M.flat
    for j in range(len(G)):
        g = new * G[j]
        m = old * M[j] + g
        M[j] = m
        G[j] = beta * m + g if rule.nesterov else m
    return common


@dataclass(frozen=True, eq=False)
class Step:
    """The input of an update.

    The objective, the current variables, each (B, ...), the forward pass and the gradient at them,
    the step size, and the state of the rule between steps, which is empty at the first one. With
    `weight_decay` the variables have decayed since: steps are added to what is left.
    """

    risk: Risk
    variables: Variables
    forward: Forward
    gradient: Gradient
    eta: float
    memory: Memory

    @property
    def parts(self) -> Variables:
        """The gradient of each variable, divided by its scale."""
        return self.gradient.parts

    @property
    def log_scales(self) -> Variables:
        """Logarithm of the scale of each part, shape (B,)."""
        return self.gradient.log_scales

    def each(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield each variable with its part and log-scale."""
        return zip(self.variables, self.parts, self.log_scales, strict=True)

    def momenta(self, beta: float) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Yield each variable V with M <- beta M + grad, its gradient, and their log-scale."""
        sums = self.memory.setdefault("M", [Velocity(V, beta) for V in self.variables])
        for (V, part, scale), M in zip(self.each(), sums, strict=True):
            yield V, *M.add(part, scale)

    def moved(self, sizes: list[Tensor]) -> Variables:
        """Add `sizes` (B,) times its part to each variable, in place, and return the variables."""
        for V, part, size in zip(self.variables, self.parts, sizes, strict=True):
            V.addcmul_(part, broadcast(size, V))
        return self.variables


class FirstOrder(Optimizer, options=FirstOrderConfig):
    """Steps along a direction made of gradients.

    Parameters
    ----------
    lr, growth, schedule
        Step k = 0, 1, ... has size lr (1 + growth k), or lr (1 + growth)^k if `geometric`, or
        lr / (1 + growth k)^decay if `decay`.
    decay : float
        Exponent of the schedule of that name.
    steps : int
        Number of updates.
    gradient : str
        `log_domain`, exact at any norm of W, or `direct`, as published.
    ridge : float
        The loss contains ridge * ||.||_F^2 of each attention variable.
    weight_decay : float
        A step also moves each attention variable V by -eta weight_decay V.
    batch, order, order_seed
        Number of samples of a step's gradient, None: all; how they are chosen, and the seed of it.
    record_every, record
        Steps between two snapshots; or, if `geometric`, snapshots at 1, 2, 5, 10, 20, 50, ...
    init, init_scale, init_path, init_angle
        Initial weights, as `attnsvm --help` describes them.
    """

    lr: float
    steps: int
    growth: float
    schedule: str
    decay: float
    gradient: str
    ridge: float
    weight_decay: float
    batch: int | None
    order: str
    order_seed: int
    record_every: int
    record: str

    def step_size(self, k: int) -> float:
        """Return the size of step k = 0, 1, ..."""
        if self.schedule == "geometric":
            return float(self.lr * (1 + self.growth) ** k)
        if self.schedule == "decay":
            return float(self.lr / (1 + self.growth * k) ** self.decay)
        return self.lr * (1 + self.growth * k)

    def plan(self, start: int, end: int) -> NDArray[np.float64]:
        """Return size, share by which the weights decay, and `eps` of steps start <= k < end."""
        etas = np.full(end - start, self.lr)
        if self.growth:
            etas = np.fromiter(map(self.step_size, range(start, end)), np.float64)
        none = np.zeros_like(etas)
        return np.stack([etas, etas * self.weight_decay if self.weight_decay else none, none], 1)

    def weights(self, n: int) -> Iterator[NDArray[np.float64]]:
        """Yield the weights (n,), of mean one, of the samples in the gradient of each step.

        ConfigError if there are fewer samples than a batch has.
        """
        size = self.batch or n
        if size > n:
            raise ConfigError(f"optimizer.batch={size}: must be <= n={n}, the number of samples")
        return self._weights(n, size)

    def _weights(self, n: int, size: int) -> Iterator[NDArray[np.float64]]:
        generator = torch.Generator().manual_seed(self.order_seed)
        drawn = self.order == "replacement"
        rows = np.arange(size if drawn else n) // size
        share = n / np.bincount(rows)[:, None]
        while True:  # a pass through the samples, or a draw
            chosen = torch.arange(n)
            if drawn:
                chosen = torch.randint(n, (size,), generator=generator)
            elif self.order == "shuffled":
                chosen = torch.randperm(n, generator=generator)
            counts = np.zeros((len(share), n))
            np.add.at(counts, (rows, chosen.numpy()), 1.0)
            yield from share * counts

    def grid(self) -> list[float]:
        """Return the steps at which a snapshot is taken, from 0 to `steps`."""
        if self.record == "linear":
            return [*range(0, self.steps, self.record_every), self.steps]
        series = [m * 10**e for e in range(len(str(self.steps))) for m in (1, 2, 5)]
        return [0, *(k for k in series if k < self.steps), *([self.steps] if self.steps else [])]

    def each_step(self, report: Report) -> Iterator[tuple[int, bool]]:
        """Yield the number of steps taken, up to `steps`, and whether a snapshot is due."""
        recorded = set(self.grid())
        for k in range(self.steps + 1):
            yield k, k in recorded
            if k % REPORT_EVERY == 0 or k == self.steps:
                report(k)

    def run(self, risk: Risk, variables: Variables, visit: Visit, report: Report) -> Variables:
        """Take `steps` steps."""
        memory, weights = Memory(), self.weights(risk.batch.n)
        for k, recorded in self.each_step(report):
            forward = risk.forward(variables)
            if recorded:
                visit(variables, forward)
            if k < self.steps:
                some = forward.margins.new_tensor(next(weights)) if self.batch else None
                gradient = risk.gradient(variables, forward, self.gradient, self.ridge, some)
                eta = self.step_size(k)
                variables = self._moved(Step(risk, variables, forward, gradient, eta, memory))
        return variables

    def _moved(self, step: Step) -> Variables:
        """Return the variables after `step`, those of the head moved `Head.rate` times as far."""
        rate, count = step.risk.batch.head.rate, step.risk.attention_count
        before = [V.clone() for V in step.variables[count:]] if rate != 1.0 else []
        for V in step.variables[:count] if self.weight_decay else ():
            V.mul_(1 - step.eta * self.weight_decay)
        after = self.update(step)
        moved = (old + rate * (V - old) for old, V in zip(before, after[count:], strict=False))
        return (*after[:count], *moved) if before else after

    def rule(self, risk: Risk) -> Rule | None:
        """Return the steps as compiled code takes them; None if it cannot."""
        return None

    @abstractmethod
    def update(self, step: Step) -> Variables:
        """Return the variables after `step`; those of the step may be overwritten."""
