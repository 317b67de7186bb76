"""The attention of any torch module: queries and keys caught by hooks while it runs.

What they give is compared with the attention that the module computes.
"""

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from attnsvm.config import ConfigError
from attnsvm.data.pretrained.layer import AttentionLayer
from attnsvm.linalg import CPU

MAPS = (("k_proj", "q_proj"), ("key", "query"), ("c_attn",))
"""Names of the maps to keys and queries in modules of common libraries; c_attn is a joint one."""

COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
"""Names of the number of heads, in the module or in its `config`."""

MATH = (torch.ops.aten._softmax.default, torch.ops.aten._safe_softmax.default)
"""What computes attention where no kernel of torch fuses it with products."""

ROUNDING = 8.0
"""Largest difference of two logits, in units of eps and of the sum of the sizes of their terms."""


def heads_of(
    module: nn.Module, *inputs: Any, causal: bool = False, **options: Any
) -> dict[str, AttentionLayer]:
    """Run a module and return every attention layer in it, by its name in the module.

    Parameters
    ----------
    module : torch.nn.Module
        The module, or one that contains attention: `torch.nn.MultiheadAttention`, or modules with
        linear children `q_proj` and `k_proj`, or `query` and `key`, or `c_attn` as in GPT-2.
    *inputs, **options
        What it is called with; sequences of one length.
    causal : bool
        For modules other than MultiheadAttention, whose masks cannot be caught: whether a query
        attends to itself and earlier rows only.

    Returns
    -------
    dict of str to AttentionLayer
        In the order in which they ran; "" is the module itself.

    Raises
    ------
    ConfigError
        If the module has no such attention, a layer runs more than once, or the attention that it
        computes is not that of the maps to rounding, as with rotary or relative positions, norms of
        queries or keys, a factor other than m^-1/2, or masks other than `causal`.
    """
    given = {one.dtype for one in inputs if isinstance(one, Tensor) and one.is_floating_point()}
    kinds = [one.dtype for one in module.parameters()]
    if given.difference(kinds) and kinds:
        raise ConfigError(f"inputs: {given.pop()}; must be that of the module: ROWS.to({kinds[0]})")
    with torch.inference_mode(False), torch.no_grad(), caught(module, causal) as found:
        module(*inputs, **options)
    return found


@contextmanager
def caught(module: nn.Module, causal: bool) -> Iterator[dict[str, AttentionLayer]]:
    """Yield a dict that has the attention layers of a module by name, after it has run once.

    ConfigError unless the attention that each layer computes is that of its maps.
    """
    computed = _Computed(module)
    found = computed.layers
    handles: list[Any] = []
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it nests padded sequences, and hides attention
    try:
        for name, part in module.named_modules():
            if isinstance(part, nn.MultiheadAttention):
                catch = _catch_multihead(name, part, found)
                handles.append(part.register_forward_pre_hook(catch, with_kwargs=True))
            elif _maps(part):
                handles += _catch_maps(name, part, causal, found)
        with sdpa_kernel(SDPBackend.MATH), computed:
            yield found
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for handle in handles:
            handle.remove()
    if not found:
        raise ConfigError(
            f"module={type(module).__name__}: must contain torch.nn.MultiheadAttention, or linear "
            "children q_proj and k_proj, key and query, or c_attn, and run them; "
            "a joint map, as qkv, must be split as docs/pretrained.md shows"
        )
    computed.check()


class _Computed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The attention that runs in the block, compared with that of the layers caught before it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        kinds = {one.dtype for one in module.parameters() if one.is_floating_point()}
        self.eps = max((torch.finfo(kind).eps for kind in kinds), default=0.0)
        self.layers: dict[str, AttentionLayer] = {}
        self.differences: dict[str, float] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation; if it is a softmax, compare it."""
        result = function(*args, **(kwargs or {}))
        if function in MATH:
            for name, layer in self.layers.items():
                least = self.differences.get(name, math.inf)
                if least > 1 and result.numel() == layer.mask.numel() * layer.heads:
                    difference = _difference(layer, args[0], result, self.eps)
                    self.differences[name] = min(least, difference)
        return result

    def check(self) -> None:
        """Raise ConfigError if a layer has computed another attention than its maps give."""
        for name in self.layers:
            difference = self.differences.get(name)
            if difference is None:
                raise ConfigError(
                    f"{name}: must compute its attention by a softmax of (N, H, S, T)"
                )
            if not difference <= 1:
                raise ConfigError(
                    f"{name}: its attention is not that of its maps ({difference:.1e} times what "
                    "rounding explains); logits must be bilinear in the rows, with the factor "
                    "m^-1/2, without positions, norms, caps, and masked by `causal` alone"
                )


def _difference(layer: AttentionLayer, logits: Tensor, softmax: Tensor, eps: float) -> float:
    """Return by how much logits and attention differ from those of a layer, in units of rounding.

    Logits of a row may differ by a constant. Infinity where some are not finite.
    """
    shape, worst = (len(layer.mask), layer.heads, *layer.mask.shape[1:]), 0.0
    computed = logits.reshape(shape), softmax.reshape(shape)
    for n, allowed in enumerate(layer.mask):
        one = slice(n, n + 1)
        part = AttentionLayer(layer.X[one], layer.Z[one], layer.K, layer.Q, layer.mask[one])
        theirs, attention = (x[n].double().cpu() for x in computed)
        apart = (theirs - part.logits()[0]).masked_fill(~allowed, 0.0)
        apart -= apart.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True).clamp(min=1)
        off = attention - part.log_attention()[0].exp()
        X, Z, K, Q = (x.abs() for x in (part.X, part.Z, part.K, part.Q))
        sizes = AttentionLayer(X, Z, K, Q, part.mask)
        unit = eps * (1e-30 + ROUNDING * sizes.logits().amax())
        some = allowed.any(-1)  # without a key there is no attention
        for units in (apart.abs()[:, some] / unit, off.abs()[:, some] / (unit + 4 * eps)):
            worst = max(worst, *units.nan_to_num(math.inf, math.inf).flatten().tolist())
    return worst


def _catch_multihead(
    name: str, part: nn.MultiheadAttention, found: dict[str, AttentionLayer]
) -> Any:
    if part.bias_k is not None or part.add_zero_attn:
        raise ConfigError(f"{name}: must be without add_bias_kv and add_zero_attn: rows of its own")
    signature = inspect.signature(part.forward)

    def catch(module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        _check_once(name, name in found)
        given = signature.bind(*inputs, **options).arguments
        query, key = (_rows(name, given[one], part.batch_first) for one in ("query", "key"))
        weights: Any = part.q_proj_weight, part.k_proj_weight
        if part.in_proj_weight is not None:
            weights = part.in_proj_weight.chunk(3)[:2]
        biases = (None, None) if part.in_proj_bias is None else part.in_proj_bias.chunk(3)[:2]
        maps = map(_with_bias, weights, biases)
        Q, K = (one.reshape(part.num_heads, -1, one.shape[1]) for one in maps)
        found[name] = AttentionLayer(key, query, K, Q, _mask(name, given, query, key))

    return catch


def _mask(name: str, given: Mapping[str, Any], query: Tensor, key: Tensor) -> Tensor:
    """Return which keys may be attended to, (N, S, T), of the masks of MultiheadAttention."""
    allowed = torch.ones(len(key), query.shape[1], key.shape[1], dtype=torch.bool, device=CPU)
    for field in ("attn_mask", "key_padding_mask"):
        if (mask := given.get(field)) is None:
            continue
        if mask.dtype != torch.bool:  # added to the logits
            if not ((mask == 0) | (mask == -torch.inf)).all():
                raise ConfigError(f"{name}: {field}: must be boolean, or 0 and -inf")
            mask = mask == -torch.inf
        if field == "key_padding_mask":
            mask = mask.reshape(len(key), 1, -1)
        elif mask.ndim == 3:
            mask = mask.reshape(len(key), -1, *mask.shape[1:])
            if (mask != mask[:, :1]).any():
                raise ConfigError(f"{name}: attn_mask: must be the same for all heads")
            mask = mask[:, 0]
        allowed = allowed & ~mask.cpu()
    return allowed


def _maps(part: nn.Module) -> tuple[str, ...]:
    """Return the names of the children that give keys and queries; empty if there are none."""
    for names in MAPS:
        children = [getattr(part, name, None) for name in names]
        joint = len(names) == 1 and type(children[0]).__name__ == "Conv1D"  # of transformers
        if joint or all(isinstance(child, nn.Linear) for child in children):
            return names
    return ()


def _catch_maps(
    name: str, part: nn.Module, causal: bool, found: dict[str, AttentionLayer]
) -> list[Any]:
    heads, maps, weights = _heads(name, part), _maps(part), []
    for one in maps:
        linear: Any = getattr(part, one)
        weight = linear.weight if isinstance(linear, nn.Linear) else linear.weight.mT
        weights.append(_with_bias(weight, linear.bias))
    if len(maps) == 1:  # of queries, keys, values
        weights = list(weights[0].chunk(3)[1::-1])
    if len(weights[0]) % heads:
        raise ConfigError(f"{name}: {heads} heads: must divide the rows of a map")
    K, Q = (one.reshape(heads, -1, one.shape[1]) for one in weights)
    if K.shape[:2] != Q.shape[:2]:
        raise ConfigError(f"{name}: must have as many keys as queries for every head")
    rows: dict[str, Tensor] = {}

    def catch(child: str) -> Any:
        def hook(linear: nn.Module, inputs: tuple[Any, ...]) -> None:
            _check_once(name, child in rows or name in found)
            if not inputs:
                raise ConfigError(f"{name}.{child}: must be called with its rows first, unnamed")
            rows[child] = _rows(name, inputs[0], batch_first=True)
            if len(rows) == len(maps):
                key, query = rows[maps[0]], rows[maps[-1]]
                shape = len(key), query.shape[1], key.shape[1]
                mask = torch.ones(shape, dtype=torch.bool, device=CPU)
                found[name] = AttentionLayer(key, query, K, Q, mask.tril() if causal else mask)

        return hook

    return [getattr(part, one).register_forward_pre_hook(catch(one)) for one in maps]


def _heads(name: str, part: nn.Module) -> int:
    for owner in (part, getattr(part, "config", None)):
        for field in COUNTS:
            if type(count := getattr(owner, field, None)) is int:
                return count
    raise ConfigError(f"{name}: must have the number of heads, as {' | '.join(COUNTS)}")


def _check_once(name: str, again: bool) -> None:
    if again:
        raise ConfigError(f"{name}: runs more than once; must run once, as no layer that is shared")


def _rows(name: str, rows: Tensor, batch_first: bool) -> Tensor:
    """Return rows as (N, T, d), float64, on the CPU."""
    if rows.ndim == 2:
        rows = rows[None]
    elif not batch_first:
        rows = rows.transpose(0, 1)
    if rows.ndim != 3:
        raise ConfigError(f"{name}: rows of shape {tuple(rows.shape)}; must be (N, T, d)")
    return _values(rows)


def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a linear map x -> weight x + bias, weight (H m, d), as (H m, d + 1)."""
    column = weight.new_zeros(len(weight), 1) if bias is None else bias[:, None]
    return _values(torch.cat([weight, column], 1))


def _values(tensor: Tensor) -> Tensor:
    return tensor.detach().double().cpu()
