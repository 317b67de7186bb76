"""`heads_of`: the attention of any torch module, caught by hooks while it runs."""

import inspect
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnsvm.config import ConfigError
from attnsvm.data.pretrained.layer import AttentionLayer

MAPS = (("k_proj", "q_proj"), ("k_lin", "q_lin"), ("key", "query"), ("c_attn",))
"""Names of the maps to keys and queries in common libraries; c_attn has queries, keys, values."""

TOLERANCE = 64 * 2.0**-23
"""Largest error of the logarithm of attention, relative to the logits: rounding of float32."""

Layers = dict[str, AttentionLayer]


def heads_of(module: nn.Module, *inputs: Any, **options: Any) -> Layers:
    """Run a module and return every attention layer in it, by its name in the module.

    Parameters
    ----------
    module : torch.nn.Module
        The module, or one that contains attention: `torch.nn.MultiheadAttention`, or modules with
        linear children `q_proj` and `k_proj`, `q_lin` and `k_lin`, `query` and `key`, or `c_attn`,
        which return their attention (N, H, S, T), as those of transformers with
        `attn_implementation="eager"`.
    *inputs, **options
        What it is called with; sequences of one length.

    Returns
    -------
    dict of str to AttentionLayer
        In the order in which they ran; "" is the module itself. Masks are read off the attention.

    Raises
    ------
    ConfigError
        If the module has no such attention, a layer runs more than once, or its attention is not
        the softmax of [x; 1]^T K^T Q [z; 1], with or without the factor m^-1/2: with rotary or
        relative positions, norms of queries and keys, dropout, or half precision.
    """
    layers: Layers = {}
    handles: list[Any] = []
    fast = torch.backends.mha.get_fastpath_enabled()
    try:
        for name, part in module.named_modules():
            if isinstance(part, nn.MultiheadAttention):
                hook: Any = partial(_catch_multihead, layers, name)
                handles.append(part.register_forward_hook(hook, with_kwargs=True))
            elif maps := _key_and_query_maps(part):
                rows: dict[int, Tensor] = {}
                for place, linear in enumerate(maps):
                    keep: Any = partial(_keep_rows, rows, place)
                    handles.append(linear.register_forward_pre_hook(keep, with_kwargs=True))
                hook = partial(_catch_maps, layers, name, maps, rows)
                handles.append(part.register_forward_hook(hook))
        torch.backends.mha.set_fastpath_enabled(False)  # it runs no hooks
        with torch.no_grad():
            module(*inputs, **options)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for handle in handles:
            handle.remove()
    if not layers:
        raise ConfigError(
            f"module={type(module).__name__}: must contain torch.nn.MultiheadAttention, or linear "
            "children q_proj and k_proj, key and query, or c_attn, and run them; "
            "a joint map, as qkv, must be split as docs/pretrained.md shows"
        )
    return layers


def _key_and_query_maps(part: nn.Module) -> list[Any]:
    """Return the children that give keys and queries, or both; none if there are none."""
    for names in MAPS:
        maps = [getattr(part, name, None) for name in names]
        joint = len(names) == 1 and type(maps[0]).__name__ == "Conv1D"  # of transformers
        if joint or all(isinstance(linear, nn.Linear) for linear in maps):
            return maps
    return []


def _keep_rows(rows: dict[int, Tensor], place: int, _: Any, inputs: Any, options: Any) -> None:
    rows[place] = (*inputs, *options.values())[0]


def _catch_maps(
    layers: Layers, name: str, maps: list[Any], rows: dict[int, Tensor], *call: Any
) -> None:
    """Catch a module that has run; it returns its attention."""
    output = call[-1] if isinstance(call[-1], tuple) else call[-1:]
    attention = [part for part in output if isinstance(part, Tensor) and part.ndim == 4]
    if not attention or len(rows) < len(maps):
        must = "must return its attention (N, H, S, T), as with attn_implementation='eager'"
        raise ConfigError(f"{name}: {must}")
    weights = [x.weight if isinstance(x, nn.Linear) else x.weight.mT for x in maps]
    joined = [_with_bias(W, linear.bias) for W, linear in zip(weights, maps, strict=True)]
    K, Q = joined if len(joined) == 2 else joined[0].chunk(3)[1::-1]
    _add(layers, name, (rows[0], rows[len(maps) - 1]), (K, Q), attention[0])


def _catch_multihead(
    layers: Layers, name: str, part: Any, inputs: Any, options: Any, _: Any
) -> None:
    """Catch torch's module, which is run again for its attention."""
    given = inspect.signature(part.forward).bind(*inputs, **options).arguments
    attention = part.forward(**given | {"need_weights": True, "average_attn_weights": False})[1]
    weights = part.q_proj_weight, part.k_proj_weight
    if part.in_proj_weight is not None:
        weights = part.in_proj_weight.chunk(3)[:2]
    biases = (None, None) if part.in_proj_bias is None else part.in_proj_bias.chunk(3)[:2]
    Q, K = map(_with_bias, weights, biases)
    query, key = given["query"], given["key"]
    if query.ndim == 2:
        query, key, attention = query[None], key[None], attention[None]
    elif not part.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    _add(layers, name, (key, query), (K, Q), attention)


def _add(
    layers: Layers,
    name: str,
    rows: tuple[Tensor, Tensor],
    maps: tuple[Tensor, Tensor],
    attention: Tensor,
) -> None:
    """Add the layer of rows (X, Z) and maps (K, Q) if it has this attention (N, H, S, T)."""
    if name in layers:
        raise ConfigError(f"{name}: runs more than once; must run once, as no layer that is shared")
    floor = math.log(torch.finfo(attention.dtype).tiny)
    X, Z, K, Q, attention = (A.detach().double().cpu() for A in (*rows, *maps, attention))
    heads = attention.shape[1]
    if X.ndim != 3 or (len(X), heads, Z.shape[1], X.shape[1]) != attention.shape:
        shapes = f"rows {tuple(X.shape)}, attention {tuple(attention.shape)}"
        raise ConfigError(f"{name}: {shapes}; must be (N, T, d) and (N, H, S, T)")
    if len(K) != len(Q) or len(Q) % heads:
        raise ConfigError(f"{name}: must have as many keys as queries for each of {heads} heads")
    m, seen = len(Q) // heads, (attention > 0).any(1, keepdim=True)
    K, Q = K.reshape(heads, m, -1), Q.reshape(heads, m, -1)
    expected, errors = attention.log().clamp(min=floor), []
    for factor in (1.0, math.sqrt(m)):
        layer = AttentionLayer(X, Z, K, Q * factor, seen[:, 0])
        logits = layer.logits()
        shift = logits.masked_fill(~seen, -torch.inf).logsumexp(-1, keepdim=True)
        error = ((logits - shift).clamp(min=floor) - expected).masked_fill(~seen, 0.0).abs().amax()
        errors.append(float(error / (1 + logits.abs().amax())))
        if errors[-1] <= TOLERANCE and seen.any(-1).all():
            if ((logits - shift < floor).all(1, keepdim=True) & ~seen).any():
                must = "must be float64, so that only masked tokens have none: module.double()"
                raise ConfigError(f"{name}: its attention underflows; {must}")
            layers[name] = layer
            return
    raise ConfigError(
        f"{name}: its attention is not the softmax of [x; 1]^T W [z; 1], by {min(errors):.0e} of "
        "the logits; must be without rotary or relative positions, norms of queries and keys, "
        "dropout, and half precision"
    )


def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a linear map x -> weight x + bias, weight (H m, d), as (H m, d + 1)."""
    column = weight.new_zeros(len(weight), 1) if bias is None else bias[:, None]
    return torch.cat([weight, column], 1)
