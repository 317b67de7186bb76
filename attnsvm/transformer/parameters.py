"""Other parameters than attention's: values V, MLPs (M_1, M_2) and the parameters of the head.

With adjoints g_k = dL/do_k of the rows o_k = (1 / sqrt(H)) sum_h V_h^T m^h_k of attention, where
m^h_k = sum_t s^h_kt x_t,

    dL/dV_h = (1 / sqrt(H)) sum_k m^h_k g_k^T,

and with adjoints e_k of the rows (y_k + M_2^T a_k) / sqrt(2), a_k = relu(M_1^T y_k),

    dL/dM_2 = sum_k a_k e_k^T / sqrt(2),    dL/dM_1 = sum_k y_k (M_2 e_k * 1[a_k > 0])^T / sqrt(2).

These sums do not cancel as attention saturates. Each matrix takes steps along its own gradient
divided by its Frobenius norm: as the margins of the predictions grow, gradients of all of them
vanish like e^-margin, and steps in proportion to them would stop while attention still moves.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.head import Head, Parameters, Relu
from attnsvm.loss import Loss
from attnsvm.model import Transformer
from attnsvm.optimizer.first_order import TINY
from attnsvm.transformer.gradient import Adjoints, read
from attnsvm.transformer.network import Layer, Weights
from attnsvm.transformer.scaled import Scaled, relative


@dataclass(frozen=True, eq=False)
class OtherParameters:
    """Everything of a network but its attention weights.

    Attributes
    ----------
    V, M1, M2 : Tensor or None
        As in `Weights`.
    head : dict of str to Tensor
        Parameters of the prediction head, each (B, ...).
    """

    V: Tensor | None
    M1: Tensor | None
    M2: Tensor | None
    head: Parameters

    def weights(self, W: Tensor) -> Weights:
        """Return the weights of the network with attention weights W."""
        return Weights(W, self.V, self.M1, self.M2)

    def trained(self, model: Transformer) -> dict[str, Tensor]:
        """Return the trained arrays by the names that they have in a record."""
        found: dict[str, Tensor] = {}
        if model.trains("values") and self.V is not None:
            found["V"] = self.V
        if model.trains("mlp") and self.M1 is not None and self.M2 is not None:
            found |= {"M1": self.M1, "M2": self.M2}
        if model.trains("head"):
            found |= {of_head(name): p for name, p in self.head.items()}
        return found

    def moved(
        self, model: Transformer, step: float, gradients: dict[str, Tensor]
    ) -> OtherParameters:
        """Return the parameters after a step of every trained matrix against its own gradient."""
        new = {}
        for name, value in self.trained(model).items():
            G = gradients[name]
            axes = tuple(range(_stack(name), G.ndim))
            largest = G.abs().amax(axes, keepdim=True)
            G = G / torch.where(largest > 0, largest, 1.0)  # whose squares do not underflow
            size = G.square().sum(axes, keepdim=True).sqrt()
            new[name] = value - step * G / (size + TINY)
        return self.with_trained(new)

    def with_trained(self, parts: dict[str, Tensor]) -> OtherParameters:
        """Return the parameters with other values of the trained ones, named as in `trained`."""
        head = {name: parts.get(of_head(name), p) for name, p in self.head.items()}
        others = {name: parts[name] for name in ("V", "M1", "M2") if name in parts}
        return dataclasses.replace(self, head=head, **others)


def of_head(name: str) -> str:
    """Return the name of a parameter of the head among what is trained."""
    return "head_" + name.replace(".", "_")


def _stack(name: str) -> int:
    """Return how many axes count matrices: instances, layers, heads."""
    return {"V": 3, "M1": 2, "M2": 2}.get(name, 1)


def gradients(
    model: Transformer,
    others: OtherParameters,
    layers: list[Layer],
    found: list[Adjoints],
    prediction: tuple[Tensor, Tensor, Head, Loss],
) -> dict[str, Tensor]:
    """Return the gradient of the risk in what is trained, each up to a positive factor.

    Parameters
    ----------
    model, others, layers
        The network and its forward pass.
    found : list of Adjoints
        The adjoints of each layer.
    prediction : (Tensor, Tensor, Head, Loss)
        Rows after the last layer (B, n, T, d), labels, head and loss.

    Returns
    -------
    dict of str to Tensor
        By the names of `OtherParameters.trained`; a factor for each matrix.
    """
    result: dict[str, Tensor] = {}
    pairs = list(zip(layers, found, strict=True))
    if model.trains("values"):
        result["V"] = torch.stack([_in_values(layer, adjoint.mixed) for layer, adjoint in pairs], 1)
    if model.trains("mlp") and others.M1 is not None and others.M2 is not None:
        of_layers = [
            _in_mlp(others.M1[:, at], others.M2[:, at], layer, adjoint.after)
            for at, (layer, adjoint) in enumerate(pairs)
        ]
        in_M1, in_M2 = zip(*of_layers, strict=True)
        result |= {"M1": torch.stack(in_M1, 1), "M2": torch.stack(in_M2, 1)}
    if model.trains("head"):
        parts = _in_head(model, others.head, prediction)
        result |= {of_head(name): part for name, part in parts.items()}
    return result


def _in_values(layer: Layer, g: Scaled) -> Tensor:
    """Return the gradient in V_h, (B, H, d, d), of one layer."""
    means = torch.einsum("bhikt,bitd->bhikd", layer.log_s.exp(), layer.X)
    rows = g.value.flatten(1, 2)
    return means.flatten(2, 3).mT @ (rows * _shares(g.exponent, rows))[:, None]


def _in_mlp(M1: Tensor, M2: Tensor, layer: Layer, e: Scaled) -> tuple[Tensor, Tensor]:
    """Return the gradients in M_1 (B, d, width) and M_2 (B, width, d) of one layer."""
    rows, adjoints = layer.mixed.flatten(1, 2), e.value.flatten(1, 2)
    hidden = (rows @ M1).relu()
    active = (adjoints @ M2.mT) * (hidden > 0)
    in_M1 = rows.mT @ (active * _shares(e.exponent, active))
    return in_M1, hidden.mT @ (adjoints * _shares(e.exponent, hidden))


def _in_head(
    model: Transformer, parameters: Parameters, prediction: tuple[Tensor, Tensor, Head, Loss]
) -> Parameters:
    """Return the gradient in the parameters of the head."""
    rows, Y, head, loss = prediction
    o = read(model, rows)
    slope, exponent = loss.slope(Y * head.value(o, parameters))
    if isinstance(head, Relu):  # a row without active projections adds nothing
        flat = (head.gradient(o, parameters) == 0).all(-1)
        exponent = exponent.masked_fill(flat, -torch.inf)
    largest = exponent.flatten(1).amax(-1).view(-1, *[1] * (exponent.ndim - 1))
    weights = -slope * Y * relative(exponent, largest)
    return head.parameter_gradient(o, parameters, weights)


def _shares(exponent: Tensor, terms: Tensor) -> Tensor:
    """Return e^(c - largest c) of rows (B, n, T), shape (B, n T, 1).

    The largest is over rows whose terms (B, n T, ...) of a sum are not zero; it is 0 elsewhere.
    """
    summed = exponent.flatten(1).masked_fill((terms == 0).all(-1), -torch.inf)
    return relative(summed, summed.amax(-1, keepdim=True)).unsqueeze(-1)
