"""`heads_of`: the attention of any torch module, caught while it runs."""

import inspect
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from attnsvm.config import ConfigError
from attnsvm.data.pretrained.layer import AttentionLayer

MAPS = (("k_proj", "q_proj"), ("k_lin", "q_lin"), ("key", "query"), ("c_attn",))
"""Names of the maps to keys and queries in common libraries; c_attn has queries, keys, values."""

SOFTMAX = (torch.ops.aten._softmax.default, torch.ops.aten._safe_softmax.default)

ROUNDING = 8.0
"""Largest error of a logit in units of eps, float32 at least, and of the sizes of its terms."""

Layers = dict[str, AttentionLayer]


def heads_of(module: nn.Module, *inputs: Any, **options: Any) -> Layers:
    """Run a module and return every attention layer in it, by its name in the module.

    Parameters
    ----------
    module : torch.nn.Module
        The module, or one that contains attention: `torch.nn.MultiheadAttention`, or modules with
        linear children `q_proj` and `k_proj`, `q_lin` and `k_lin`, `query` and `key`, or `c_attn`.
    *inputs, **options
        What it is called with; sequences of one length.

    Returns
    -------
    dict of str to AttentionLayer
        In the order in which they ran; "" is the module itself. Masks are read off the attention.

    Raises
    ------
    ConfigError
        If the module has no such attention, a layer runs more than once, or no softmax that it
        computes is that of [x; 1]^T K^T Q [z; 1], with or without the factor m^-1/2: with rotary or
        relative positions, norms of queries and keys, or other masks for some heads.
    """
    layers: Layers = {}
    softmaxes = _Softmaxes()
    handles: list[Any] = []
    fast = torch.backends.mha.get_fastpath_enabled()
    try:
        for name, part in module.named_modules():
            if isinstance(part, nn.MultiheadAttention):
                catch: Any = partial(_catch_multihead, layers, softmaxes.results, name)
                handles.append(part.register_forward_hook(catch, with_kwargs=True))
            elif maps := _key_and_query_maps(part):
                rows: dict[int, Tensor] = {}
                for place, linear in enumerate(maps):
                    keep: Any = partial(_keep_rows, rows, place)
                    handles.append(linear.register_forward_pre_hook(keep, with_kwargs=True))
                catch = partial(_catch_maps, layers, softmaxes.results, name, maps, rows)
                handles.append(part.register_forward_hook(catch))
        torch.backends.mha.set_fastpath_enabled(False)  # it runs no hooks
        with torch.inference_mode(False), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), softmaxes:
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


class _Softmaxes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the results of every softmax in the block, also of torch's fused attention."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.results: list[Tensor] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation."""
        result = function(*args, **(kwargs or {}))
        if function in SOFTMAX:
            self.results.append(result)
        return result


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
    layers: Layers,
    softmaxes: list[Tensor],
    name: str,
    maps: Sequence[Any],
    rows: dict[int, Tensor],
    *_: Any,
) -> None:
    """Catch a module that has run."""
    if len(rows) == len(maps):
        weights = [x.weight if isinstance(x, nn.Linear) else x.weight.mT for x in maps]
        joined = [_with_bias(W, linear.bias) for W, linear in zip(weights, maps, strict=True)]
        K, Q = joined if len(joined) == 2 else joined[0].chunk(3)[1::-1]
        _add(layers, softmaxes, name, rows[0], rows[len(maps) - 1], K, Q)


def _catch_multihead(
    layers: Layers,
    softmaxes: list[Tensor],
    name: str,
    part: Any,
    inputs: Any,
    options: Any,
    _: Any,
) -> None:
    """Catch torch's module that has run."""
    arguments = inspect.signature(part.forward).bind(*inputs, **options).arguments
    weights = part.q_proj_weight, part.k_proj_weight
    if part.in_proj_weight is not None:
        weights = part.in_proj_weight.chunk(3)[:2]
    biases = (None, None) if part.in_proj_bias is None else part.in_proj_bias.chunk(3)[:2]
    Q, K = map(_with_bias, weights, biases)
    query, key = arguments["query"], arguments["key"]
    if query.ndim == 3 and not part.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    _add(layers, softmaxes, name, key, query, K, Q)


def _add(
    layers: Layers,
    softmaxes: list[Tensor],
    name: str,
    X: Tensor,
    Z: Tensor,
    K: Tensor,
    Q: Tensor,
) -> None:
    """Add the layer of these rows and maps whose attention one of the softmaxes is."""
    if name in layers:
        raise ConfigError(f"{name}: runs more than once; must run once, as no layer that is shared")
    X, Z = (rows[None] if rows.ndim == 2 else rows for rows in (X, Z))
    if len(K) != len(Q) or X.ndim != 3 or Z.ndim != 3:
        shapes = f"{len(K)} and {len(Q)} rows of the maps, rows of shape {tuple(X.shape)}"
        raise ConfigError(f"{name}: {shapes}; must have as many keys as queries, and (N, T, d)")
    eps = max(torch.finfo(K.dtype).eps, 2.0**-23)
    arrays = [A.detach().double().cpu() for A in (X, Z, K, Q)]
    shape = len(X), -1, Z.shape[1], X.shape[1]
    fits = [
        s for s in softmaxes if s.ndim > 2 and s.numel() % (shape[0] * shape[2] * shape[3]) == 0
    ]
    softmaxes.clear()
    errors = [math.inf]
    for softmax in fits:
        attention = softmax.detach().reshape(shape)
        if len(Q) % (heads := attention.shape[1]) == 0:
            for factor in (1.0, math.sqrt(len(Q) / heads)):
                layer, error = _layer(name, arrays, heads, factor, attention, eps)
                if error <= 1:
                    layers[name] = layer
                    return
                errors.append(error)
    raise ConfigError(
        f"{name}: its attention is not the softmax of [x; 1]^T W [z; 1] ({min(errors):.0e} times "
        "what rounding explains); must be without rotary or relative positions, norms of queries "
        "and keys, caps, other masks for some heads, and (N, H, S, T)"
    )


def _layer(
    name: str, arrays: list[Tensor], heads: int, factor: float, attention: Tensor, eps: float
) -> tuple[AttentionLayer, float]:
    """Return the layer that sees what this attention sees, and its error in units of rounding."""
    floor = math.log(torch.finfo(attention.dtype).tiny)
    expected = attention.double().cpu().log().clamp(min=floor)
    seen = (expected > floor).any(1, keepdim=True)
    X, Z, K, Q = arrays
    K, Q = K.reshape(heads, -1, K.shape[1]), Q.reshape(heads, -1, Q.shape[1]) * factor
    layer = AttentionLayer(X, Z, K, Q, seen[:, 0])
    logits = layer.logits()
    sizes = AttentionLayer(X.abs(), Z.abs(), K.abs(), Q.abs(), layer.mask)
    shift = logits.masked_fill(~seen, -torch.inf).logsumexp(-1, keepdim=True)
    error = ((logits - shift).clamp(min=floor) - expected).masked_fill(~seen, 0.0).abs().amax()
    units = float(error / (ROUNDING * eps * (1 + sizes.logits().amax())))
    if not seen.any(-1).all() or math.isnan(units):
        return layer, math.inf
    if units <= 1 and ((logits - shift < floor).all(1, keepdim=True) & ~seen).any():
        must = "must be float64, so that only masked tokens have none: module.double()"
        raise ConfigError(f"{name}: its attention underflows; {must}")
    return layer, units


def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a linear map x -> weight x + bias, weight (H m, d), as (H m, d + 1)."""
    column = weight.new_zeros(len(weight), 1) if bias is None else bias[:, None]
    return torch.cat([weight, column], 1)
