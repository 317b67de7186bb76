"""A pretrained model, read and run in NumPy: sentences, rows before each layer, and its maps."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from attnsvm.config.pretrained import CONFIG, TENSORS, TOKENIZER
from attnsvm.record.files import MAX_JSON_BYTES, MAX_TABLE_BYTES, open_regular
from attnsvm.verify.exact import Array

BYTES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@lru_cache(maxsize=8)
def sentences(folder: Path, text: Path, T: int) -> NDArray[np.int64]:
    """Return the tokens of the different lines that have at least T, truncated, (N, T)."""
    import tokenizers

    lines = [line.strip() for line in _bytes(text).decode().splitlines()]
    lines = [line for line in dict.fromkeys(lines) if line]
    tokenizer = tokenizers.Tokenizer.from_buffer(_bytes(folder / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    lines = [line for line in lines if len(tokenizer.encode(line).ids) >= T]
    tokenizer.enable_truncation(T)
    return np.array([tokenizer.encode(line).ids for line in lines], dtype=np.int64).reshape(-1, T)


def _bytes(path: Path, most: int = MAX_JSON_BYTES) -> bytes:
    with open_regular(path.resolve(), most) as stream:
        return stream.read(min(os.fstat(stream.fileno()).st_size, most))


@lru_cache(maxsize=2)
def config_of(folder: Path) -> dict[str, Any]:
    """Return the content of config.json."""
    return dict(json.loads(_bytes(folder / CONFIG)))


@lru_cache(maxsize=1)
def tensors_of(folder: Path) -> dict[str, Array]:
    """Return the tensors of a safetensors file: a length, a header in JSON, and their bytes."""
    content = _bytes(folder / TENSORS, MAX_TABLE_BYTES)
    start = 8 + int.from_bytes(content[:8], "little")
    found = {}
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__" and entry["dtype"] in BYTES:
            begin, end = (start + offset for offset in entry["data_offsets"])
            values = np.frombuffer(content[begin:end], BYTES[entry["dtype"]])
            if entry["dtype"] == "BF16":  # the upper half of a number of 32 bits
                values = (values.astype(np.uint32) << 16).view(np.float32)
            name = name.removeprefix("bert.").removeprefix("transformer.")
            name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
            name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
            found[name] = values.astype(np.float64).reshape(entry["shape"])
    return found


@lru_cache(maxsize=256)
def stream(folder: Path, tokens: bytes, T: int, at_layer: int) -> Array:
    """Return the rows before a layer, (n, T, d)."""
    ids = np.frombuffer(tokens, dtype=np.int64).reshape(-1, T)
    config, tensors = config_of(folder), tensors_of(folder)
    embedded, after, _ = _PARTS[config["model_type"]]
    if at_layer == 0:
        return embedded(config, tensors, ids)
    return after(config, tensors, stream(folder, tokens, T, at_layer - 1), at_layer - 1)


def rows_at(folder: Path, tokens: bytes, T: int, at_layer: int) -> Array:
    """Return the rows that a layer sees, (n, T, d): those of GPT-2 after the layer norm."""
    rows, config = stream(folder, tokens, T, at_layer), config_of(folder)
    if config["model_type"] == "bert":
        return rows
    return layer_norm(tensors_of(folder), f"h.{at_layer}.ln_1", rows, gpt2_eps(config))


@lru_cache(maxsize=8)
def maps_at(folder: Path, at_layer: int) -> tuple[Array, Array]:
    """Return the maps K and Q of a layer, (H, m, d + 1)."""
    config = config_of(folder)
    maps = _PARTS[config["model_type"]][2]
    return maps(config, tensors_of(folder), at_layer)


def _bert_embedded(
    config: Mapping[str, Any], p: Mapping[str, Array], ids: NDArray[np.int64]
) -> Array:
    names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    words, positions, types = (p[f"embeddings.{name}.weight"] for name in names)
    rows = words[ids] + positions[: ids.shape[1]] + types[0]
    return layer_norm(p, "embeddings.LayerNorm", rows, bert_eps(config))


def _bert(config: Mapping[str, Any], p: Mapping[str, Array], rows: Array, at: int) -> Array:
    """Return the rows after a layer."""
    block, eps = f"encoder.layer.{at}", bert_eps(config)

    def linear(name: str, rows: Array) -> Array:
        return np.asarray(rows @ p[f"{block}.{name}.weight"].T + p[f"{block}.{name}.bias"])

    values = linear("attention.self.value", rows)
    mixed = _attended(rows, *bert_maps(config, p, at), values, causal=False)
    rows = rows + linear("attention.output.dense", mixed)
    rows = layer_norm(p, f"{block}.attention.output.LayerNorm", rows, eps)
    hidden = linear("intermediate.dense", rows)
    hidden = hidden * (1 + erf(hidden / math.sqrt(2))) / 2
    return layer_norm(p, f"{block}.output.LayerNorm", rows + linear("output.dense", hidden), eps)


def bert_eps(config: Mapping[str, Any]) -> float:
    """Return what BERT's layer norms add to the variance."""
    return float(config.get("layer_norm_eps", 1e-12))


def bert_maps(config: Mapping[str, Any], p: Mapping[str, Array], at: int) -> tuple[Array, Array]:
    """Return BERT's maps to keys and queries, (H, m, d + 1)."""
    part, heads = f"encoder.layer.{at}.attention.self", config["num_attention_heads"]
    K, Q = (by_head(p[f"{part}.{name}.weight"], p[f"{part}.{name}.bias"], heads)
            for name in ("key", "query"))  # fmt: skip
    return K, Q


def _gpt2_embedded(
    config: Mapping[str, Any], p: Mapping[str, Array], ids: NDArray[np.int64]
) -> Array:
    return np.asarray(p["wte.weight"][ids] + p["wpe.weight"][: ids.shape[1]])


def _gpt2(config: Mapping[str, Any], p: Mapping[str, Array], rows: Array, at: int) -> Array:
    """Return the rows after a layer."""
    block, eps, d = f"h.{at}", gpt2_eps(config), rows.shape[-1]

    def linear(name: str, rows: Array) -> Array:
        return np.asarray(rows @ p[f"{block}.{name}.weight"] + p[f"{block}.{name}.bias"])

    seen = layer_norm(p, f"{block}.ln_1", rows, eps)
    values = linear("attn.c_attn", seen)[..., 2 * d :]
    mixed = _attended(seen, *gpt2_maps(config, p, at), values, causal=True)
    rows = rows + linear("attn.c_proj", mixed)
    hidden = linear("mlp.c_fc", layer_norm(p, f"{block}.ln_2", rows, eps))
    inner = math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)
    return rows + linear("mlp.c_proj", hidden * (1 + np.tanh(inner)) / 2)


def gpt2_eps(config: Mapping[str, Any]) -> float:
    """Return what GPT-2's layer norms add to the variance."""
    return float(config.get("layer_norm_epsilon", 1e-5))


def gpt2_maps(config: Mapping[str, Any], p: Mapping[str, Array], at: int) -> tuple[Array, Array]:
    """Return GPT-2's maps to keys and queries, (H, m, d + 1)."""
    weight, bias = p[f"h.{at}.attn.c_attn.weight"].T, p[f"h.{at}.attn.c_attn.bias"]
    d = weight.shape[1]
    Q, K = (by_head(weight[k : k + d], bias[k : k + d], config["n_head"]) for k in (0, d))
    return K, Q


Maps = Callable[..., tuple[Array, Array]]
_PARTS: dict[str, tuple[Callable[..., Array], Callable[..., Array], Maps]] = {
    "bert": (_bert_embedded, _bert, bert_maps),
    "gpt2": (_gpt2_embedded, _gpt2, gpt2_maps),
}
"""Embeddings, the rows after a layer, and its maps to keys and queries."""


def by_head(weight: Array, bias: Array, heads: int) -> Array:
    """Return a map (H m, d) with its bias by head, (H, m, d + 1)."""
    return np.concatenate([weight, bias[:, None]], 1).reshape(heads, -1, weight.shape[1] + 1)


def attention(rows: Array, K: Array, Q: Array, causal: bool) -> tuple[Array, Array, Array]:
    """Return the attention of every head, (n, H, T, T), its keys and its queries, (n, H, T, m)."""
    n, T, _ = rows.shape
    one = np.concatenate([rows, np.ones((n, T, 1))], -1)
    keys, queries = (one[:, None] @ A.transpose(0, 2, 1) for A in (K, Q))
    logits = queries @ keys.transpose(0, 1, 3, 2) / math.sqrt(K.shape[1])
    if causal:
        logits = np.where(np.tri(T, dtype=bool), logits, -np.inf)
    s = np.exp(logits - logits.max(-1, keepdims=True))
    return s / s.sum(-1, keepdims=True), keys, queries


def _attended(rows: Array, K: Array, Q: Array, values: Array, causal: bool) -> Array:
    """Return the means of the values by the attention of every head, side by side, (n, T, H m)."""
    (n, T, _), (s, _, _) = rows.shape, attention(rows, K, Q, causal)
    values_h = values.reshape(n, T, len(K), -1).transpose(0, 2, 1, 3)
    return np.asarray((s @ values_h).transpose(0, 2, 1, 3).reshape(n, T, -1))


def layer_norm(p: Mapping[str, Array], name: str, rows: Array, eps: float) -> Array:
    """Return the layer norm of rows."""
    scale, shift = p[f"{name}.weight"], p[f"{name}.bias"]
    centred = rows - rows.mean(-1, keepdims=True)
    variance = np.square(centred).mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + eps) * scale + shift)
