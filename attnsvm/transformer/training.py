"""Training of all layers and heads: each takes steps along its own normalised gradient."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.groups import INITIAL
from attnsvm.config.instantiate import named
from attnsvm.head import Linear, Relu
from attnsvm.linalg import own_settings
from attnsvm.linalg.jit import announced
from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import blocks_of, of_blocks
from attnsvm.loss import Loss
from attnsvm.model import Transformer
from attnsvm.optimizer import NormalizedGD, Optimizer
from attnsvm.optimizer.base import REPORT_EVERY, Report
from attnsvm.parameterization import KQ, Parameterization, Variables, W
from attnsvm.problem import ProblemBatch
from attnsvm.training import LOSS_CODES
from attnsvm.training.batch import ROWS, optimizer_named, parameterization_named, reporting
from attnsvm.training.schedule import BlockSteps, Stretch
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
    drawn = [rule.init(chosen.init, chosen.init_scale, batch.seeds + at * NEXT, batch.d)
             for at in heads]  # fmt: skip
    stacked = (torch.stack(V, 1) for V in zip(*drawn, strict=True))
    start = tuple(V.view(*net.stack, *V.shape[2:]) for V in stacked)
    recorder = _Recorder(net, [int(k) for k in chosen.grid()])
    with torch.no_grad(), own_settings() as threads, reporting(progress, chosen.steps) as report:
        if compiled and compilable(net, chosen):
            steps = _NetworkSteps(net, start, recorder)
            recorder.store(start, net.drawn.replaced({"W": net.combined(start)}))
            steps.run(chosen, threads, report)
        else:
            _descend(net, start, chosen, recorder, report)
        return recorder.trajectory(chosen.gradient)


def compilable(net: TrainedNetwork, optimizer: NormalizedGD) -> bool:
    """Return whether the compiled loop applies; it takes steps on the processor."""
    return (
        net.features() is not None
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
    normalized, other = isinstance(optimizer, NormalizedGD), model.trained != "attention"
    names = "ridge", "weight_decay", "batch", "gradient"
    ridge, decay, size, gradient = (getattr(optimizer, name, None) for name in names)
    for allowed, given, must in (
        (normalized, f"optimizer={type(optimizer).__name__}", "normalized_gd"),
        (not ridge, f"optimizer.ridge={ridge}", "0"),
        (not decay, f"optimizer.weight_decay={decay}", "0"),
        (size is None, f"optimizer.batch={size}", "null"),
        (optimizer.init in INITIAL, f"optimizer.init={optimizer.init}", " | ".join(INITIAL)),
        (not batch.head.train, "head.train=true", "false: model.trained=head trains it"),
        (not other or gradient != "direct", f"optimizer.gradient={gradient}",
         f"log_domain with model.trained={model.trained}"),
    ):  # fmt: skip
        if not allowed:
            raise ConfigError(f"{given}: must be {must}, with model=transformer")
    assert isinstance(optimizer, NormalizedGD)
    return optimizer


class _Recorder:
    """Fills the arrays of a trajectory; `last` are the variables of attention and all weights."""

    def __init__(self, net: TrainedNetwork, grid: list[int]) -> None:
        B, n, T, d = net.X.shape
        L, H, S = net.model.layers, net.model.heads, len(grid)
        self.net, self.grid, self.taken = net, grid, 0
        self.snapshots = net.X.new_empty(B, S, L, H, d, d)
        self.risk = net.X.new_empty(B, S)
        self.log_softmax = net.X.new_empty(B, S, L, H, n, T, T)
        self.last: tuple[Variables, Weights] = (), net.drawn

    def store(self, attention: Variables, weights: Weights) -> None:
        """Store the next snapshot, with the variables of attention (B, L, H, ...)."""
        self.snapshots[:, self.taken] = weights.W
        self.risk[:, self.taken], self.log_softmax[:, self.taken] = self.net.recorded(weights)
        self.taken += 1
        self.last = attention, weights

    def trajectory(self, how: str) -> LayerTrajectory:
        """Return the trajectory; `how` is the kind of gradient used."""
        attention, weights = self.last
        K, Q = attention if len(attention) == 2 else (None, None)
        error, net = torch.zeros_like(weights.W[..., 0, 0]), self.net
        if how == "direct":
            error = net.direction_error(weights)
        seen = self.snapshots, self.risk, self.log_softmax
        return LayerTrajectory(
            net.model, net.loss, torch.tensor(self.grid), *seen, weights, K, Q, error
        )


def _descend(
    net: TrainedNetwork, attention: Variables, optimizer: NormalizedGD, recorder: _Recorder,
    report: Report,
) -> None:  # fmt: skip
    """Take the steps of any head, loss, parameterization and kind of gradient, with torch."""
    weights, recorded = net.drawn.replaced({"W": net.combined(attention)}), set(optimizer.grid())
    for k in range(optimizer.steps + 1):
        if k in recorded:
            recorder.store(attention, weights)
        if k % REPORT_EVERY == 0 or k == optimizer.steps:
            report(k)
        if k < optimizer.steps:
            eta = optimizer.step_size(k)
            attention, weights = net.stepped(attention, weights, eta, optimizer.gradient)


class _NetworkSteps(BlockSteps):
    """Steps of the compiled loop; what is trained is kept at the stops."""

    LONGEST, SHARE, AHEAD = REPORT_EVERY, 2**7, 1

    def __init__(self, net: TrainedNetwork, start: Variables, recorder: _Recorder) -> None:
        self.net, self.start, self.recorder = net, start, recorder
        features = net.features()
        assert features is not None  # as checked in `compilable`
        F, kinds = features
        self.n = net.batch.n
        self.data, self.blocks = net.data(net.drawn, F[:, 0], kinds), -(-net.batch.B // LANES)
        self.attention = [blocks_of(V.cpu()) for V in start]
        self.sizes = net.sizes(net.drawn, F.shape[-1], start[0].shape[-1] * (len(start) - 1))
        self.names = list(net.drawn.others(net.model))
        self.arrays = [*self.attention, *(getattr(self.data, n, self.data.F) for n in self.names)]
        with announced("training loop of a transformer", 60):
            self.advance(0, 0, np.empty((0, 3)))

    def advance(self, first: int, last: int, plan: NDArray[np.float64]) -> None:
        """Take a step for each row of the plan in the blocks first <= b < last."""
        etas = np.ascontiguousarray(plan[:, 0])
        variables, work = (self.attention[0], self.attention[-1]), work_arrays(self.sizes)
        descend_layers(first, last, self.data, work, variables, etas, self.sizes)

    def record(self, stretch: Stretch) -> None:
        """Store the snapshot at the end of a stretch."""
        parts = [part[0].to(self.net.X.device) for part in stretch.seen]
        attention, others = tuple(parts[: len(self.start)]), parts[len(self.start) :]
        drawn = self.net.drawn.others(self.net.model)
        trained = {n: V.view_as(drawn[n]) for n, V in zip(self.names, others, strict=True)}
        W = self.net.combined(attention)
        self.recorder.store(attention, self.net.drawn.replaced({"W": W, **trained}))

    def kept(self, stops: int, at: int) -> list[Tensor]:
        """Return empty tensors (stops, B, ...) for what is trained."""
        B = self.net.batch.B
        return [torch.empty(stops, B, *V.shape[1:], dtype=torch.float64) for V in self.arrays]

    def take(
        self, first: int, last: int, plan: NDArray[np.float64], stops: NDArray[np.int64]
    ) -> list[Tensor]:
        """Take the steps of some blocks; return what is trained, after the last one."""
        self.advance(first, last, plan)
        count = min(LANES * last, self.net.batch.B) - LANES * first
        ends = (of_blocks(LaneArray(V.array[first:last]), count) for V in self.arrays)
        return [V.unsqueeze(0)[: len(stops)] for V in ends]
