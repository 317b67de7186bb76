"""`heads_of`: the attention of any torch module, caught while it runs."""

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._python_dispatch import TorchDispatchMode

from attnsvm.config import ConfigError
from attnsvm.data.pretrained.layer import AttentionLayer

MAPS = (("k_proj", "q_proj"), ("k_lin", "q_lin"), ("key", "query"), ("c_attn",))
"""Names of the maps to keys and queries in common libraries; c_attn has queries, keys, values."""

SOFTMAX = (torch.ops.aten._softmax.default, torch.ops.aten._safe_softmax.default)

ROUNDING = 8.0
"""Largest error of a logit in units of eps, float32 at least, and of the sizes of its terms."""

SEEN = 2.0**-5
"""Largest error of a logit with which another attention would still be seen."""


def heads_of(module: nn.Module, *inputs: Any, **options: Any) -> dict[str, AttentionLayer]:
    """Run a module and return every attention layer in it, by its name in the module.

    Layers are in the order in which they ran; "" is the module itself. Masks are read off the
    attention. `inputs` and `options` are what the module is called with, sequences of one length.
    It contains `torch.nn.MultiheadAttention`, or modules with linear children `q_proj` and
    `k_proj`, `q_lin` and `k_lin`, `query` and `key`, or `c_attn`.

    Raises
    ------
    ConfigError
        If the module has no such attention, a layer runs more than once, or no softmax that it
        computes is that of [x; 1]^T K^T Q [z; 1], with or without the factor m^-1/2: with rotary or
        relative positions, norms of queries and keys, or other masks for some heads.
    """
    names = {part: name for name, part in module.named_modules()}
    rows, layers = dict[nn.Module, Tensor](), dict[str, AttentionLayer]()
    softmaxes = _Softmaxes()

    def see(part: nn.Module, inputs: Any, options: Any, outputs: Any) -> None:
        for first in (*inputs, *options.values())[:1]:
            rows[part] = first
        maps = _key_and_query_maps(part)
        multihead = isinstance(part, nn.MultiheadAttention)
        if part not in names or not (multihead or (maps and all(x in rows for x in maps))):
            return
        if (name := names[part]) in layers:
            raise ConfigError(f"{name}: runs more than once; must run once, as no layer is shared")
        named = dict(zip(("query", "key"), inputs, strict=False)) | options
        seen = _of_multihead(part, **named) if multihead else _of_children(maps, rows)
        returned = outputs[1:] if isinstance(outputs, tuple) else ()
        layers[name] = _of_softmax(name, softmaxes.results, returned, *seen)
        softmaxes.results.clear()

    fast = torch.backends.mha.get_fastpath_enabled()
    hook = register_module_forward_hook(see, with_kwargs=True)
    try:
        torch.backends.mha.set_fastpath_enabled(False)  # it runs no hooks
        with torch.inference_mode(False), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), softmaxes:
            module(*inputs, **options)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        hook.remove()
    if not layers:
        raise ConfigError(
            f"module={type(module).__name__}: must contain torch.nn.MultiheadAttention, or linear "
            "children q_proj and k_proj, key and query, or c_attn, and run them; "
            "a joint map, as qkv, must be split as docs/findings/pretrained.md shows"
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
        if all(isinstance(x, nn.Linear) or type(x).__name__ == "Conv1D" for x in maps):
            return maps
    return []


def _of_children(maps: list[Any], rows: dict[nn.Module, Tensor]) -> tuple[Tensor, ...]:
    """Return rows X of the keys, Z of the queries, and the maps K and Q with their biases."""
    weights: Any = [x.weight if isinstance(x, nn.Linear) else x.weight.mT for x in maps]
    biases: Any = [linear.bias for linear in maps]
    if len(maps) == 1:
        weights, biases = _keys_and_queries(weights[0]), _keys_and_queries(biases[0])
    return rows[maps[0]], rows[maps[-1]], *map(_with_bias, weights, biases)


def _of_multihead(part: Any, query: Tensor, key: Tensor, **_: Any) -> tuple[Tensor, ...]:
    if query.ndim == 3 and not part.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    weights = _keys_and_queries(part.in_proj_weight)
    if part.in_proj_weight is None:
        weights = part.k_proj_weight, part.q_proj_weight
    return key, query, *map(_with_bias, weights, _keys_and_queries(part.in_proj_bias))


def _keys_and_queries(joint: Tensor | None) -> tuple[Any, ...]:
    """Return the parts of a map to queries, keys and values; None of a bias that is not there."""
    return (None, None) if joint is None else joint.chunk(3)[1::-1]


def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    column = weight.new_zeros(len(weight)) if bias is None else bias
    return torch.cat([weight, column[:, None]], 1)


def _of_softmax(
    name: str, softmaxes: list[Tensor], returned: Any, X: Tensor, Z: Tensor, K: Tensor, Q: Tensor
) -> AttentionLayer:
    """Return the layer of these rows and maps (H m, d + 1) whose attention is one of these.

    What the module returns beside its output, if of the shape of the softmax, must be the softmax.
    """
    eps = max(torch.finfo(K.dtype).eps, 2.0**-23)
    X, Z, K, Q = (A.detach().double().cpu() for A in (X, Z, K, Q))
    X, Z = (V[None] if V.ndim == 2 else V for V in (X, Z))
    if len(K) != len(Q) or X.ndim != 3 or Z.ndim != 3:
        shapes = f"{len(K)} and {len(Q)} rows of the maps, rows of shape {tuple(X.shape)}"
        raise ConfigError(f"{name}: {shapes}; must have as many keys as queries, and (N, T, d)")
    N, S, T = len(X), Z.shape[1], X.shape[1]
    for softmax, scaled in itertools.product(softmaxes, (False, True)):
        heads, rest = divmod(softmax.numel(), N * S * T)
        if rest or not heads or len(Q) % heads:
            continue
        floor = math.log(torch.finfo(softmax.dtype).tiny)
        expected = softmax.detach().reshape(N, heads, S, T).double().cpu().log().clamp(min=floor)
        seen = (expected > floor).any(1)
        keys, queries = (A.reshape(heads, -1, A.shape[1]) for A in (K, Q))
        layer = AttentionLayer(
            X, Z, keys, queries * (queries.shape[1] ** 0.5 if scaled else 1), seen
        )
        sizes = AttentionLayer(X.abs(), Z.abs(), keys.abs(), layer.Q.abs(), seen)
        rounding = ROUNDING * eps * (1 + sizes.logits().amax().item())
        error = (layer.log_attention().clamp(min=floor) - expected).abs().amax()
        if not error <= rounding:  # NaN where a query sees nothing
            continue
        logits = layer.logits()
        logs = logits - logits.masked_fill(~seen[:, None], -torch.inf).logsumexp(-1, keepdim=True)
        same_shape = [V for V in returned if getattr(V, "shape", None) == softmax.shape]
        refused = {
            "its attention underflows; must be float64, so that only masked tokens have none: "
            "module.double()": ((logs < floor).all(1) & ~seen).any(),
            f"rounding may move its logits by {rounding:.0e}; must be at most {SEEN}: "
            "module.float() or module.double()": rounding > SEEN,
            "the attention that it returns must be the softmax, without dropout and mixing of "
            "heads: module.eval()": not all(
                torch.allclose(V, softmax.to(V), 0, rounding) for V in same_shape
            ),
        }
        for what, holds in refused.items():
            if holds:
                raise ConfigError(f"{name}: {what}")
        return layer
    raise ConfigError(
        f"{name}: its attention is not the softmax of [x; 1]^T W [z; 1]; must be without rotary or "
        "relative positions, norms of queries and keys, caps, other masks for some heads, and "
        "(N, H, S, T)"
    )
