"""A network during training: its tokens, labels, head and loss, and its other parameters."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from attnsvm.loss import Loss
from attnsvm.model import Transformer
from attnsvm.problem import ProblemBatch
from attnsvm.transformer.gradient import (
    Adjoints,
    adjoints_of_layers,
    in_all_weights,
    read,
    readout_adjoint,
)
from attnsvm.transformer.network import (
    Layer,
    Weights,
    admissible,
    attended,
    forward,
    passes,
    through_layer,
)
from attnsvm.transformer.parameters import OtherParameters, gradients

VALUES_STREAM, MLP_STREAM = 0x51ED270B, 0x2545F491
"""Seeds of values and MLPs are seed ^ these; those of weights come from `Parameterization.init`."""

NEXT = 2**40
"""Added to the seed of an instance for each further layer and head."""


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


class TrainedNetwork:
    """Everything but the attention weights: tokens, values, head, loss.

    `others` are its values, MLPs and head at the present step.
    """

    def __init__(self, model: Transformer, batch: ProblemBatch, loss: Loss, how: str) -> None:
        self.model, self.batch, self.loss, self.how = model, batch, loss, how
        X, Y, mask = model.sequences(batch.X, batch.Y, batch.mask)
        self.X, self.Y = X.contiguous(), Y.contiguous()
        self.mask = None if bool(mask.all()) else mask.contiguous()
        drawn = values_and_mlps(model, batch.seeds, batch.d)
        self.others = OtherParameters(*drawn, batch.head_parameters)
        d = batch.d
        unit = torch.eye(d, dtype=X.dtype, device=X.device).expand(len(X), 1, d, d)
        self.features = batch.head.features(unit, batch.head_parameters)

    def with_weights(self, W: Tensor) -> Weights:
        """Return the weights of the network."""
        return self.others.weights(W)

    def stepped(self, W: Tensor, eta: float) -> Tensor:
        """Return the gradient in W, each (d, d) up to a factor; move what else is trained."""
        if self.how == "direct":
            return self._direct(W)
        layers, rows, found = self._adjoints(W)
        if self.model.trained != "attention":
            prediction = rows, self.Y, self.batch.head, self.loss
            others = gradients(self.model, self.others, layers, found, prediction)
            self.others = self.others.moved(self.model, self.model.rate * eta, others)
        return in_all_weights(found)

    def risk(self, rows: Tensor) -> Tensor:
        """Return the risk, (B,), of the rows after the last layer."""
        margins = self.Y * self.batch.head.value(read(self.model, rows), self.others.head)
        return self.loss.value(margins).flatten(1).mean(1)

    def recorded(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Return the risk, (B,), and log s of every layer, (B, L, H, n, T, T)."""
        found = passes(self.model, self.with_weights(W), self.X, self.mask)
        _, log_s, _, rows = zip(*found, strict=True)
        return self.risk(rows[-1]), torch.stack(log_s, 1)

    def direction_error(self, W: Tensor) -> Tensor:
        """Return the relative error of the direction of `gradient`, (B, L, H)."""
        if self.how != "direct":
            return torch.zeros_like(W[..., 0, 0])
        pair = [value / value.norm(dim=(-2, -1), keepdim=True) for value in
                (self._direct(W), in_all_weights(self._adjoints(W)[2]))]  # fmt: skip
        apart: Tensor = (pair[0] - pair[1]).norm(dim=(-2, -1))
        return apart

    def _adjoints(self, W: Tensor) -> tuple[list[Layer], Tensor, list[Adjoints]]:
        """Return the layers, the rows after the last one, and all adjoints, exactly."""
        weights = self.with_weights(W)
        layers, rows = forward(self.model, weights, self.X, self.mask)
        given = self.Y, self.batch.head, self.others.head, self.loss
        g = readout_adjoint(self.model, rows, *given)
        return layers, rows, adjoints_of_layers(self.model, weights, layers, g)

    def _direct(self, W: Tensor) -> Tensor:
        """Return the gradient by torch's own backward pass."""
        with torch.enable_grad():
            tracked = W.detach().requires_grad_()
            rows = plain_forward(self.model, self.with_weights(tracked), self.X, self.mask)
            (value,) = torch.autograd.grad(self.risk(rows).sum(), tracked)
        return value


def plain_forward(
    model: Transformer, weights: Weights, X: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Return the rows after the last layer as any implementation computes them, (B, n, T, d)."""
    allowed = admissible(X.shape[2], model.causal, mask).to(X.device)
    for at in range(model.layers):
        U = torch.einsum("bhde,bike->bhikd", weights.W[:, at], X)
        logits = torch.einsum("bitd,bhikd->bhikt", X, U).masked_fill(~allowed, -torch.inf)
        V = None if weights.V is None else weights.V[:, at]
        _, X = through_layer(model, weights, at, X, attended(X, logits.softmax(-1), V))
    return X
