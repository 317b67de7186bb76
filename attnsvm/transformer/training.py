"""Training of all layers and heads: each takes steps along its own normalised gradient."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.combinations import ONE_LAYER
from attnsvm.config.instantiate import named
from attnsvm.data.problem import ProblemBatch
from attnsvm.head import Linear, Projections, Relu
from attnsvm.linalg import own_settings
from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import blocks_of, of_blocks
from attnsvm.loss import LOSS_CODES, Loss
from attnsvm.model import Transformer
from attnsvm.optimizer import NormalizedGD, Optimizer
from attnsvm.optimizer.base import REPORT_EVERY, Report
from attnsvm.parameterization import KQ, Parameterization, Variables, W
from attnsvm.training.batch import ROWS, optimizer_named, parameterization_named, reporting
from attnsvm.training.schedule import BlockSteps
from attnsvm.training.trajectory import Recorder
from attnsvm.transformer.compiled import descend_layers, work_arrays
from attnsvm.transformer.network import NEXT, Weights
from attnsvm.transformer.trained import TrainedNetwork

if TYPE_CHECKING:
    from attnsvm.config.options import OptimizerOptions

PROJECTING = Linear, Relu
"""Heads whose one parameter is the projections of `Head.features`."""


@dataclass(frozen=True, eq=False)
class LayerTrajectory:
    """Result of training B networks; step 0 and the last step are among the S snapshots.

    Attributes
    ----------
    model, loss : Transformer, Loss
        What was trained.
    steps : Tensor
        Number of updates before each snapshot, shape (S,), int64.
    snapshots : Tensor
        Attention weights, shape (B, S, L, H, d, d).
    risk : Tensor
        Risk, shape (B, S).
    log_softmax : Tensor
        log s^h_kt, shape (B, S, L, H, n, T, T); -inf where t is not admissible.
    weights : Weights
        The network at the last step, its head included.
    K, Q : Tensor or None
        Factors at the last step, shape (B, L, H, d, m), where they exist.
    direction_error : Tensor
        Relative error of the direction of the gradient in W at the last step, shape (B, L, H); 0
        for gradients that are exact.
    """

    model: Transformer
    loss: Loss
    steps: Tensor
    snapshots: Tensor
    risk: Tensor
    log_softmax: Tensor
    weights: Weights
    K: Tensor | None
    Q: Tensor | None
    direction_error: Tensor

    @property
    def trained(self) -> dict[str, Tensor]:
        """All that was trained, at the last step."""
        return {"W": self.weights.W, **self.weights.others(self.model)}


@own_settings()
def train_layers(
    batch: ProblemBatch,
    /,
    model: Transformer,
    parameterization: str | Parameterization = "w",
    optimizer: str | Optimizer = "normalized_gd",
    loss: str | Loss = "logistic",
    *,
    m: int | None = None,
    progress: bool | Report = False,
    compiled: bool = True,
    **options: Unpack["OptimizerOptions"],
) -> LayerTrajectory:
    """Train every layer and head of the network of each instance.

    A step moves W, or K and Q, of every layer and head by eta along its own gradient, divided by
    the gradient's Frobenius norm. The gradient is exact at any norm of W. What else the model
    trains takes steps of `model.rate` times eta, each matrix along its own normalised gradient.

    Parameters
    ----------
    batch : ProblemBatch
        Samples as `Transformer.expand` makes them.
    model : Transformer
        The network.
    parameterization : str or Parameterization
        w or kq, of every layer and head.
    optimizer : str or NormalizedGD
        Steps, their sizes, snapshots and initial weights; without ridge.
    loss : str or Loss
        logistic, exponential, linear or squared.
    m : int, optional
        Columns of K and Q, with parameterization kq.
    progress : bool or callable
        As of `attnsvm.train`.
    compiled : bool
        Whether to use the compiled loop where it applies; the results are equal up to rounding. It
        runs on the processor, whatever the device of the batch, as do all exact gradients.
    **options
        Fields of the optimizer's config, as of `attnsvm.train`.

    Raises
    ------
    ConfigError
        If the optimizer is another one, has a ridge or an initial W that depends on the instance,
        if the head is trained by `head.train`, or `gradient=direct` with more than attention.
    """
    chosen = _checked(optimizer_named(optimizer, {**options}), batch, model)
    rule = parameterization_named(parameterization, m)
    net = TrainedNetwork(model, batch, named("loss", loss), rule)
    heads = range(model.layers * model.heads)
    drawn = (
        rule.init(chosen.init, chosen.init_scale, batch.seeds + at * NEXT, batch.d) for at in heads
    )
    stacked = (torch.stack(V, 1) for V in zip(*drawn, strict=True))
    start = tuple(V.view(*net.stack, *V.shape[2:]) for V in stacked)
    recorder = _Recorder(net, chosen.grid())
    weights = net.drawn.replaced({"W": net.combined(start)})
    with torch.no_grad(), own_settings() as threads, reporting(progress, chosen.steps) as report:
        if compiled and compilable(net, chosen):
            _NetworkSteps(net, start, recorder).run(chosen, threads, report)
        else:
            for k, recorded in chosen.each_step(report):
                if recorded:
                    recorder.take(start, weights)
                if k < chosen.steps:
                    eta = chosen.step_size(k)
                    start, weights = net.stepped(start, weights, eta, chosen.gradient)
        return recorder.trajectory(chosen.gradient)


def compilable(net: TrainedNetwork, optimizer: NormalizedGD) -> bool:
    """Return whether the compiled loop applies; it takes steps on the processor."""
    return (
        isinstance(net.batch.head, Projections)
        and (not net.model.trains("head") or type(net.batch.head) in PROJECTING)
        and type(net.loss) in LOSS_CODES
        and type(net.rule) in (W, KQ)
        and optimizer.gradient == "log_domain"
    )


def networks_at_once(batch: ProblemBatch, model: Transformer, snapshots: int) -> int:
    """Return how many networks can be trained, and their SVMs solved, in 1 GiB; at least 1."""
    _, n, T, d = model.sequences(batch.X, batch.Y, batch.mask)[0].shape
    trained = snapshots * (d * d + n * T * T) + 3 * min(n * T * T, ROWS) ** 2
    differences = 4 * model.heads * n * T**3 * d + 4 * n * T * T * model.mlp
    heads = model.layers * model.heads
    # drawn, trained, as lanes and read back twice; each layer and head has a copy in the record
    copies = (5 + heads) * (heads * d * d + 2 * model.layers * d * model.mlp)
    return max(1, 2**30 // (8 * (heads * trained + differences + copies)))


def _checked(optimizer: Optimizer, batch: ProblemBatch, model: Transformer) -> NormalizedGD:
    """Return the optimizer if every layer and head can take its steps."""
    if not isinstance(optimizer, NormalizedGD):
        name = type(optimizer).__name__
        raise ConfigError(f"optimizer={name}: must be normalized_gd, with model=transformer")
    settings: dict[str, Any] = {"head.train": batch.head.train}
    settings |= {f"optimizer.{name}": value for name, value in vars(optimizer).items()}
    for name, (values, must) in ONE_LAYER.items():
        if name in settings and settings[name] not in values:
            raise ConfigError(f"{name}={settings[name]}: must be {must}, with model=transformer")
    if model.trained != "attention" and optimizer.gradient == "direct":
        must = f"log_domain with model.trained={model.trained}"
        raise ConfigError(f"optimizer.gradient=direct: must be {must}, with model=transformer")
    return optimizer


class _Recorder(Recorder):
    """Fills the arrays of a trajectory; `last` are the variables of attention and all weights."""

    last: tuple[Variables, Weights]

    def __init__(self, net: TrainedNetwork, grid: list[float]) -> None:
        super().__init__(grid)
        self.net = net

    def take(self, attention: Variables, weights: Weights) -> None:
        """Store the next snapshot, with the variables of attention (B, L, H, ...)."""
        risk, log_s = self.net.recorded(weights)
        self.store(W=weights.W[None], risk=risk[None], log_s=log_s[None])
        self.last = attention, weights

    def trajectory(self, how: str) -> LayerTrajectory:
        """Return the trajectory; `how` is the kind of gradient used."""
        (attention, weights), net, seen = self.last, self.net, self.arrays
        direct, steps = how == "direct", torch.tensor(self.grid, dtype=torch.int64)
        error = net.direction_error(weights) if direct else torch.zeros_like(weights.W[..., 0, 0])
        K, Q = attention if len(attention) == 2 else (None, None)
        parts = steps, seen["W"], seen["risk"], seen["log_s"], weights, K, Q, error
        return LayerTrajectory(net.model, net.loss, *parts)


class _NetworkSteps(BlockSteps):
    """Steps of the compiled loop; what is trained is kept at the stops."""

    LONGEST = REPORT_EVERY

    def __init__(self, net: TrainedNetwork, start: Variables, recorder: _Recorder) -> None:
        self.net, self.recorder, self.n = net, recorder, net.batch.n
        assert isinstance(net.batch.head, Projections)  # as checked in `compilable`
        m = start[0].shape[-1] * (len(start) - 1)
        self.data, self.sizes = net.in_blocks(net.drawn, net.batch.head, m)
        self.blocks, self.others = len(self.data.X), net.drawn.others(net.model)
        self.attention = [blocks_of(V.cpu()) for V in start]
        others = (getattr(self.data, name, self.data.F) for name in self.others)
        self.arrays = [*self.attention, *others]

    def record(self, seen: list[Tensor]) -> None:
        """Store the snapshot at the end of a stretch."""
        net, count = self.net, len(self.attention)
        parts = [part[0].to(net.X.device) for part in seen]
        pairs = zip(self.others.items(), parts[count:], strict=True)
        trained = {name: V.view_as(drawn) for (name, drawn), V in pairs}
        attention = tuple(parts[:count])
        trained["W"] = net.combined(attention)
        self.recorder.take(attention, net.drawn.replaced(trained))

    def take(
        self, first: int, last: int, plan: NDArray[np.float64], stops: NDArray[np.int64]
    ) -> list[Tensor]:
        """Take the steps of some blocks; return what is trained, after the last one."""
        etas, work = np.ascontiguousarray(plan[:, 0]), work_arrays(self.sizes)
        variables = self.attention[0], self.attention[-1]
        descend_layers(first, last, self.data, work, variables, etas, self.sizes)
        if not len(stops):
            return []
        count = min(LANES * last, self.net.batch.B) - LANES * first
        return [of_blocks(LaneArray(V.array[first:last]), count)[None] for V in self.arrays]
