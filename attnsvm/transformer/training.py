"""Training of all layers and heads: each takes steps along its own normalised gradient."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Unpack

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.groups import INITIAL
from attnsvm.config.instantiate import named
from attnsvm.config.options import OptimizerOptions
from attnsvm.linalg import one_thread
from attnsvm.loss import Loss
from attnsvm.model import Transformer
from attnsvm.optimizer import Optimizer
from attnsvm.optimizer.first_order import REPORT_EVERY
from attnsvm.optimizer.normalized_gd import NormalizedGD
from attnsvm.parameterization import Parameterization, Variables
from attnsvm.problem import ProblemBatch
from attnsvm.training.batch import (
    ROWS,
    Progress,
    optimizer_named,
    parameterization_named,
    reporting,
)
from attnsvm.transformer.network import Weights
from attnsvm.transformer.parameters import OtherParameters
from attnsvm.transformer.stepping import CompiledSteps, TorchSteps, combined, compilable
from attnsvm.transformer.trained import NEXT, TrainedNetwork


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
        The network at the last step.
    others : OtherParameters
        Its values, MLPs and head, at the last step.
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
    others: OtherParameters
    K: Tensor | None
    Q: Tensor | None
    direction_error: Tensor

    @property
    def trained(self) -> dict[str, Tensor]:
        """All that was trained, at the last step."""
        return {"W": self.weights.W, **self.others.trained(self.model)}


def train_layers(
    batch: ProblemBatch,
    model: Transformer,
    parameterization: str | Parameterization = "w",
    optimizer: str | Optimizer = "normalized_gd",
    loss: str | Loss = "logistic",
    *,
    m: int | None = None,
    progress: bool | Progress = False,
    compiled: bool = True,
    **options: Unpack[OptimizerOptions],
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
        Whether to use the compiled loop where it applies; the results are equal up to rounding.
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
    net = TrainedNetwork(
        model, batch, loss if isinstance(loss, Loss) else named("loss", loss), chosen.gradient
    )
    heads = [(rule, l * model.heads + h) for l in range(model.layers) for h in range(model.heads)]
    drawn = [
        one.init(chosen.init, chosen.init_scale, batch.seeds + at * NEXT, batch.d)
        for one, at in heads
    ]
    shape = batch.B, model.layers, model.heads
    start = tuple(torch.stack(V, 1).view(*shape, *V[0].shape[1:]) for V in zip(*drawn, strict=True))
    grid = [int(k) for k in chosen.grid()]
    found = _Snapshots(net, rule, grid)
    with torch.no_grad(), one_thread() as threads, reporting(progress, grid[-1]) as report:
        stepper: CompiledSteps | TorchSteps
        if compiled and compilable(net):
            stepper = CompiledSteps(net, start, threads)
        else:
            stepper = TorchSteps(net, rule, start)
        found.take(start)
        variables = start
        for first, last in pairwise(grid):
            for begin in range(first, last, REPORT_EVERY):
                end = min(begin + REPORT_EVERY, last)
                variables = stepper.advance([chosen.step_size(k) for k in range(begin, end)])
                report(end)
            found.take(variables)
    return found.trajectory(variables)


def networks_at_once(batch: ProblemBatch, model: Transformer, snapshots: int) -> int:
    """Return how many networks can be trained, and their SVMs solved, in 1 GiB; at least 1."""
    _, n, T, d = model.sequences(batch.X, batch.Y, batch.mask)[0].shape
    trained = snapshots * (d * d + n * T * T) + 3 * min(n * T * T, ROWS) ** 2
    differences = 4 * model.heads * n * T**3 * d + 4 * n * T * T * model.mlp
    heads = model.layers * model.heads
    # drawn, trained, as lanes and read back; each layer and head has a copy in the record
    copies = (4 + heads) * (heads * d * d + 2 * model.layers * d * model.mlp)
    return max(1, 2**30 // (8 * (heads * trained + differences + copies)))


def _checked(optimizer: Optimizer, batch: ProblemBatch, model: Transformer) -> NormalizedGD:
    """Return the optimizer if every layer and head can take its steps."""
    if not isinstance(optimizer, NormalizedGD):
        raise ConfigError(
            f"optimizer={type(optimizer).__name__}: must be normalized_gd with model=transformer"
        )
    if optimizer.ridge:
        raise ConfigError(f"optimizer.ridge={optimizer.ridge}: must be 0 with model=transformer")
    if optimizer.init not in INITIAL:
        raise ConfigError(
            f"optimizer.init={optimizer.init}: must be {' | '.join(INITIAL)} with model=transformer"
        )
    if batch.head.train:
        raise ConfigError(
            "head.train=true: must be false with model=transformer: model.trained=head trains it"
        )
    if model.trained != "attention" and optimizer.gradient == "direct":
        raise ConfigError(
            f"optimizer.gradient=direct: must be log_domain with model.trained={model.trained}"
        )
    return optimizer


class _Snapshots:
    """Fills the arrays of a trajectory."""

    def __init__(self, net: TrainedNetwork, rule: Parameterization, grid: list[int]) -> None:
        B, n, T, d = net.X.shape
        L, H, S = net.model.layers, net.model.heads, len(grid)
        self.net, self.rule, self.grid, self.taken = net, rule, grid, 0
        self.snapshots = net.X.new_empty(B, S, L, H, d, d)
        self.risk = net.X.new_empty(B, S)
        self.log_softmax = net.X.new_empty(B, S, L, H, n, T, T)

    def take(self, variables: Variables) -> None:
        """Store the next snapshot."""
        W = combined(self.rule, variables)
        self.snapshots[:, self.taken] = W
        self.risk[:, self.taken], self.log_softmax[:, self.taken] = self.net.recorded(W)
        self.taken += 1

    def trajectory(self, last: Variables) -> LayerTrajectory:
        """Return the trajectory that ends with `last`."""
        K, Q = last if len(last) == 2 else (None, None)
        return LayerTrajectory(
            model=self.net.model,
            loss=self.net.loss,
            steps=torch.tensor(self.grid),
            snapshots=self.snapshots,
            risk=self.risk,
            log_softmax=self.log_softmax,
            weights=self.net.with_weights(self.snapshots[:, -1].clone()),
            others=self.net.others,
            K=K,
            Q=Q,
            direction_error=self.net.direction_error(self.snapshots[:, -1]),
        )
