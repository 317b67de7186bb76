"""Attention and softmax for torch models, with a backward pass that does not cancel.

Of o = sum_t s_t v_t and r = dL/do, the gradient in logit t is q_t = s_t (g_t - sum_u s_u g_u) with
g_t = <r, v_t>, and the usual backward pass computes it so. At the token `top` of largest attention
both terms agree to all their digits once s_top is 1 in floating point. Relative to `top`,

    q_t = s_t (rise_t - sum_u s_u rise_u),    rise_t = <r, v_t - v_top>,

nothing cancels: the term of `top` is zero, and the others enter with their own small attention.
"""

import math
import sys
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnsvm.linalg import check_plain

CLOSE = 2.0**-12
"""A difference below this share of its terms, 12 bits, is computed anew from v_t - v_top."""

NARROW = 2.0**-50
"""Entries of a row below this share of its largest are too small for float32 beside it."""

PAIRS = 2**16
"""Number of v_t - v_top held at once: 16 MiB with 64 float32 each."""


def logit_gradient(softmax: Tensor, rise: Tensor) -> Tensor:
    """Return q of softmax and rises, shapes (..., T)."""
    return softmax * (rise - (softmax * rise).sum(-1, keepdim=True))


class _SoftmaxExact(torch.autograd.Function):
    """softmax over the last axis, whose gradient does not cancel."""

    @staticmethod
    def forward(context: Any, logits: Tensor) -> Tensor:
        """Return s."""
        softmax = logits.softmax(-1)
        context.save_for_backward(softmax)
        return softmax

    @staticmethod
    def backward(context: Any, *above: Tensor) -> Tensor:
        """Return the gradient in the logits."""
        softmax: Tensor = context.saved_tensors[0]
        (g,) = above
        return logit_gradient(softmax, g - g.gather(-1, softmax.argmax(-1, keepdim=True)))


def softmax_exact(logits: Tensor) -> Tensor:
    """Return softmax(logits) over the last axis, with a gradient that is exact where it saturates.

    The relative error is that of g_t - g_top, where g is the gradient in the result, until s_t
    underflows. In `attnsvm.nn.attention` g_t - g_top does not cancel either.

    Parameters
    ----------
    logits : Tensor
        Shape (..., T); -inf where a token is not admissible.

    Raises
    ------
    ValueError
        If the tensor is sparse, nested, quantized or of a subclass other than parameters.
    """
    check_plain("logits", logits)
    return _SoftmaxExact.apply(logits)  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    """Attention, whose gradient does not cancel."""

    @staticmethod
    def forward(context: Any, scale: float, *inputs: Tensor) -> Tensor:
        """Return o (..., L, Ev) of query, key, value and bias, in the dtype of the first three."""
        output = _output(*inputs[:3])
        dtype = torch.promote_types(output, torch.float32)
        with torch.autocast(inputs[0].device.type, enabled=False):
            Q, K, V, bias = (tensor.to(dtype) for tensor in inputs)
            softmax, top = softmax_of(Q, K, bias, scale)
            context.save_for_backward(*inputs, softmax, top)
            context.scale = scale
            return (softmax @ V).to(output)

    @staticmethod
    def backward(context: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients in query, key, value and bias."""
        if torch.is_grad_enabled():
            raise RuntimeError("attention has no second derivatives: create_graph must be False")
        *inputs, softmax, top = context.saved_tensors
        with torch.autocast(softmax.device.type, enabled=False):
            R, Q, K, V = (tensor.to(softmax.dtype) for tensor in (*above, *inputs[:3]))
            q = logit_gradient(softmax, rises(R, V, top))
            factor, half = _halved(context.scale)
            scaled, rest = q * 2.0**half, factor * 2.0**half  # q times a small scale may underflow
            parts = scaled @ K * rest, scaled.mT @ Q * rest, softmax.mT @ R, q
        gradients = zip(parts, inputs, context.needs_input_grad[1:], strict=True)
        return None, *(
            p.sum_to_size(x.shape).to(x.dtype) if need else None for p, x, need in gradients
        )


def softmax_of(Q: Tensor, K: Tensor, bias: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return softmax(scale Q K^T + bias), and the token of largest attention (..., L, 1).

    Each entry is exact relative to its own size. A logit of 1e4 in float64 is rounded by 1e-12, and
    so would be its attention; here only the distance to the largest logit of a row is rounded.
    """
    if Q.dtype == torch.float32 and not (_narrow(Q) and _narrow(K)):
        softmax, top = softmax_of(Q.double(), K.double(), bias.double(), scale)
        return softmax.to(Q.dtype), top
    queries, keys = Rows.of(Q), Rows.of(K)
    high = queries.whole @ keys.whole.mT
    low = queries.coarse @ keys.fine.mT + queries.fine @ (keys.coarse + keys.fine).mT
    factor, half = _halved(scale)
    root = (queries.root * 2.0**half) * keys.root.mT
    high, low = (x.mul_(root).mul_(root) for x in (high, low))  # root^2 may overflow where x is 0
    logits = (high + low) * factor + bias
    top = logits.argmax(-1, keepdim=True)
    parts = (part.expand_as(logits) for part in (high, low, bias))
    high, low, bias = (part - part.gather(-1, top) for part in parts)
    softmax = ((high + low) * factor + bias).softmax(-1)
    return softmax.masked_fill(logits.gather(-1, top) == -torch.inf, 0.0), top


class Rows(NamedTuple):
    """Rows (..., E) as root^2 (coarse + fine), root (..., 1) a power of two.

    Products of coarse rows have no rounding errors: their entries are multiples of a unit, few
    enough for sums of E products (Ozaki et al., Numer. Algorithms 59, 2012). The largest entries of
    coarse are near one, so that products neither overflow nor underflow. A row that is not finite
    has zeros in coarse and fine, and is itself in `whole`, which is coarse elsewhere.
    """

    whole: Tensor
    coarse: Tensor
    fine: Tensor
    root: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> "Rows":
        """Return the parts of some rows."""
        numbers = torch.finfo(rows.dtype)
        largest = rows.abs().amax(-1, keepdim=True)
        finite, limit = largest.isfinite(), -math.log2(numbers.tiny) / 2
        half = (largest.log2() / 2).round().clamp(-limit, limit).masked_fill(~finite, 0.0)
        unit = rows.masked_fill(~finite, 0.0) * (-2 * half).exp2()
        shift = 4 * (rows.shape[-1] / numbers.eps) ** 0.5
        coarse = unit + shift - shift
        return cls(torch.where(finite, coarse, rows), coarse, unit - coarse, half.exp2())


def _narrow(rows: Tensor) -> bool:
    """Return whether products of all entries of each row neither overflow nor underflow."""
    sizes = rows.abs()
    sizes = sizes.masked_fill(~sizes.amax(-1, keepdim=True).isfinite(), 0.0)
    least = sizes.masked_fill(sizes == 0, torch.inf).amin(-1)
    return bool((least >= NARROW * sizes.amax(-1)).all())


def _halved(scale: float) -> tuple[float, int]:
    """Return a factor near one and h with scale = factor 4^h."""
    half = math.frexp(scale)[1] // 2
    return scale / 2.0**half / 2.0**half, half


def rises(above: Tensor, value: Tensor, top: Tensor) -> Tensor:
    """Return <r_i, v_t - v_top(i)>, shape (..., L, S), exact also where values nearly agree.

    `above` has the r (..., L, Ev), `value` the v (..., S, Ev); `top` has shape (..., L, 1).
    """
    g = above @ value.mT
    top = top.expand(*g.shape[:-1], 1)
    rise = g - g.gather(-1, top)
    largest = value.abs().amax(-1).unsqueeze(-2).expand_as(g)  # a norm would underflow
    terms = above.abs().sum(-1, keepdim=True) * (largest + largest.gather(-1, top))
    close = (rise.abs() < CLOSE * terms).scatter(-1, top, False)
    value = value.expand(*g.shape[:-2], *value.shape[-2:])
    for pairs in torch.split(close.nonzero(), PAIRS):
        *batch, i, t = pairs.unbind(-1)
        difference = value[(*batch, t)] - value[(*batch, top[(*batch, i)].squeeze(-1))]
        rise[(*batch, i, t)] = (above[(*batch, i)] * difference).sum(-1)
    return rise


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return softmax(scale Q K^T + mask) V, with a gradient that is exact where it saturates.

    Shape (..., L, Ev). For use in place of `torch.nn.functional.scaled_dot_product_attention`.
    The dtype is that of query, key and value. If they differ, it is the one that holds all, but
    under autocast that of autocast unless one of them is float64.
    Relative errors of gradients are a few hundred eps, until they underflow, while
    scale sum_i abs(q_i k_i) is at most 1e6 in float32 and 1e10 in float64: eps of float64 if an
    argument is, otherwise of float32; and the rounding of results to the dtype of the arguments.
    In float64 entries below 1e-150 times the largest of their row count as zero.
    Keys that agree to n digits cost n digits of the gradient in the queries. The attention
    (..., L, S) is kept for the backward pass. There are no second derivatives.

    Parameters
    ----------
    query, key, value : Tensor
        Shapes (..., L, E), (..., S, E) and (..., S, Ev), whose leading axes broadcast.
    attn_mask : Tensor, optional
        Shape (..., L, S): True where a query may attend to a key, or numbers to add to the logits;
        or a `torch.nn.attention.bias.CausalBias`. A query without a key gets zeros.
    dropout_p : float
        Must be 0.
    is_causal : bool
        Whether query i attends to keys t <= i only; without `attn_mask`.
    scale : float, optional
        By default 1 / sqrt(E).

    Raises
    ------
    ValueError
        If a shape, a dtype or dropout_p is not as above, or a tensor is sparse, nested, quantized
        or of a subclass other than parameters and CausalBias.
    """
    biases = sys.modules.get("torch.nn.attention.bias")  # its import takes a second
    if biases is not None and isinstance(attn_mask, biases.CausalBias):
        L, S = attn_mask.seq_len_q, attn_mask.seq_len_kv
        last = S - L if attn_mask.variant is biases.CausalVariant.LOWER_RIGHT else 0
        attn_mask = query.new_ones(L, S, dtype=torch.bool).tril(last)
    named = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    tensors = [tensor for tensor in named.values() if tensor is not None]
    for name, tensor in zip(named, tensors, strict=False):
        check_plain(name, tensor)
    if dropout_p or (is_causal and attn_mask is not None):
        must = "dropout_p must be 0, and attn_mask None where is_causal is True"
        raise ValueError(f"dropout_p={dropout_p}, is_causal={is_causal}: {must}")
    if not _fit(*tensors):
        shapes = ", ".join(f"{x.dtype} {tuple(x.shape)}" for x in tensors)
        must = "floating point (..., L, E), (..., S, E), (..., S, Ev), or bool (..., L, S)"
        raise ValueError(f"query, key, value, attn_mask: {shapes}; must be {must}; E, Ev, S > 0")
    mask = query.new_zeros(1, 1) if attn_mask is None else attn_mask
    if is_causal:
        mask = query.new_ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    bias = torch.where(mask, 0.0, -torch.inf) if mask.dtype == torch.bool else mask
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return _Attention.apply(scale, query, key, value, bias)  # type: ignore[no-untyped-call]


def _output(*inputs: Tensor) -> torch.dtype:
    """Return the dtype of the result of query, key and value."""
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in inputs))
    device, mixed = inputs[0].device.type, len({tensor.dtype for tensor in inputs}) > 1
    if mixed and dtype != torch.float64 and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return dtype


def _fit(query: Tensor, key: Tensor, value: Tensor, *masks: Tensor) -> bool:
    """Return whether dtypes and shapes are those of attention."""
    numbers = query, key, value, *(mask for mask in masks if mask.dtype != torch.bool)
    try:
        (*left, L, E), (*middle, S, width), (*right, count, _) = query.shape, key.shape, value.shape
        logits = *np.broadcast_shapes(left, middle, right), L, S
        whole = np.broadcast_shapes(logits, *(mask.shape for mask in masks))
    except ValueError:
        return False
    same = (width, count, whole) == (E, S, logits) and S * E * value.shape[-1] > 0
    return same and all(tensor.is_floating_point() for tensor in numbers)
