"""Attention layers over the same positions: the forward pass, with exact differences of rows.

Layer l maps the rows x_1, ..., x_T of a sequence to

    o_k = (1 / sqrt(H)) sum_h V_h^T sum_t s^h_kt x_t,     s^h_k = softmax_t(x_t^T W_h x_k),

and the next layer's rows are o_k, or (x_k + o_k) / sqrt(2) with a residual connection. Then, with
an MLP, y becomes (y + M_2^T relu(M_1^T y)) / sqrt(2).

As attention saturates, rows become copies of each other: without a residual connection those that
attend to one token, with it two that attend to each other. They differ by e^-margin, which a
difference of rounded rows does not show. Yet the direction of the gradient of the next layer may
depend on it. Therefore the differences x_t - x_u are carried beside the rows, as numbers v e^c.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.attention import log_attention
from attnsvm.model import Transformer
from attnsvm.transformer.scaled import Scaled, added, relative, total

SMALLEST = 1e-30
"""Changes of a logit below this are small enough for first order, and may underflow as float64."""

FAR = 1e-2
"""Rows of a sequence are far apart if the differences of any two are at least this, relative to
the largest entry: then differences of rounded rows have 13 digits."""

NEAR_COPIES = -30.0
"""Rows whose log-difference is below this are on one side of every kink of a relu."""


@dataclass(frozen=True, eq=False)
class Weights:
    """What the layers are made of.

    Attributes
    ----------
    W : Tensor
        Attention weights, shape (B, L, H, d, d).
    V : Tensor or None
        Values, shape (B, L, H, d, d); None: the identity.
    M1, M2 : Tensor or None
        The MLPs, shapes (B, L, d, width) and (B, L, width, d); None: no MLP.
    """

    W: Tensor
    V: Tensor | None = None
    M1: Tensor | None = None
    M2: Tensor | None = None

    def at(self, index: Tensor) -> Weights:
        """Return the weights of the instances at `index`."""
        others = [None if part is None else part[index] for part in (self.V, self.M1, self.M2)]
        return Weights(self.W[index], *others)


@dataclass(frozen=True, eq=False)
class Layer:
    """What a layer sees and does.

    Attributes
    ----------
    X : Tensor
        Its input, shape (B, n, T, d).
    log_s : Tensor
        log s^h_kt, shape (B, H, n, T, T), query k before key t; -inf where t is not admissible.
    away : Scaled
        x_t - x_top for the largest attention of each row, shape (B, H, n, T, T, d).
    mixed : Tensor
        Rows before the MLP, shape (B, n, T, d).
    """

    X: Tensor
    log_s: Tensor
    away: Scaled
    mixed: Tensor


def admissible(T: int, causal: bool, mask: Tensor | None) -> Tensor:
    """Return which keys t a query k may attend to, shape (T, T) or (B, 1, n, T, T), bool."""
    allowed = torch.ones(T, T, dtype=torch.bool)
    if causal:
        allowed = allowed.tril()
    return allowed if mask is None else allowed & mask[:, None, :, None, :]


def forward(
    model: Transformer, weights: Weights, X: Tensor, mask: Tensor | None = None
) -> tuple[list[Layer], Tensor]:
    """Return all layers, and the rows after the last one, shape (B, n, T, d).

    Parameters
    ----------
    model, weights
        The network.
    X : Tensor
        Tokens, shape (B, n, T, d).
    mask : Tensor, optional
        Tokens that may be attended to, shape (B, n, T), bool.
    """
    pairs: Scaled | None = None
    layers, passed = [], list(passes(model, weights, X, mask))
    for at, (x, log_s, mixed, rows) in enumerate(passed):
        layers.append(Layer(x, log_s, from_top(x, pairs, log_s), mixed))
        if at < model.layers - 1:
            pairs = row_differences(model, weights, at, layers[-1], pairs, rows)
    return layers, passed[-1][-1]


def passes(
    model: Transformer, weights: Weights, X: Tensor, mask: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield input, log-attention, rows before the MLP and output of each layer, as in `Layer`."""
    allowed = admissible(X.shape[2], model.causal, mask).to(X.device)
    for at in range(model.layers):
        log_s = log_softmax(weights.W[:, at], X, allowed)
        out = attended(X, log_s.exp(), None if weights.V is None else weights.V[:, at])
        mixed, rows = through_layer(model, weights, at, X, out)
        yield X, log_s, mixed, rows
        X = rows


def through_layer(
    model: Transformer, weights: Weights, at: int, X: Tensor, out: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the rows before and after the MLP of layer `at`, from its input X and attention."""
    rows = mixed = (X + out) / math.sqrt(2) if model.residual else out
    if weights.M1 is not None and weights.M2 is not None:
        hidden = torch.einsum("bitd,bdw->bitw", mixed, weights.M1[:, at]).relu()
        expanded = torch.einsum("bitw,bwd->bitd", hidden, weights.M2[:, at])
        rows = (mixed + expanded) / math.sqrt(2)
    return mixed, rows


def row_differences(
    model: Transformer, weights: Weights, at: int, layer: Layer, pairs: Scaled | None, X: Tensor
) -> Scaled:
    """Return the differences x_p - x_q of the rows X after layer `at`, shape (B, n, T, T, d).

    Where the rows of a sequence are far apart they are subtracted; else see `differences`.
    """
    plain = X.unsqueeze(-2) - X.unsqueeze(-3)
    itself = torch.eye(X.shape[2], dtype=torch.bool, device=X.device)
    size = plain.abs().amax(-1).masked_fill(itself, torch.inf)
    near = ~(size.amin((-2, -1)) >= FAR * X.abs().amax((-2, -1)))
    found = Scaled(plain, torch.zeros_like(plain[..., 0])).normalized()
    b, i = near.nonzero(as_tuple=True)
    if len(b) == 0:
        return found
    one = Layer(
        layer.X[b, i][:, None],
        layer.log_s[b, :, i].unsqueeze(2),
        Scaled(layer.away.value[b, :, i].unsqueeze(2), layer.away.exponent[b, :, i].unsqueeze(2)),
        layer.mixed[b, i][:, None],
    )
    known = None if pairs is None else Scaled(pairs.value[b, i, None], pairs.exponent[b, i, None])
    exact = differences(model, weights.at(b), at, one, known)
    where = b, i
    found.value.index_put_(where, exact.value[:, 0])
    found.exponent.index_put_(where, exact.exponent[:, 0])
    return found


def log_softmax(W: Tensor, X: Tensor, allowed: Tensor) -> Tensor:
    """Return log s^h_kt, shape (B, H, n, T, T), of the weights W (B, H, d, d)."""
    U = torch.einsum("bhde,bike->bhikd", W, X)
    logits = torch.einsum("bitd,bhikd->bhikt", X, U)
    return log_attention(logits.masked_fill(~allowed, -torch.inf))


def attended(X: Tensor, s: Tensor, V: Tensor | None) -> Tensor:
    """Return o_k, shape (B, n, T, d), of the attention s (B, H, n, T, T)."""
    means = torch.einsum("bhikt,bitd->bhikd", s, X)
    if V is not None:
        means = torch.einsum("bhde,bhikd->bhike", V, means)
    return means.sum(1) / math.sqrt(s.shape[1])


def from_top(X: Tensor, pairs: Scaled | None, log_s: Tensor) -> Scaled:
    """Return x_t - x_top of each row (b, h, i, k), shape (B, H, n, T, T, d)."""
    B, H, n, T, _ = log_s.shape
    top = log_s.argmax(-1)
    if pairs is None:
        there = top[..., None].expand(B, H, n, T, X.shape[-1])
        x_top = X[:, None].expand(B, H, *X.shape[1:]).gather(3, there)
        D = X[:, None, :, None] - x_top.unsqueeze(-2)
        return Scaled(D, torch.zeros_like(D[..., 0])).normalized()
    b = torch.arange(B, device=X.device)[:, None, None, None, None]
    i = torch.arange(n, device=X.device)[None, None, :, None, None]
    t = torch.arange(T, device=X.device)
    where = b, i, t, top[..., None]
    return Scaled(pairs.value[where], pairs.exponent[where])


def differences(
    model: Transformer, weights: Weights, at: int, layer: Layer, pairs: Scaled | None
) -> Scaled:
    """Return the differences y_p - y_q of the rows after layer `at`, shape (B, n, T, T, d).

    `pairs` are the differences of its input rows; None: the input is as drawn, without copies.
    """
    if pairs is None:
        D = layer.X.unsqueeze(-2) - layer.X.unsqueeze(-3)
        pairs = Scaled(D, torch.zeros_like(D[..., 0])).normalized()
    W, V = weights.W[:, at], None if weights.V is None else weights.V[:, at]
    if not model.residual:
        rows = _attended_differences(W, V, layer, pairs)
    elif model.heads > 1:
        rows = added(pairs, _attended_differences(W, V, layer, pairs))
    else:
        means = _attended_differences(W, None, layer, pairs)
        rows = _with_swaps(added(pairs, means), layer, pairs)
        if V is not None:  # x + V^T m = (I - V)^T x + V^T (x + m)
            rest = torch.eye(V.shape[-1], dtype=V.dtype, device=V.device) - V[:, 0]
            rows = added(_times(rest, pairs), _times(V[:, 0], rows))
    if model.residual:
        rows = rows.times(-0.5 * math.log(2))
    if weights.M1 is None or weights.M2 is None:
        return rows
    return _through_mlp(weights.M1[:, at], weights.M2[:, at], layer.mixed, rows)


def _times(V: Tensor, rows: Scaled) -> Scaled:
    """Return V^T times the vectors (B, n, T, T, d), of V (B, d, d)."""
    moved = torch.einsum("bde,bipqd->bipqe", V, rows.value)
    return Scaled(moved, rows.exponent).normalized()


def _attended_differences(W: Tensor, V: Tensor | None, layer: Layer, pairs: Scaled) -> Scaled:
    """Return o_p - o_q, shape (B, n, T, T, d).

    With r the largest attention of row p, sum_j (s_pj - s_qj) (x_j - x_r) is summed; the change of
    log s_j from row q to p is that of the centred logits, (x_j - x_r)^T W (x_p - x_q), less
    their log-mean-exp.
    """
    log_s, away = layer.log_s, layer.away
    U = torch.einsum("bhde,bipqe->bhipqd", W, pairs.value)
    change = torch.einsum("bhipjd,bhipqd->bhipqj", away.value, U)
    exponent = away.exponent.unsqueeze(-2) + pairs.exponent[:, None, ..., None]
    value, log_size = _changes(change, exponent, log_s.unsqueeze(-2), log_s.unsqueeze(-3))
    terms = Scaled(
        value.unsqueeze(-1) * away.value.unsqueeze(-3), log_size + away.exponent.unsqueeze(-2)
    )
    means = total(terms, -1)
    if V is not None:
        moved = torch.einsum("bhde,bhipqd->bhipqe", V, means.value)
        means = Scaled(moved, means.exponent).normalized()
    summed = total(Scaled(means.value.movedim(1, -2), means.exponent.movedim(1, -1)), -1)
    return summed.times(-0.5 * math.log(log_s.shape[1]))


def _with_swaps(rows: Scaled, layer: Layer, pairs: Scaled) -> Scaled:
    """Return the sums x_p - x_q + o_p - o_q, given as `rows`, exact also where p and q swap.

    Where p attends to q and q to p, x_p - x_q and o_p - o_q cancel. With r_p the largest attention
    of row p, the sum is (x_p - x_{r_q}) + (x_{r_p} - x_q) + a_p - a_q, a_p = sum_j s_pj (x_j -
    x_{r_p}), whose first two terms are then zero, or tiny for copies.
    """
    B, _, n, T, _ = layer.log_s.shape
    top = layer.log_s[:, 0].argmax(-1)
    b = torch.arange(B, device=top.device)[:, None, None, None]
    i = torch.arange(n, device=top.device)[None, :, None, None]
    row = torch.arange(T, device=top.device)
    first = b, i, row[:, None], top[..., None, :]
    second = b, i, top[..., :, None], row
    crossed = [Scaled(pairs.value[at], pairs.exponent[at]) for at in (first, second)]
    rest = total(Scaled(layer.away.value, layer.log_s + layer.away.exponent), -1)
    value, exponent = rest.value[:, 0], rest.exponent[:, 0]
    a_p = Scaled(value.unsqueeze(-2).expand_as(rows.value), exponent.unsqueeze(-1))
    a_q = Scaled(-value.unsqueeze(-3).expand_as(rows.value), exponent.unsqueeze(-2))
    exact = added(*crossed, a_p, a_q)
    size = torch.maximum(crossed[0].exponent, crossed[1].exponent)
    swapped = size < pairs.exponent - 1
    return Scaled(
        torch.where(swapped.unsqueeze(-1), exact.value, rows.value),
        torch.where(swapped, exact.exponent, rows.exponent),
    )


def _changes(
    change: Tensor, exponent: Tensor, ours: Tensor, theirs: Tensor
) -> tuple[Tensor, Tensor]:
    """Return value and exponent of s_pj - s_qj, shape (B, H, n, T, T, T).

    Parameters
    ----------
    change, exponent : Tensor
        Change of the centred logits from q to p, as v e^c.
    ours, theirs : Tensor
        log s_pj and log s_qj; -inf where j is not admissible for that row.
    """
    gained, lost = (theirs == -torch.inf) & (ours > -torch.inf), ours == -torch.inf
    apart = gained | lost
    sign = torch.where(gained, 1.0, -1.0)
    alone = torch.where(gained, ours, theirs)  # log |s_pj - s_qj| where only one of them is not 0
    x = torch.where(apart | (exponent == -torch.inf), 0.0, change * exponent.exp())
    rises = torch.where(x > 0, (theirs + x).exp() * -torch.expm1(-x), theirs.exp() * x.expm1())
    new = (ours.exp() * gained).sum(-1, keepdim=True)
    kept = ours.exp().masked_fill(gained, 0.0).sum(-1, keepdim=True)
    shrink = rises.masked_fill(gained, 0.0) - theirs.exp() * lost
    log_mass = torch.log1p(shrink.sum(-1, keepdim=True))
    log_mass = log_mass - torch.where(new < 0.5, torch.log1p(-new), kept.log())
    moved = x - log_mass
    larger = torch.maximum(ours, theirs)
    larger = torch.where(larger == -torch.inf, 0.0, larger)
    far = (ours - larger).exp() - (theirs - larger).exp()
    near = (moved.abs() < 1) & (log_mass.abs() < 1)  # else the sum in it cancels, and is not needed
    value = torch.where(near, torch.expm1(moved.clamp(max=1)), far)
    log_size = torch.where(near, theirs, larger)
    # first order, where the changes themselves may underflow
    terms = torch.where(apart, sign, change), torch.where(apart, alone, theirs + exponent)
    mean = total(Scaled(terms[0].unsqueeze(-1), terms[1].expand_as(change)), -1)
    largest = torch.maximum(exponent, mean.exponent.unsqueeze(-1))
    first = change * relative(exponent, largest)
    first = first - mean.value * relative(mean.exponent.unsqueeze(-1), largest)
    small = torch.where(apart, alone.exp(), x.abs()).amax(-1, keepdim=True) < SMALLEST
    value = torch.where(small, first, value)
    log_size = torch.where(small, theirs + largest, log_size)
    value, log_size = torch.where(apart, sign, value), torch.where(apart, alone, log_size)
    nothing = (value == 0) | ((ours == -torch.inf) & (theirs == -torch.inf))
    return torch.where(nothing, 0.0, value), torch.where(nothing, -torch.inf, log_size)


def _through_mlp(M1: Tensor, M2: Tensor, mixed: Tensor, pairs: Scaled) -> Scaled:
    """Return the differences of the rows after the MLP, from those before it."""
    a = torch.einsum("bitd,bdw->bitw", mixed, M1)
    p, q = a.unsqueeze(-2), a.unsqueeze(-3)
    rise = torch.einsum("bipqd,bdw->bipqw", pairs.value, M1)
    far = (pairs.exponent > NEAR_COPIES).unsqueeze(-1)
    scale = pairs.exponent.clamp(min=NEAR_COPIES).unsqueeze(-1)
    crossed = torch.where(far, (p.relu() - q.relu()) * (-scale).exp(), rise * (p > 0))
    hidden = torch.where((p > 0) & (q > 0), rise, torch.where((p <= 0) & (q <= 0), 0.0, crossed))
    value = (pairs.value + torch.einsum("bipqw,bwd->bipqd", hidden, M2)) / math.sqrt(2)
    return Scaled(value, pairs.exponent).normalized()
