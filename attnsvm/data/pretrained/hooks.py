"""The attention of any torch module: queries and keys caught by hooks while it runs."""

import inspect
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnsvm.config import ConfigError
from attnsvm.data.pretrained.layer import AttentionLayer

MAPS = (("k_proj", "q_proj"), ("key", "query"), ("c_attn",))
"""Names of the maps to keys and queries in modules of common libraries; c_attn is a joint one."""

COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
"""Names of the number of heads, in the module or in its `config`."""

POSITIONS = re.compile(
    "[Rr]otary|ROTARY|RoPE|ROPE|Rope(?![a-z])|(?<![A-Za-z])rope(?![a-z])"
    "|[Aa]li[Bb]i|[Rr]elative_?[Pp]os|rel_pos|distance_embedding"
)
"""Names of what makes logits depend on positions: they are not bilinear in the rows."""

NORMED = re.compile("(q|k|qk|query|key)_?(layer_?)?(norm|ln)|(layer_?)?(norm|ln)_?(q|k|query|key)")
"""Names of norms of queries and keys."""

SCALES = ("scaling", "scale")
"""Names of the factor of the logits."""


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
        If the module has no such attention, or one whose logits are seen not to be bilinear in
        the rows, or a layer runs more than once. Only what is named as usual is seen: rotary and
        relative positions, norms of queries and keys, a factor other than m^-1/2. A function that
        changes queries, keys or logits in `forward` is not.
    """
    given = {one.dtype for one in inputs if isinstance(one, Tensor) and one.is_floating_point()}
    kinds = [one.dtype for one in module.parameters()]
    if given.difference(kinds) and kinds:
        raise ConfigError(f"inputs: {given.pop()}; must be that of the module: ROWS.to({kinds[0]})")
    with caught(module, causal) as found, torch.no_grad():
        module(*inputs, **options)
    return found


@contextmanager
def caught(module: nn.Module, causal: bool) -> Iterator[dict[str, AttentionLayer]]:
    """Yield a dict that has the attention layers of a module by name, after it has run once."""
    found: dict[str, AttentionLayer] = {}
    handles: list[Any] = []
    try:
        for name, part in module.named_modules():
            if isinstance(part, nn.MultiheadAttention):
                catch = _catch_multihead(name, part, found)
                handles.append(part.register_forward_pre_hook(catch, with_kwargs=True))
            elif _maps(part):
                handles += _catch_maps(name, part, module, causal, found)
        yield found
    finally:
        for handle in handles:
            handle.remove()
    if not found:
        raise ConfigError(
            f"module={type(module).__name__}: must contain torch.nn.MultiheadAttention, or linear "
            "children q_proj and k_proj, key and query, or c_attn, and run them; "
            "a joint map, as qkv, must be split as docs/pretrained.md shows"
        )


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
    allowed = torch.ones(len(key), query.shape[1], key.shape[1], dtype=torch.bool)
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
    name: str, part: nn.Module, module: nn.Module, causal: bool, found: dict[str, AttentionLayer]
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
    _check_names(name, part, module, K.shape[1])
    rows: dict[str, Tensor] = {}

    def catch(child: str) -> Any:
        def hook(linear: nn.Module, inputs: tuple[Any, ...]) -> None:
            _check_once(name, child in rows or name in found)
            if not inputs:
                raise ConfigError(f"{name}.{child}: must be called with its rows first, unnamed")
            rows[child] = _rows(name, inputs[0], batch_first=True)
            if len(rows) == len(maps):
                key, query = rows[maps[0]], rows[maps[-1]]
                mask = torch.ones(len(key), query.shape[1], key.shape[1], dtype=torch.bool)
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


def _check_names(name: str, part: nn.Module, module: nn.Module, m: int) -> None:
    """Raise ConfigError for what is named as if logits were not bilinear, or not over sqrt(m).

    These are positions anywhere in the whole model, norms of queries or keys, and factors.
    """
    for where, inside in module.named_modules():
        config = getattr(inside, "config", None)
        held = [*vars(type(inside)), *_attributes(inside), *_attributes(config)]
        for word in filter(POSITIONS.search, (type(inside).__name__, *held)):
            raise ConfigError(
                f"{name}: must have no rotary or relative positions, as {word} of "
                f"{where or 'the module'}: its logits are not bilinear in the rows"
            )
        kind = getattr(config, "position_embedding_type", None) or "absolute"
        if kind != "absolute":
            raise ConfigError(f"{name}: position_embedding_type={kind}: must be absolute")
    for word in filter(NORMED.fullmatch, _attributes(part)):
        if not isinstance(getattr(part, word), nn.Identity):
            raise ConfigError(f"{name}: must have no {word}: its logits are not bilinear")
    for word in SCALES:
        value: Any = getattr(part, word, None)
        if isinstance(value, Tensor) and value.numel() == 1:
            value = float(value)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and not math.isclose(value, m**-0.5, rel_tol=1e-6):
            raise ConfigError(f"{name}: {word}={value:g}: must be {m**-0.5:g}, m^-1/2 for m={m:g}")


def _attributes(owner: Any) -> list[str]:
    """Return the names of what an object holds, children and buffers too, unless it is off."""
    held = dict(getattr(owner, "__dict__", {}))
    for inside in ("_modules", "_parameters", "_buffers"):
        held |= held.pop(inside, {})
    return [
        name
        for name, value in held.items()
        if value is not None and (not isinstance(value, bool | int | float | str | dict) or value)
    ]


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
