"""Training of all layers and heads: each takes steps along its own normalised gradient."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
import torch
from torch import Generator, Tensor

from attnsvm.config import ConfigError
from attnsvm.config.instantiate import named
from attnsvm.config.options import OptimizerOptions
from attnsvm.config.transformer import INITIAL
from attnsvm.jit import announced
from attnsvm.lanes.arithmetic import LANES
from attnsvm.lanes.blocks import from_lanes, to_lanes
from attnsvm.lanes.loss import EXPONENTIAL, LINEAR, LOGISTIC, SQUARED
from attnsvm.linalg import one_thread
from attnsvm.loss import Exponential, LinearLoss, Logistic, Loss, Squared
from attnsvm.model import READOUTS, Transformer
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
from attnsvm.transformer.compiled import Data, Sizes, Space, descend_layers, space_entries
from attnsvm.transformer.gradient import Pull, in_all_weights, pulls, read, readout_adjoint
from attnsvm.transformer.network import Layer, Weights, admissible, forward, passes
from attnsvm.transformer.parameters import Beside, gradients

VALUES_STREAM, MLP_STREAM = 0x51ED270B, 0x2545F491
"""Seeds of values and MLPs are seed ^ these; those of weights come from `Parameterization.init`."""

NEXT = 2**40
"""Added to the seed of an instance for each further layer and head."""

TINY = 1e-300
LOSS_CODES = {Logistic: LOGISTIC, Exponential: EXPONENTIAL, LinearLoss: LINEAR, Squared: SQUARED}


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
    beside : Beside
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
    beside: Beside
    K: Tensor | None
    Q: Tensor | None
    direction_error: Tensor

    @property
    def trained(self) -> dict[str, Tensor]:
        """All that was trained, at the last step."""
        return {"W": self.weights.W, **self.beside.trained(self.model)}


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
    net = _Network(
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
        stepper: _Compiled | _Torch = _Torch(net, rule, start)
        if compiled and net.compilable and chosen.gradient == "log_domain":
            stepper = _Compiled(net, start, threads)
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
    differences = 4 * model.heads * n * T**3 * d
    return max(1, 2**30 // (8 * (model.layers * model.heads * trained + differences)))


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


def combined(rule: Parameterization, variables: Variables) -> Tensor:
    """Return W, shape (B, L, H, d, d), of variables (B, L, H, ...)."""
    B, L, H = variables[0].shape[:3]
    W = rule.combine(tuple(V.flatten(0, 2) for V in variables))
    return W.view(B, L, H, *W.shape[1:])


def values_and_mlps(
    model: Transformer, seeds: Tensor, d: int
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return V (B, L, H, d, d), M1 (B, L, d, width) and M2 (B, L, width, d), as the model asks.

    V is the orthogonal factor of a normal matrix, or the identity: None unless it is trained.
    Entries of M1 and M2 are normal with variance 1 / d and 1 / width.
    """
    L, H, width = model.layers, model.heads, model.mlp

    def normal(stream: int, *shape: int) -> Tensor:
        generators = [Generator().manual_seed(int(seed) ^ stream) for seed in seeds.tolist()]
        parts = [torch.randn(*shape, generator=one, dtype=torch.float64) for one in generators]
        return torch.stack(parts).to(seeds.device)

    V = M1 = M2 = None
    if model.values == "orthogonal":
        V = torch.linalg.qr(normal(VALUES_STREAM, L, H, d, d))[0]
    elif model.trains("values"):
        V = torch.eye(d, dtype=torch.float64, device=seeds.device).repeat(len(seeds), L, H, 1, 1)
    if width:
        M1 = normal(MLP_STREAM, L, d, width) / d**0.5
        M2 = normal(MLP_STREAM + NEXT, L, width, d) / width**0.5
    return V, M1, M2


class _Network:
    """Everything but the attention weights: tokens, values, head, loss.

    `beside` is what it is at the present step.
    """

    def __init__(
        self,
        model: Transformer,
        batch: ProblemBatch,
        loss: Loss,
        how: str,
    ) -> None:
        self.model, self.batch, self.loss, self.how = model, batch, loss, how
        X, Y, mask = model.sequences(batch.X, batch.Y, batch.mask)
        self.X, self.Y = X.contiguous(), Y.contiguous()
        self.mask = None if bool(mask.all()) else mask.contiguous()
        drawn = values_and_mlps(model, batch.seeds, batch.d)
        self.beside = Beside(*drawn, batch.head_parameters)
        d = batch.d
        unit = torch.eye(d, dtype=X.dtype, device=X.device).expand(len(X), 1, d, d)
        self.features = batch.head.features(unit, batch.head_parameters)

    @property
    def compilable(self) -> bool:
        """Whether the compiled loop applies."""
        return (
            self.beside.M1 is None
            and self.model.trained == "attention"
            and self.features is not None
            and type(self.loss) in LOSS_CODES
            and self.X.device.type == "cpu"
        )

    def with_weights(self, W: Tensor) -> Weights:
        """Return the weights of the network."""
        return self.beside.weights(W)

    def stepped(self, W: Tensor, eta: float) -> Tensor:
        """Return the gradient in W, each (d, d) up to a factor; move what else is trained."""
        if self.how == "direct":
            return self._direct(W)
        layers, rows, found = self._pulls(W)
        if self.model.trained != "attention":
            prediction = rows, self.Y, self.batch.head, self.loss
            others = gradients(self.model, self.beside, layers, found, prediction)
            self.beside = self.beside.moved(self.model, self.model.rate * eta, others)
        return in_all_weights(found)

    def predictions(self, rows: Tensor) -> Tensor:
        """Return the margins of the rows after the last layer."""
        return self.Y * self.batch.head.value(read(self.model, rows), self.beside.head)

    def direction_error(self, W: Tensor) -> Tensor:
        """Return the relative error of the direction of `gradient`, (B, L, H)."""
        if self.how != "direct":
            return torch.zeros_like(W[..., 0, 0])
        pair = [value / value.norm(dim=(-2, -1), keepdim=True) for value in
                (self._direct(W), in_all_weights(self._pulls(W)[2]))]  # fmt: skip
        apart: Tensor = (pair[0] - pair[1]).norm(dim=(-2, -1))
        return apart

    def _pulls(self, W: Tensor) -> tuple[list[Layer], Tensor, list[Pull]]:
        """Return the layers, the rows after the last one, and how the risk pulls, exactly."""
        weights = self.with_weights(W)
        layers, rows = forward(self.model, weights, self.X, self.mask)
        given = self.Y, self.batch.head, self.beside.head, self.loss
        g, _ = readout_adjoint(self.model, rows, *given)
        return layers, rows, pulls(self.model, weights, layers, g)

    def _direct(self, W: Tensor) -> Tensor:
        """Return the gradient by torch's own backward pass."""
        with torch.enable_grad():
            tracked = W.detach().requires_grad_()
            rows = plain_forward(self.model, self.with_weights(tracked), self.X, self.mask)
            risk = self.loss.value(self.predictions(rows)).flatten(1).mean(1).sum()
            (value,) = torch.autograd.grad(risk, tracked)
        return value


def plain_forward(
    model: Transformer, weights: Weights, X: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Return the rows after the last layer as any implementation computes them, (B, n, T, d)."""
    allowed = admissible(X.shape[2], model.causal, mask).to(X.device)
    for at in range(model.layers):
        U = torch.einsum("bhde,bike->bhikd", weights.W[:, at], X)
        logits = torch.einsum("bitd,bhikd->bhikt", X, U).masked_fill(~allowed, -torch.inf)
        out = torch.einsum("bhikt,bitd->bhikd", logits.softmax(-1), X)
        if weights.V is not None:
            out = torch.einsum("bhde,bhikd->bhike", weights.V[:, at], out)
        out = out.sum(1) / model.heads**0.5
        X = (X + out) / 2**0.5 if model.residual else out
        if weights.M1 is not None and weights.M2 is not None:
            hidden = torch.einsum("bitd,bdw->bitw", X, weights.M1[:, at]).relu()
            X = (X + torch.einsum("bitw,bwd->bitd", hidden, weights.M2[:, at])) / 2**0.5
    return X


class _Torch:
    """Steps of the torch loop: any network, any device."""

    def __init__(self, net: _Network, rule: Parameterization, start: Variables) -> None:
        self.net, self.rule = net, rule
        self.variables = tuple(V.clone() for V in start)

    def advance(self, etas: list[float]) -> Variables:
        """Take a step of each size in `etas`."""
        for eta in etas:
            G = self.net.stepped(combined(self.rule, self.variables), eta)
            if len(self.variables) == 1:
                parts: Variables = (G,)
            else:
                K, Q = self.variables
                parts = G @ Q, G.mT @ K
            self.variables = tuple(
                V - eta * part / (part.norm(dim=(-2, -1), keepdim=True) + TINY)
                for V, part in zip(self.variables, parts, strict=True)
            )
        return self.variables


class _Compiled:
    """Steps of the compiled loop, blocks of eight instances in threads."""

    def __init__(self, net: _Network, start: Variables, threads: int) -> None:
        model, batch, loss = net.model, net.batch, net.loss
        B, n, T, d = net.X.shape
        assert net.features is not None  # as checked in `compilable`
        F, kinds = net.features
        allowed = admissible(T, model.causal, net.mask).expand(B, 1, n, T, T)
        bias = torch.zeros(B, n, T, T, dtype=torch.float64).masked_fill(~allowed[:, 0], -torch.inf)
        values = net.beside.V
        V = torch.zeros(B, 1, dtype=torch.float64) if values is None else values
        count = net.Y[0].numel()
        data = net.X, bias, V, F[:, 0], kinds.expand(LANES, 3, -1), net.Y, -net.Y / count
        self.data = [to_lanes(tensor.contiguous()) for tensor in data]
        self.shapes = [tuple(V.shape) for V in start]
        self.variables = [to_lanes(V.contiguous()) for V in start]
        self.blocks, self.threads = -(-batch.B // LANES), threads
        self.sizes = Sizes(
            n=n, T=T, d=d, L=model.layers, H=model.heads, k=F.shape[-1],
            m=start[0].shape[-1] if len(start) == 2 else 0,
            residual=model.residual, values=values is not None,
            readout=READOUTS.index(model.readout), loss=LOSS_CODES[type(loss)],
            target=loss.target if isinstance(loss, Squared) else 0.0,
        )  # fmt: skip
        with announced("training loop of a transformer"):
            self._steps(0, 0, np.empty(0))

    def advance(self, etas: list[float]) -> Variables:
        """Take a step of each size in `etas`."""
        lengths = np.array(etas)
        with ThreadPoolExecutor(self.threads) as pool:
            parts = [pool.submit(self._steps, b, b + 1, lengths) for b in range(self.blocks)]
            for part in parts:
                part.result()
        pairs = zip(self.variables, self.shapes, strict=True)
        return tuple(from_lanes(lanes, shape).clone() for lanes, shape in pairs)

    def _steps(self, first: int, last: int, etas: Any) -> None:
        space = [torch.empty(LANES * k, dtype=torch.float64) for k in space_entries(self.sizes)]
        at = [V.data_ptr() for V in self.variables]
        addresses = Data(*(x.data_ptr() for x in self.data)), Space(*(x.data_ptr() for x in space))
        descend_layers(first, last, *addresses, (at[0], at[-1]), etas, self.sizes)


class _Snapshots:
    """Fills the arrays of a trajectory."""

    def __init__(self, net: _Network, rule: Parameterization, grid: list[int]) -> None:
        B, n, T, d = net.X.shape
        L, H, S = net.model.layers, net.model.heads, len(grid)
        self.net, self.rule, self.grid, self.taken = net, rule, grid, 0
        self.snapshots = net.X.new_empty(B, S, L, H, d, d)
        self.risk = net.X.new_empty(B, S)
        self.log_softmax = net.X.new_empty(B, S, L, H, n, T, T)

    def take(self, variables: Variables) -> None:
        """Store the next snapshot."""
        W = combined(self.rule, variables)
        given = self.net.model, self.net.with_weights(W), self.net.X, self.net.mask
        _, log_softmax, _, rows = zip(*passes(*given), strict=True)
        u = self.net.predictions(rows[-1])
        self.snapshots[:, self.taken] = W
        self.risk[:, self.taken] = self.net.loss.value(u).flatten(1).mean(1)
        self.log_softmax[:, self.taken] = torch.stack(log_softmax, 1)
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
            beside=self.net.beside,
            K=K,
            Q=Q,
            direction_error=self.net.direction_error(self.snapshots[:, -1]),
        )
