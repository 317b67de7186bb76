"""The scores of tokens by the loss of a pretrained model, by an own backward pass in NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from attnsvm.verify.exact import Array
from attnsvm.verify.pretrained_network import (
    attention,
    bert_eps,
    bert_maps,
    config_of,
    gpt2_eps,
    gpt2_maps,
    layer_norm,
    stream,
    tensors_of,
)

SCALE = 20.0
"""Of the cosines of sentence embeddings."""

Tensors = Mapping[str, Array]


def scores(folder: Path, tokens: bytes, targets: bytes, T: int, at_layer: int) -> Array:
    """Return -dl_i / ds_ihqt, (n, H, T, T), of sequences i, heads h, queries q and tokens t.

    l_i is the mean of -log p(next token), with GPT-2, or -log p(next sentence) among those of all,
    p = softmax(SCALE cos) of mean last rows. `targets` are the next tokens, or sentences.
    """
    config, p = config_of(folder), tensors_of(folder)
    rows = stream(folder, tokens, T, at_layer)
    pulled = _pulled(folder, tokens, targets, T, at_layer)
    return -BACK[config["model_type"]](config, p, rows, at_layer, pulled)[1]


@lru_cache(maxsize=128)
def _pulled(folder: Path, tokens: bytes, targets: bytes, T: int, at_layer: int) -> Array:
    """Return dl_i / dx_it, x the rows after a layer, (n, T, d)."""
    config, p = config_of(folder), tensors_of(folder)
    kind, after = config["model_type"], at_layer + 1
    if after < config["num_hidden_layers" if kind == "bert" else "n_layer"]:
        rows = stream(folder, tokens, T, after)
        pulled = _pulled(folder, tokens, targets, T, after)
        return BACK[kind](config, p, rows, after, pulled)[0]
    rows = stream(folder, tokens, T, after)
    if kind == "bert":
        return _from_embedding(rows, stream(folder, targets, T, after).mean(1))
    following = np.frombuffer(targets, dtype=np.int64).reshape(-1, T)
    return _from_next_tokens(config, p, rows, following)


def _from_embedding(rows: Array, following: Array) -> Array:
    """Return the derivative in the last rows of -log p(next sentence)."""
    e = rows.mean(1)
    size = np.linalg.norm(e, axis=1, keepdims=True)
    unit, others = e / size, following / np.linalg.norm(following, axis=1, keepdims=True)
    of_unit = SCALE * (_softmax(SCALE * unit @ others.T) @ others - others)
    of_e = (of_unit - unit * (unit * of_unit).sum(1, keepdims=True)) / size
    return np.repeat(of_e[:, None] / rows.shape[1], rows.shape[1], axis=1)


def _from_next_tokens(
    config: Mapping[str, Any], p: Tensors, rows: Array, following: NDArray[np.int64]
) -> Array:
    """Return the derivative in the last rows of the mean of -log p(next token)."""
    table, eps = p["wte.weight"], gpt2_eps(config)
    found = _softmax(layer_norm(p, "ln_f", rows, eps) @ table.T) @ table - table[following]
    return _through_norm(p, "ln_f", rows, eps, found / rows.shape[1])


def _bert_back(
    config: Mapping[str, Any], p: Tensors, rows: Array, at: int, pulled: Array
) -> tuple[Array, Array]:
    """Return the derivatives in the rows before a layer and in its attention."""
    block, eps = f"encoder.layer.{at}", bert_eps(config)
    weights = {
        name: p[f"{block}.{name}.weight"]
        for name in (
            "attention.self.value", "attention.output.dense", "intermediate.dense", "output.dense"
        )
    }  # fmt: skip

    def linear(name: str, rows: Array) -> Array:
        return np.asarray(rows @ weights[name].T + p[f"{block}.{name}.bias"])

    K, Q = bert_maps(config, p, at)
    values = linear("attention.self.value", rows)
    s = attention(rows, K, Q, causal=False)[0]
    mixed = rows + linear("attention.output.dense", _beside(s @ _by_head(values, len(K))))
    between = layer_norm(p, f"{block}.attention.output.LayerNorm", mixed, eps)
    hidden = linear("intermediate.dense", between)
    density = np.exp(-np.square(hidden) / 2) / math.sqrt(2 * math.pi)
    activation = (1 + erf(hidden / math.sqrt(2))) / 2
    out = between + linear("output.dense", hidden * activation)
    pulled = _through_norm(p, f"{block}.output.LayerNorm", out, eps, pulled)
    of_hidden = pulled @ weights["output.dense"] * (activation + hidden * density)
    pulled = pulled + of_hidden @ weights["intermediate.dense"]
    pulled = _through_norm(p, f"{block}.attention.output.LayerNorm", mixed, eps, pulled)
    of_mixed = pulled @ weights["attention.output.dense"]
    maps = K, Q, weights["attention.self.value"]
    of_rows, of_s = _through_attention(rows, values, maps, of_mixed, causal=False)
    return pulled + of_rows, of_s


def _gpt2_back(
    config: Mapping[str, Any], p: Tensors, rows: Array, at: int, pulled: Array
) -> tuple[Array, Array]:
    """Return the derivatives in the rows before a layer and in its attention."""
    block, eps, d = f"h.{at}", gpt2_eps(config), rows.shape[-1]
    names = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    weights = {name: p[f"{block}.{name}.weight"] for name in names}

    def linear(name: str, rows: Array) -> Array:
        return np.asarray(rows @ weights[name] + p[f"{block}.{name}.bias"])

    K, Q = gpt2_maps(config, p, at)
    seen = layer_norm(p, f"{block}.ln_1", rows, eps)
    values = linear("attn.c_attn", seen)[..., 2 * d :]
    s = attention(seen, K, Q, causal=True)[0]
    between = rows + linear("attn.c_proj", _beside(s @ _by_head(values, len(K))))
    hidden = linear("mlp.c_fc", layer_norm(p, f"{block}.ln_2", between, eps))
    scale = math.sqrt(2 / math.pi)
    tanh = np.tanh(scale * (hidden + 0.044715 * hidden**3))
    slope = (1 + tanh) / 2 + hidden / 2 * (1 - tanh**2) * scale * (1 + 3 * 0.044715 * hidden**2)
    of_hidden = pulled @ weights["mlp.c_proj"].T * slope
    of_normed = of_hidden @ weights["mlp.c_fc"].T
    pulled = pulled + _through_norm(p, f"{block}.ln_2", between, eps, of_normed)
    of_mixed = pulled @ weights["attn.c_proj"].T
    maps = K, Q, weights["attn.c_attn"][:, 2 * d :].T
    of_seen, of_s = _through_attention(seen, values, maps, of_mixed, causal=True)
    return pulled + _through_norm(p, f"{block}.ln_1", rows, eps, of_seen), of_s


BACK = {"bert": _bert_back, "gpt2": _gpt2_back}


def _through_attention(
    rows: Array, values: Array, maps: tuple[Array, Array, Array], of_mixed: Array, causal: bool
) -> tuple[Array, Array]:
    """Return the derivatives in the rows that a layer sees, and in its attention.

    `maps` are those to keys and queries, by head, and that to the values, (d, d).
    """
    K, Q, V = maps
    s, keys, queries = attention(rows, K, Q, causal)
    of_heads = _by_head(of_mixed, len(K))
    of_s = of_heads @ _by_head(values, len(K)).transpose(0, 1, 3, 2)
    of_logits = s * (of_s - (s * of_s).sum(-1, keepdims=True)) / math.sqrt(K.shape[1])
    of_queries, of_keys = of_logits @ keys, of_logits.transpose(0, 1, 3, 2) @ queries
    of_rows = _beside(s.transpose(0, 1, 3, 2) @ of_heads) @ V
    for pulled, A in ((of_queries, Q), (of_keys, K)):
        of_rows = of_rows + (pulled @ A[..., :-1]).sum(1)
    return of_rows, of_s


def _through_norm(p: Tensors, name: str, rows: Array, eps: float, pulled: Array) -> Array:
    """Return the derivative in the rows, given that in their layer norm."""
    centred = rows - rows.mean(-1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps)
    unit, pulled = centred / deviation, pulled * p[f"{name}.weight"]
    along = (pulled * unit).mean(-1, keepdims=True)
    return np.asarray((pulled - pulled.mean(-1, keepdims=True) - unit * along) / deviation)


def _by_head(rows: Array, heads: int) -> Array:
    """Return (n, T, H m) as (n, H, T, m)."""
    n, T, _ = rows.shape
    return np.asarray(rows.reshape(n, T, heads, -1).transpose(0, 2, 1, 3))


def _beside(by_head: Array) -> Array:
    """Return (n, H, T, m) as (n, T, H m)."""
    n, _, T, _ = by_head.shape
    return np.asarray(by_head.transpose(0, 2, 1, 3).reshape(n, T, -1))


def _softmax(logits: Array) -> Array:
    s = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(s / s.sum(-1, keepdims=True))
