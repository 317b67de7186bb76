"""The forward pass of a network, whose layers are those of `attnsvm.Transformer`."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from attnsvm.head import Parameters
from attnsvm.model import Transformer
from attnsvm.nn.risk import log_attention
from attnsvm.parameterization import normal

VALUES_STREAM, MLP_STREAM = 0x51ED270B, 0x2545F491
"""Seeds of values and MLPs are seed ^ these; those of weights come from `Parameterization.init`."""

NEXT = 0x85EBCA6B
"""Added to the seed of an instance for each further layer and head, and to a stream for M2.

torch uses the lowest 32 bits of a seed only. Multiples of this odd number are spread over these.
"""


@dataclass(frozen=True, eq=False)
class Weights:
    """What the networks are made of.

    Attention weights W (B, L, H, d, d); values V (B, L, H, d, d), None: the identity; the MLPs M1
    (B, L, d, width) and M2 (B, L, width, d), None: no MLP; parameters of the prediction head, each
    (B, ...).
    """

    W: Tensor
    V: Tensor | None = None
    M1: Tensor | None = None
    M2: Tensor | None = None
    head: Parameters = field(default_factory=dict)

    @classmethod
    def drawn(cls, model: Transformer, seeds: Tensor, W: Tensor, head: Parameters) -> Self:
        """Return the weights at the start of a training, with attention weights W.

        V is the orthogonal factor of a normal matrix, or the identity: None unless it is trained.
        Entries of M1 and M2 are normal with variance 1 / d and 1 / width.
        """
        (L, H, d), width = W.shape[1:4], model.mlp
        V = M1 = M2 = None
        if model.values == "orthogonal":
            V = torch.linalg.qr(normal(seeds, VALUES_STREAM, L, H, d, d))[0]
        elif model.trains("values"):
            V = torch.eye(d, dtype=W.dtype, device=W.device).repeat(len(W), L, H, 1, 1)
        if width:
            M1 = normal(seeds, MLP_STREAM, L, d, width) / d**0.5
            M2 = normal(seeds, MLP_STREAM + NEXT, L, width, d) / width**0.5
        return cls(W, V, M1, M2, head)

    def others(self, model: Transformer) -> dict[str, Tensor]:
        """Return what is trained besides W, by the names in a record."""
        parts = {"values": {"V": self.V}, "mlp": {"M1": self.M1, "M2": self.M2}}
        parts["head"] = {of_head(name): p for name, p in self.head.items()}
        trained = (V.items() for part, V in parts.items() if model.trains(part))
        return {name: V for items in trained for name, V in items if V is not None}

    def replaced(self, parts: dict[str, Tensor]) -> Self:
        """Return the weights with other values of W and of what else is trained, by these names."""
        head = {name: parts.get(of_head(name), p) for name, p in self.head.items()}
        matrices = {name: parts[name] for name in ("W", "V", "M1", "M2") if name in parts}
        return dataclasses.replace(self, head=head, **matrices)


def of_head(name: str) -> str:
    """Return the name of a parameter of the head among what is trained."""
    return "head_" + name.replace(".", "_")


@dataclass(frozen=True, eq=False)
class Layer:
    """What a layer sees and does: its input X and its output `rows`, (B, n, T, d), and attention.

    log s^h_kt has shape (B, H, n, T, T), query k before key t; -inf where t is not admissible.
    """

    X: Tensor
    log_s: Tensor
    rows: Tensor


def admissible(T: int, causal: bool, mask: Tensor | None) -> Tensor:
    """Return which keys t a query k may attend to, shape (T, T) or (B, 1, n, T, T), bool."""
    allowed = torch.ones(T, T, dtype=torch.bool)
    if causal:
        allowed = allowed.tril()
    return allowed if mask is None else allowed & mask.cpu()[:, None, :, None, :]


def forward(
    model: Transformer,
    weights: Weights,
    X: Tensor,
    mask: Tensor | None = None,
    published: bool = False,
) -> list[Layer]:
    """Return all layers of the network on tokens X (B, n, T, d); `mask` (B, n, T) are the keys.

    If `published`, attention is torch's softmax, whose gradient cancels where attention saturates.
    """
    allowed = admissible(X.shape[2], model.causal, mask).to(X.device)
    layers = []
    for at in range(model.layers):
        U = torch.einsum("bhde,bike->bhikd", weights.W[:, at], X)
        logits = torch.einsum("bitd,bhikd->bhikt", X, U).masked_fill(~allowed, -torch.inf)
        log_s = log_attention(logits)
        s = logits.softmax(-1) if published else log_s.exp()
        means = torch.einsum("bhikt,bitd->bhikd", s, X)
        if weights.V is not None:
            means = torch.einsum("bhde,bhikd->bhike", weights.V[:, at], means)
        out = means.sum(1) / math.sqrt(model.heads)
        rows = (X + out) / math.sqrt(2) if model.residual else out
        if weights.M1 is not None and weights.M2 is not None:
            hidden = torch.einsum("bitd,bdw->bitw", rows, weights.M1[:, at]).relu()
            expanded = torch.einsum("bitw,bwd->bitd", hidden, weights.M2[:, at])
            rows = (rows + expanded) / math.sqrt(2)
        layers.append(Layer(X, log_s, rows))
        X = rows
    return layers


def read(model: Transformer, rows: Tensor) -> Tensor:
    """Return the rows at which a prediction is made, (B, n, d), or (B, n, T, d) for `every`."""
    if model.readout == "first":
        return rows[:, :, 0]
    return rows.mean(2) if model.readout == "mean" else rows
