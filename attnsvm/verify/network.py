"""A network computed again: the input, attention and scores of every layer, with error bounds.

Layer l maps the rows x_1, ..., x_T of a sequence to

    o_k = (1 / sqrt(H)) sum_h V_h^T sum_t s^h_kt x_t,     s^h_k = softmax_t(x_t^T W_h x_k),

then to (x_k + o_k) / sqrt(2) with a residual connection, and with an MLP y to
(y + M_2^T relu(M_1^T y)) / sqrt(2). The score of token t for row k of head h is -r_k^T x_t with
r_k = V_h dL/do_k / sqrt(H). All is plain float64: inputs and scores do not cancel, as the gradient
in the weights would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.heads import HeadAndLoss
from attnsvm.verify.instances import Instance
from attnsvm.verify.tokens import Scores
from attnsvm.verify.weights import Attention, of_logits

Mask = NDArray[np.bool_]
Curve = tuple[Array, Array]

VALUES_STREAM, MLP_STREAM = 0x51ED270B, 0x2545F491
NEXT = 2**40
"""Added to the seed of an instance for each further layer and head, and for the second matrix."""

DRAWN = 1e-12
"""Relative error of matrices that are drawn in float64, or orthogonal factors of such."""


@dataclass(frozen=True)
class Shape:
    """The fields of a recorded model=transformer."""

    layers: int
    heads: int
    residual: bool
    causal: bool
    values: str
    mlp: int
    readout: str
    trained: str
    rate: float

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> Shape:
        """Return those of a config's model."""
        return cls(**{name: value for name, value in model.items() if name != "_target_"})


@dataclass(frozen=True)
class Beside:
    """Values V (L, H, d, d) and MLPs M1 (L, d, width), M2 (L, width, d), or None."""

    V: Array | None
    M1: Array | None
    M2: Array | None

    @classmethod
    def drawn(cls, shape: Shape, seed: int, d: int) -> Beside:
        """Return those of an instance before training."""
        L, H, width = shape.layers, shape.heads, shape.mlp
        V = M1 = M2 = None
        if shape.values == "orthogonal":
            normal = _normal(seed ^ VALUES_STREAM, L, H, d, d)
            V = np.asarray(torch.linalg.qr(normal)[0])
        if width:
            M1 = np.asarray(_normal(seed ^ MLP_STREAM, L, d, width)) / d**0.5
            M2 = np.asarray(_normal(seed ^ (MLP_STREAM + NEXT), L, width, d)) / width**0.5
        return cls(V, M1, M2)

    def trained(self, at: Mapping[str, Array]) -> Beside:
        """Return these with the stored arrays of those that were trained."""
        names = [name for name in ("V", "M1", "M2") if f"network_{name}" in at]
        return replace(self, **{name: at[f"network_{name}"] for name in names})


def _normal(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class Layer:
    """What a layer sees and does.

    Attributes
    ----------
    X, error : Array
        Its input (n, T, d), and bounds of the length of the error of each row (n, T).
    logits, apart : Array
        Logits (H, n, T, T), query before key, and their error bounds.
    found : Attention
        The attention, (H, n, T, T).
    mixed, mixed_error : Array
        Rows before the MLP, as X and its error.
    """

    X: Array
    error: Array
    logits: Array
    apart: Array
    found: Attention
    mixed: Array
    mixed_error: Array


class Network:
    """What weights make of the sequences of an instance.

    Parameters
    ----------
    shape : Shape
        Layers, heads and connections.
    beside : Beside
        Values and MLPs.
    instance : Instance
        Sequences X (n, T, d) with labels (n,) or (n T,) and admissible keys (n, T).
    head : HeadAndLoss or None
        None if it is not known.
    W : Array
        Weights, (L, H, d, d), finite.
    error : float
        Error of the tokens.
    """

    def __init__(
        self,
        shape: Shape,
        beside: Beside,
        instance: Instance,
        head: HeadAndLoss | None,
        W: Array,
        error: float = 0.0,
    ) -> None:
        self.shape, self.beside, self.instance, self.head = shape, beside, instance, head
        self.W = W
        n, T, _ = instance.X.shape
        allowed = np.broadcast_to(instance.mask[:, None, :], (n, T, T))
        self.allowed = allowed & np.tril(np.ones((T, T), dtype=bool)) if shape.causal else allowed
        self.layers: list[Layer] = []
        X, apart = instance.X, np.full((n, T), error)
        for at in range(shape.layers):
            self.layers.append(self._layer(at, X, apart))
            X, apart = self._after_mlp(at, self.layers[-1].mixed, self.layers[-1].mixed_error)
        self.rows, self.rows_error = X, apart

    # --- forward ----------------------------------------------------------------------------------

    def _layer(self, at: int, X: Array, error: Array) -> Layer:
        W, (_, T, d) = self.W[at], X.shape
        logits = np.einsum("itd,hde,ike->hikt", X, W, X, optimize=True)
        lengths, sizes = np.linalg.norm(X, axis=-1), np.linalg.norm(W, axis=(-2, -1))
        key, query = lengths[:, None, :], lengths[:, :, None]
        moved = error[:, None, :] * (query + error[:, :, None]) + key * error[:, :, None]
        apart = sizes[:, None, None, None] * (8 * (d + 5) * EPS * key * query + moved)
        found = of_logits(logits, apart, self.allowed)
        s, s_error = self._softmax(found)
        o = np.einsum("hikt,itd->hikd", s, X)
        sequence = np.arange(len(X))[None, :, None]
        from_top = np.linalg.norm(
            X[None, :, None] - X[sequence, s.argmax(-1)][..., None, :], axis=-1
        )
        o_error = (s_error * from_top + s * error[:, None, :]).sum(-1)
        o_error += (T + 4) * EPS * lengths.max(-1)[:, None]
        if self.beside.V is not None:
            gain = np.linalg.norm(self.beside.V[at], 2, axis=(-2, -1))[:, None, None]
            o_error = gain * (o_error + (8 * d * EPS + DRAWN) * np.linalg.norm(o, axis=-1))
            o = np.einsum("hde,hikd->hike", self.beside.V[at], o)
        H = self.shape.heads
        mixed, mixed_error = o.sum(0) / H**0.5, o_error.sum(0) / H**0.5
        if self.shape.residual:
            mixed, mixed_error = (X + mixed) / 2**0.5, (error + mixed_error) / 2**0.5
        mixed_error = mixed_error + (H + 8) * EPS * np.linalg.norm(mixed, axis=-1)
        return Layer(X, error, logits, apart, found, mixed, mixed_error)

    @staticmethod
    def _softmax(found: Attention) -> Curve:
        s = found.softmax
        return s, s * np.expm1(np.minimum(found.error, 700.0))

    def _after_mlp(self, at: int, Y: Array, error: Array) -> Curve:
        if self.beside.M1 is None or self.beside.M2 is None:
            return Y, error
        M1, M2 = self.beside.M1[at], self.beside.M2[at]
        out = (Y + np.maximum(Y @ M1, 0.0) @ M2) / 2**0.5
        gain = np.linalg.norm(M1, 2) * np.linalg.norm(M2, 2)
        rounding = 8 * (len(M1) + len(M2)) * EPS + DRAWN
        return out, ((1 + gain) * (error + rounding * np.linalg.norm(Y, axis=-1))) / 2**0.5

    # --- what the readout sees --------------------------------------------------------------------

    def seen(self, attended: float) -> tuple[list[Mask], list[Mask]]:
        """Return the rows that the readout sees for certain, and possibly.

        Each is a list of (n, T): of the input, and after each layer.
        """
        pairs = [layer.found.attended(attended) for layer in self.layers]
        certain, possible = (
            _propagated(self.shape, list(part)) for part in zip(*pairs, strict=True)
        )
        return certain, possible

    def mask_refusal(self, at: int, head: int, mask: Mask, attended: float) -> str:
        """Return why `mask` (n T, T) is not that of the samples of a layer and head; or nothing."""
        certain, possible = (part[at + 1].reshape(-1) for part in self.seen(attended))
        T = mask.shape[1]
        allowed = self.allowed.reshape(-1, T)
        found = self.layers[at].found
        logs, error = (part[head].reshape(-1, T) for part in (found.log_softmax, found.error))
        top = logs + error + error.max(-1, keepdims=True) >= logs.max(-1, keepdims=True)
        whole = (mask == allowed).all(-1) & possible
        single = (mask.sum(-1) == 1) & (mask & top & allowed).any(-1) & ~certain
        return "" if (whole | single).all() else "is not what the readout sees"

    def positions_seen(self, at: int, attended: float) -> tuple[float, float]:
        """Return the mean number of positions at a layer's input, and its error bound."""
        low, high = (float(part[at].sum(-1).mean()) for part in self.seen(attended))
        return (low + high) / 2, (high - low) / 2 + 1e-12 * high

    # --- risk -------------------------------------------------------------------------------------

    @cached_property
    def outputs(self) -> Curve:
        """The points at which predictions are made, (N, d), with error bounds (N,)."""
        if self.shape.readout == "first":
            return self.rows[:, 0], self.rows_error[:, 0]
        if self.shape.readout == "mean":
            apart = self.rows_error.mean(1) + self.rows.shape[1] * EPS
            return self.rows.mean(1), apart
        d = self.rows.shape[-1]
        return self.rows.reshape(-1, d), self.rows_error.reshape(-1)

    def risk(self) -> Curve | None:
        """Return the risk and its error bound; None if the head is not known."""
        if self.head is None:
            return None
        f, apart = self.head.value(*self.outputs, self.instance.head)
        return self.head.risk(self.instance.Y * f, apart)

    # --- scores -----------------------------------------------------------------------------------

    def attention_at(self, at: int, head: int, mask: Mask) -> Attention:
        """Return the attention of the samples of a layer and head to the tokens in `mask`."""
        layer, (N, T) = self.layers[at], mask.shape
        return of_logits(layer.logits[head].reshape(N, T), layer.apart[head].reshape(N, T), mask)

    def scores(self, at: int, head: int, mask: Mask) -> Scores | None:
        """Return the scores of the samples of a layer and head, those not seen 0; None: unknown."""
        pulls = self._pulls[at]
        if pulls is None:
            return None
        r, apart = pulls[0][head], pulls[1][head]
        layer, (N, T) = self.layers[at], mask.shape
        size = np.maximum(np.abs(r).max(-1, keepdims=True), np.finfo(float).tiny)
        r, apart = r / size, apart / size[..., 0]
        gamma = -np.einsum("ikd,itd->ikt", r, layer.X)
        lengths = np.linalg.norm(layer.X, axis=-1)[:, None, :]
        length = np.linalg.norm(r, axis=-1)[..., None]
        d = r.shape[-1]
        error = apart[..., None] * lengths + length * (
            layer.error[:, None, :] + 8 * d * EPS * lengths
        )
        gamma, error = (part.reshape(N, T) for part in (gamma, error))
        return Scores(np.where(mask, gamma, -np.inf), np.where(mask, error, 0.0))

    @cached_property
    def _pulls(self) -> Sequence[Curve | None]:
        """The r_k (H, n, T, d) of every layer, with error bounds (H, n, T); None where unknown."""
        found: list[Curve | None] = [None] * self.shape.layers
        g = self._of_readout()
        for at in reversed(range(self.shape.layers)):
            g = None if g is None else self._before_mlp(at, *g)
            if g is None:
                break
            if self.shape.residual:
                g = g[0] / 2**0.5, g[1] / 2**0.5
            found[at], below = self._through_attention(at, *g)
            g = (below[0] + g[0], below[1] + g[1]) if self.shape.residual else below
        return found

    def _of_readout(self) -> Curve | None:
        """Return dL/dx_k of the rows after the last layer, up to a factor of each prediction."""
        if self.head is None:
            return None
        o, apart = self.outputs
        slopes = self.head.gradient(o, self.instance.head)
        if slopes is None or not np.isfinite(o).all():
            return None
        value, error = self.head.value(o, apart, self.instance.head)
        margins = self.instance.Y * value
        weight = self.head.slope(margins) * self.instance.Y
        each = weight[:, None] * slopes
        size = np.linalg.norm(each, axis=-1)
        bend = 2 * self.head.lam * np.abs(weight) * apart  # of the head, then of the loss
        bend += 2 * np.maximum(np.abs(weight), 1) * error * np.linalg.norm(slopes, axis=-1)
        each_error = 64 * EPS * size + bend
        (n, T, d), readout = self.rows.shape, self.shape.readout
        if readout == "every":
            return each.reshape(n, T, d), each_error.reshape(n, T)
        g, g_error = np.zeros((n, T, d)), np.zeros((n, T))
        where = slice(0, 1) if readout == "first" else slice(None)
        g[:, where], g_error[:, where] = each[:, None], each_error[:, None]
        return g, g_error

    def _before_mlp(self, at: int, g: Array, error: Array) -> Curve | None:
        if self.beside.M1 is None or self.beside.M2 is None:
            return g, error
        M1, M2, layer = self.beside.M1[at], self.beside.M2[at], self.layers[at]
        hidden = layer.mixed @ M1
        sizes = np.linalg.norm(M1, axis=0) * (
            layer.mixed_error[..., None] + 1e-12 * np.linalg.norm(layer.mixed, axis=-1)[..., None]
        )
        if (np.abs(hidden) <= sizes).any():
            return None
        gain = np.linalg.norm(M1, 2) * np.linalg.norm(M2, 2)
        out = (g + ((g @ M2.T) * (hidden > 0)) @ M1.T) / 2**0.5
        rounding = (8 * (len(M1) + len(M2)) * EPS + DRAWN) * np.linalg.norm(g, axis=-1)
        return out, (1 + gain) * (error + rounding) / 2**0.5

    def _through_attention(self, at: int, g: Array, g_error: Array) -> tuple[Curve, Curve]:
        """Return r with its error, and the adjoints of the layer's input through its attention."""
        layer, W, H = self.layers[at], self.W[at], self.shape.heads
        X, d, T = layer.X, layer.X.shape[-1], layer.X.shape[1]
        s, s_error = self._softmax(layer.found)
        g_size = np.linalg.norm(g, axis=-1)
        r = np.broadcast_to(g, (H, *g.shape)) / H**0.5
        gain = np.ones((H, 1, 1))
        if self.beside.V is not None:
            r = np.einsum("hde,hike->hikd", self.beside.V[at], r)
            gain = np.linalg.norm(self.beside.V[at], 2, axis=(-2, -1))[:, None, None]
        r_error = gain * (g_error + (8 * d * EPS + DRAWN) * g_size) / H**0.5
        r_size = np.linalg.norm(r, axis=-1)[..., None]
        top = s.argmax(-1)
        n = np.arange(len(X))[None, :, None]
        away = X[None, :, None] - X[n, top][..., None, :]  # (H, n, k, t, d)
        lengths = np.linalg.norm(away, axis=-1)
        away_error = layer.error[:, None, :] + layer.error[n, top][..., None]
        rise = np.einsum("hikd,hiktd->hikt", r, away)
        rise_error = r_error[..., None] * lengths + r_size * (away_error + 8 * d * EPS * lengths)
        mean = (s * rise).sum(-1, keepdims=True)
        mean_error = (s * rise_error + s_error * np.abs(rise)).sum(-1, keepdims=True)
        q = s * (rise - mean)
        size = np.abs(rise) + np.abs(mean)
        q_error = s_error * np.abs(rise - mean) + s * (rise_error + mean_error + 8 * T * EPS * size)
        P = np.einsum("hikt,hiktd->hikd", q, away)
        P_error = (q_error * lengths + np.abs(q) * (away_error + 8 * T * EPS * lengths)).sum(-1)
        U = np.einsum("hde,ike->hikd", W, X)
        W_size = np.linalg.norm(W, axis=(-2, -1))[:, None, None]
        U_error = W_size * (layer.error + 8 * d * EPS * np.linalg.norm(X, axis=-1))
        as_value = np.einsum("hikt,hikd->itd", s, r)
        as_key = np.einsum("hikt,hikd->itd", q, U)
        as_query = np.einsum("hde,hikd->ike", W, P)
        U_size = np.linalg.norm(U, axis=-1)
        rounding = 8 * (T * H + d) * EPS
        error = (s_error * r_size + s * (r_error[..., None] + rounding * r_size)).sum((0, 2))
        error += (q_error * U_size[..., None] + np.abs(q) * U_error[..., None]).sum((0, 2))
        error += rounding * (np.abs(q) * U_size[..., None]).sum((0, 2))
        error += (W_size * (P_error + rounding * np.linalg.norm(P, axis=-1))).sum(0)
        return (r, r_error), (as_value + as_key + as_query, error)


def _propagated(shape: Shape, through: list[Mask]) -> list[Mask]:
    """Return the rows seen if attention passes `through` (H, n, T, T) of each layer."""
    seen: Mask = np.ones(through[0].shape[1:3], dtype=bool)
    if shape.readout == "first":
        seen[:, 1:] = False
    found = [seen]
    for passes in reversed(through):
        below: Mask = np.asarray((passes & seen[None, :, :, None]).any((0, 2)))
        seen = below | seen if shape.residual else below
        found.append(seen)
    return found[::-1]
