"""The gradient of the risk in the weights of every layer and head, exact at any norm.

Backwards through a layer, with adjoints g_k = dL/do_k of its output rows and r_k = V g_k / sqrt(H),

    q_kt = dL/dlogit_kt = s_kt (r_k^T (x_t - x_top) - mean_k),
    mean_k = sum_{u != top} s_ku r_k^T (x_u - x_top),
    dL/dW = sum_k (sum_t q_kt (x_t - x_top)) x_k^T.

Nothing cancels: the largest attention of a row is not subtracted from the others. Adjoints of
different rows may differ by factors far outside of float64, so each row has an exponent of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.head import Head, Parameters
from attnsvm.loss import Loss
from attnsvm.model import Transformer
from attnsvm.transformer.network import Layer, Weights
from attnsvm.transformer.scaled import Scaled, added, relative, total


@dataclass(frozen=True, eq=False)
class Adjoints:
    """Adjoints of one layer: derivatives of the risk in its rows and weights.

    Attributes
    ----------
    r : Scaled
        V dL/do_k / sqrt(H), shape (B, H, n, T, d).
    P : Scaled
        dL/dU_k of U_k = W x_k, shape (B, H, n, T, d); dL/dW is the sum of P_k x_k^T.
    dW : Scaled
        The gradient in W, flat, shape (B, H, d d).
    below : Scaled
        Adjoints of the layer's input through its attention, shape (B, n, T, d).
    mixed, after : Scaled
        Adjoints dL/do_k of the rows that attention gives, and dL/dx_k of the rows after the MLP,
        each (B, n, T, d).
    """

    r: Scaled
    P: Scaled
    dW: Scaled
    below: Scaled
    mixed: Scaled
    after: Scaled


def readout_adjoint(
    model: Transformer,
    rows: Tensor,
    Y: Tensor,
    head: Head,
    parameters: Parameters,
    loss: Loss,
) -> Scaled:
    """Return dL/dx_k of the rows after the last layer, (B, n, T, d)."""
    o = read(model, rows)
    margins = Y * head.value(o, parameters)
    slope, exponent = loss.slope(margins)
    weight = -slope * Y / margins[0].numel()
    g = Scaled(head.gradient(o, parameters) * weight.unsqueeze(-1), exponent).normalized()
    if model.readout == "every":
        return g
    B, n, T, _ = rows.shape
    everywhere = Scaled(
        g.value.unsqueeze(2).expand_as(rows), g.exponent.unsqueeze(2).expand(B, n, T)
    )
    if model.readout == "mean":
        return everywhere.times(-math.log(T))
    first = torch.arange(T, device=rows.device) == 0
    return Scaled(
        everywhere.value * first.unsqueeze(-1),
        torch.where(first, everywhere.exponent, -torch.inf),
    )


def read(model: Transformer, rows: Tensor) -> Tensor:
    """Return the rows at which a prediction is made, (B, n, d), or (B, n, T, d) for `every`."""
    if model.readout == "first":
        return rows[:, :, 0]
    return rows.mean(2) if model.readout == "mean" else rows


def in_all_weights(found: list[Adjoints]) -> Tensor:
    """Return the values of the gradient in W, (B, L, H, d, d), without their log-scales."""
    value = torch.stack([one.dW.value for one in found], 1)
    d = math.isqrt(value.shape[-1])
    return value.reshape(*value.shape[:-1], d, d)


def adjoints_of_layers(
    model: Transformer, weights: Weights, layers: list[Layer], g: Scaled
) -> list[Adjoints]:
    """Return the adjoints of every layer, the first one first."""
    found = []
    for at in reversed(range(model.layers)):
        layer, after = layers[at], g
        if weights.M1 is not None and weights.M2 is not None:
            g = _before_mlp(weights.M1[:, at], weights.M2[:, at], layer.mixed, g)
        if model.residual:
            g = g.times(-0.5 * math.log(2))
        V = None if weights.V is None else weights.V[:, at]
        found.append(_through_attention(layer, weights.W[:, at], V, g, after))
        g = added(found[-1].below, g) if model.residual else found[-1].below
    return found[::-1]


def _through_attention(
    layer: Layer, W: Tensor, V: Tensor | None, g: Scaled, after: Scaled
) -> Adjoints:
    """Return the adjoints of a layer from the adjoints of its rows before the MLP, g, and after."""
    X, log_s, away = layer.X, layer.log_s, layer.away
    B, H, n, T, _ = log_s.shape
    shift = -0.5 * math.log(H)
    r_value = g.value[:, None].expand(B, H, *g.value.shape[1:])
    if V is not None:
        r_value = torch.einsum("bhde,bhike->bhikd", V, r_value)
    r = Scaled(r_value, g.exponent[:, None].expand(B, H, n, T) + shift).normalized()

    # scores of the tokens relative to the top one, and q
    rise = torch.einsum("bhikd,bhiktd->bhikt", r.value, away.value)
    size = r.exponent.unsqueeze(-1) + away.exponent
    mean = total(Scaled(rise.unsqueeze(-1), log_s + size), -1)
    log_mean = mean.exponent.unsqueeze(-1)
    scale = torch.maximum(size, log_mean)
    apart = rise * relative(size, scale) - mean.value * relative(log_mean, scale)
    q = Scaled(apart.unsqueeze(-1), log_s + scale).normalized()

    P = total(Scaled(q.value * away.value, q.exponent + away.exponent), -1)
    dW = in_weights(P, X)

    # adjoints of the rows: as values, as keys, as queries
    U = torch.einsum("bhde,bike->bhikd", W, X)
    values = Scaled(r.value.unsqueeze(-2).expand_as(away.value), log_s + r.exponent.unsqueeze(-1))
    keys = Scaled(q.value * U.unsqueeze(-2), q.exponent)
    as_key = total(
        Scaled(
            torch.cat([values.value, keys.value], 3).movedim(3, 4),
            torch.cat([values.exponent, keys.exponent], 3).movedim(3, 4),
        ),
        -1,
    )
    as_query = Scaled(torch.einsum("bhde,bhikd->bhike", W, P.value), P.exponent)
    every = Scaled(
        torch.cat([as_key.value, as_query.value], 1).movedim(1, -2),
        torch.cat([as_key.exponent, as_query.exponent], 1).movedim(1, -1),
    )
    return Adjoints(r, P, dW, total(every, -1), g, after)


def in_weights(P: Scaled, X: Tensor) -> Scaled:
    """Return the sum of P_k x_k^T over all rows, flat, shape (B, H, d d)."""
    exponent = P.exponent.flatten(2)
    largest = exponent.amax(-1, keepdim=True)
    rows = P.value.flatten(2, 3) * relative(exponent, largest).unsqueeze(-1)
    summed = rows.mT @ X.flatten(1, 2)[:, None]
    return Scaled(summed.flatten(-2), largest.squeeze(-1)).normalized()


def _before_mlp(M1: Tensor, M2: Tensor, mixed: Tensor, g: Scaled) -> Scaled:
    """Return the adjoints of the rows before the MLP."""
    active = torch.einsum("bitd,bdw->bitw", mixed, M1) > 0
    back = torch.einsum("bwd,bitd->bitw", M2, g.value) * active
    value = (g.value + torch.einsum("bdw,bitw->bitd", M1, back)) / math.sqrt(2)
    return Scaled(value, g.exponent).normalized()
