"""Heads of a pretrained model, derived from its files: an own reader, and own forward passes.

What is on record are rows in bases of their span, which no one needs to choose in the same way. So
what is compared does not depend on them: inner products of rows, logits, and that W is in the span.
The library `tokenizers` is trusted.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import erf

from attnsvm.config.pretrained import CONFIG, TENSORS, TOKENIZER, model_folder
from attnsvm.record.files import MAX_JSON_BYTES, MAX_TABLE_BYTES, open_regular
from attnsvm.verify.exact import Array
from attnsvm.verify.instances import Instance, UnknownError

TEXT = Path(__file__).parents[1] / "pretrained" / "alice.txt"
CONTROL_STREAM = 0x5DEECE66D
BYTES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

SAME = 1e-9
"""Largest error of inner products of rows, relative to the largest of them."""

SEEN = 1e-6
"""Largest error of logits, of W outside of the span, and of correlations of other heads."""

RANK = 1e-10
"""Singular values below this, relative to the largest, are rounding."""


@dataclass(frozen=True)
class HeadRows:
    """One instance in the dimensions of the model.

    Attributes
    ----------
    D : Array (n, T, d)
        Rows relative to the first admissible one of their sample, zero where inadmissible.
    Z : Array (n, d + 1)
        Queries [z; 1].
    mask : (n, T) bool
        Admissible tokens.
    logits : Array (H, n, T)
        d_it^T W z_i of the head, or its control, and then of the other heads of the layer.
    """

    D: Array
    Z: Array
    mask: NDArray[np.bool_]
    logits: Array


class Heads:
    """The instances of a recorded config with data=pretrained.

    Raises
    ------
    UnknownError
        If the library that reads text is not installed.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.asked = config["data"]
        self.folder = model_folder(str(self.asked["transformer"]))
        try:
            import tokenizers  # noqa: F401
        except ImportError as error:
            raise UnknownError("the library tokenizers is not installed") from error

    def instance(self, seed: int) -> HeadRows:
        """Return the instance of `seed`."""
        asked = self.asked
        n, T = asked["n"], asked["T"]
        text = TEXT if asked["text"] is None else Path(asked["text"])
        assert self.folder is not None
        tokens = _sentences(self.folder, text, T)
        config = _config(self.folder)
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(tokens), generator=generator)[:n].numpy()
        causal = config["model_type"] == "gpt2"
        query = torch.randint(int(causal), T, (n,), generator=generator).numpy()
        rows = _rows(self.folder, tokens[chosen].tobytes(), T, asked["at_layer"])
        K, Q = _maps(self.folder, asked["at_layer"])
        mask = np.arange(T) <= query[:, None] if causal else np.ones((n, T), dtype=bool)
        Z = np.concatenate([rows[np.arange(n), query], np.ones((n, 1))], axis=1)
        first = asked["at_head"]
        order = [first, *(h for h in range(len(K)) if h != first)]
        given = rows, Z, mask, K[order, :, :-1], Q[order] / math.sqrt(K.shape[1])
        return _relative(*_controlled(asked["control"], seed, *given))


def _controlled(
    control: str, seed: int, X: Array, Z: Array, mask: NDArray[np.bool_], K: Array, Q: Array
) -> tuple[Array, Array, NDArray[np.bool_], Array, Array]:
    """Return tokens, queries, mask and maps after the random draws of a control."""
    generator = torch.Generator().manual_seed(seed ^ CONTROL_STREAM)
    n, T = mask.shape
    if control == "queries":
        order = torch.randperm(n, generator=generator).numpy()
        sent = np.empty(n, dtype=int)
        sent[order] = np.roll(order, 1)
        Z, mask = Z[sent], mask[sent]
    elif control == "tokens":
        orders = [torch.randperm(n, generator=generator).numpy() for _ in range(T)]
        X = np.stack([X[order, t] for t, order in enumerate(orders)], axis=1)
    elif control == "spectrum":
        sigma = np.linalg.svd(K[0].T @ Q[0], compute_uv=False)[: K.shape[1]]
        parts = []
        for width in (K.shape[2], Q.shape[2]):
            draws = torch.randn(width, len(sigma), generator=generator, dtype=torch.float64)
            E, R = np.linalg.qr(draws.numpy())
            parts.append((E * np.sign(np.diag(R)) * np.sqrt(sigma)).T)
        K, Q = (np.concatenate([new[None], A[1:]]) for new, A in zip(parts, (K, Q), strict=True))
    return X, Z, mask, K, Q


def _relative(X: Array, Z: Array, mask: NDArray[np.bool_], K: Array, Q: Array) -> HeadRows:
    first = X[np.arange(len(X)), mask.argmax(1)]
    D = np.where(mask[..., None], X - first[:, None], 0.0)
    return HeadRows(D, Z, mask, np.einsum("hmd,ntd,hme,ne->hnt", K, D, Q, Z, optimize=True))


# --- comparison -----------------------------------------------------------------------------------


def rows_refusals(
    rows: HeadRows, at: Mapping[str, Any], trained: bool
) -> Iterator[tuple[str, str]]:
    """Yield which stored arrays of an instance are not those of the model, and why.

    W is compared if it was not trained.
    """
    if not np.array_equal(at["mask"], rows.mask):
        yield "mask", "is not that of the text and seed"
        return
    for name, own in (("X", rows.D.reshape(-1, rows.D.shape[-1])), ("Z", rows.Z)):
        stored = at[name].reshape(len(own), -1)
        gram, must = stored @ stored.T, own @ own.T
        if not np.abs(gram - must).max() <= SAME * np.abs(must).max():
            yield name, "its rows do not have the inner products of those of the model"
            return
    if trained:
        return
    W = at["trained_W"]
    logits = _logits(at, W)
    if not np.abs(logits - rows.logits[0])[at["mask"]].max() <= SEEN * np.abs(rows.logits[0]).max():
        yield "trained_W", "does not give the logits of the head"
        return
    a = np.zeros_like(logits)
    a[at["mask"]] = _coefficients(_gram(at), logits[at["mask"]])
    seen = np.einsum("nt,ntd,ne->de", a, at["X"], at["Z"])
    if not np.linalg.norm(W - seen) <= SEEN * np.linalg.norm(W):
        yield "trained_W", "is not in the span of tokens and queries"


def with_scores(rows: HeadRows, at: Mapping[str, Any]) -> Instance:
    """Return the stored rows with what a head is trained on: labels +1, and vectors v_i.

    v_i is the smallest with v_i^T (x_it - x_iu) = 1, t the token that the head attends to most and
    u every other admissible token.
    """
    v = np.zeros_like(at["Z"])
    selected = np.where(rows.mask, rows.logits[0], -np.inf).argmax(1)
    for i, (x, mask, t) in enumerate(zip(at["X"], rows.mask, selected, strict=True)):
        others = mask & (np.arange(len(mask)) != t)
        D = x[t] - x[others]
        v[i] = np.linalg.lstsq(D, np.ones(len(D)), rcond=RANK)[0]
    return Instance(at["X"], at["Z"], np.ones(len(v)), at["mask"], {"v": v})


def other_heads(
    rows: HeadRows, at: Mapping[str, Any], solutions: Mapping[str, Array]
) -> dict[str, float]:
    """Return the mean correlation of the other heads of the layer with each solution; NaN: none.

    A head is W = sum_k a_k x_k z_k^T; with Gen-SVM less its projection on the differences within
    the attended tokens. Inner products are those of coefficients a by the Gram matrix.
    """
    if len(rows.logits) == 1:
        return dict.fromkeys(solutions, math.nan)
    gram = _gram(at)
    a = _coefficients(gram, rows.logits[1:, at["mask"]].T)  # (N, H - 1)
    C = _within(at["attended"], at["mask"]) if "attended" in at else np.zeros((0, len(gram)))
    if len(C):
        a = a - C.T @ _coefficients(C @ gram @ C.T, C @ gram @ a)
    size = np.sqrt((a * (gram @ a)).sum(0))
    found = {}
    for name, W_mm in solutions.items():
        inner = _logits(at, W_mm)[at["mask"]] @ a
        found[name] = float(np.mean(inner / (size * np.linalg.norm(W_mm))))
    return found


def _logits(at: Mapping[str, Any], W: Array) -> Array:
    return np.asarray(np.einsum("ntd,de,ne->nt", at["X"], W, at["Z"], optimize=True))


def _gram(at: Mapping[str, Any]) -> Array:
    """Return the inner products of the matrices x_it z_i^T of all admissible tokens, (N, N)."""
    sample = np.nonzero(at["mask"])[0]
    X, Z = at["X"][at["mask"]], at["Z"][sample]
    return np.asarray((X @ X.T) * (Z @ Z.T))


def _coefficients(gram: Array, values: Array) -> Array:
    """Return the least a with gram a = values, (N,) or (N, H)."""
    return np.asarray(np.linalg.lstsq(gram, values, rcond=1e-12)[0])


def _within(attended: NDArray[np.bool_], mask: NDArray[np.bool_]) -> Array:
    """Return the differences of attended tokens of a sample to the first one, (M, N), +1 and -1."""
    number = np.cumsum(mask).reshape(mask.shape) - 1
    rows = []
    for numbers in (number[i][attended[i]] for i in range(len(mask))):
        for one in numbers[1:]:
            rows.append(np.zeros(int(mask.sum())))
            rows[-1][one], rows[-1][numbers[0]] = 1.0, -1.0
    return np.array(rows).reshape(len(rows), int(mask.sum()))


# --- model and text -------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _sentences(folder: Path, text: Path, T: int) -> NDArray[np.int64]:
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
def _config(folder: Path) -> dict[str, Any]:
    return dict(json.loads(_bytes(folder / CONFIG)))


@lru_cache(maxsize=1)
def _tensors(folder: Path) -> dict[str, Array]:
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


@lru_cache(maxsize=128)
def _stream(folder: Path, tokens: bytes, T: int, at_layer: int) -> Array:
    """Return the rows before a layer, (n, T, d)."""
    ids = np.frombuffer(tokens, dtype=np.int64).reshape(-1, T)
    config, tensors = _config(folder), _tensors(folder)
    embedded, after, _ = _PARTS[config["model_type"]]
    if at_layer == 0:
        return embedded(config, tensors, ids)
    return after(config, tensors, _stream(folder, tokens, T, at_layer - 1), at_layer - 1)


def _rows(folder: Path, tokens: bytes, T: int, at_layer: int) -> Array:
    """Return the rows that a layer sees, (n, T, d): those of GPT-2 after the layer norm."""
    rows, config = _stream(folder, tokens, T, at_layer), _config(folder)
    if config["model_type"] == "bert":
        return rows
    return _norm(_tensors(folder), f"h.{at_layer}.ln_1", rows, _gpt2_eps(config))


@lru_cache(maxsize=8)
def _maps(folder: Path, at_layer: int) -> tuple[Array, Array]:
    """Return the maps K and Q of a layer, (H, m, d + 1)."""
    config = _config(folder)
    maps = _PARTS[config["model_type"]][2]
    return maps(config, _tensors(folder), at_layer)


def _bert_embedded(
    config: Mapping[str, Any], p: Mapping[str, Array], ids: NDArray[np.int64]
) -> Array:
    names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    words, positions, types = (p[f"embeddings.{name}.weight"] for name in names)
    rows = words[ids] + positions[: ids.shape[1]] + types[0]
    return _norm(p, "embeddings.LayerNorm", rows, _bert_eps(config))


def _bert(config: Mapping[str, Any], p: Mapping[str, Array], rows: Array, at: int) -> Array:
    """Return the rows after a layer."""
    block, eps = f"encoder.layer.{at}", _bert_eps(config)

    def linear(name: str, rows: Array) -> Array:
        return np.asarray(rows @ p[f"{block}.{name}.weight"].T + p[f"{block}.{name}.bias"])

    values = linear("attention.self.value", rows)
    mixed = _attended(rows, *_bert_maps(config, p, at), values, causal=False)
    rows = rows + linear("attention.output.dense", mixed)
    rows = _norm(p, f"{block}.attention.output.LayerNorm", rows, eps)
    hidden = linear("intermediate.dense", rows)
    hidden = hidden * (1 + erf(hidden / math.sqrt(2))) / 2
    return _norm(p, f"{block}.output.LayerNorm", rows + linear("output.dense", hidden), eps)


def _bert_eps(config: Mapping[str, Any]) -> float:
    return float(config.get("layer_norm_eps", 1e-12))


def _bert_maps(config: Mapping[str, Any], p: Mapping[str, Array], at: int) -> tuple[Array, Array]:
    part, heads = f"encoder.layer.{at}.attention.self", config["num_attention_heads"]
    K, Q = (_by_head(p[f"{part}.{name}.weight"], p[f"{part}.{name}.bias"], heads)
            for name in ("key", "query"))  # fmt: skip
    return K, Q


def _gpt2_embedded(
    config: Mapping[str, Any], p: Mapping[str, Array], ids: NDArray[np.int64]
) -> Array:
    return np.asarray(p["wte.weight"][ids] + p["wpe.weight"][: ids.shape[1]])


def _gpt2(config: Mapping[str, Any], p: Mapping[str, Array], rows: Array, at: int) -> Array:
    """Return the rows after a layer."""
    block, eps, d = f"h.{at}", _gpt2_eps(config), rows.shape[-1]

    def linear(name: str, rows: Array) -> Array:
        return np.asarray(rows @ p[f"{block}.{name}.weight"] + p[f"{block}.{name}.bias"])

    seen = _norm(p, f"{block}.ln_1", rows, eps)
    values = linear("attn.c_attn", seen)[..., 2 * d :]
    mixed = _attended(seen, *_gpt2_maps(config, p, at), values, causal=True)
    rows = rows + linear("attn.c_proj", mixed)
    hidden = linear("mlp.c_fc", _norm(p, f"{block}.ln_2", rows, eps))
    inner = math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)
    return rows + linear("mlp.c_proj", hidden * (1 + np.tanh(inner)) / 2)


def _gpt2_eps(config: Mapping[str, Any]) -> float:
    return float(config.get("layer_norm_epsilon", 1e-5))


def _gpt2_maps(config: Mapping[str, Any], p: Mapping[str, Array], at: int) -> tuple[Array, Array]:
    weight, bias = p[f"h.{at}.attn.c_attn.weight"].T, p[f"h.{at}.attn.c_attn.bias"]
    d = weight.shape[1]
    Q, K = (_by_head(weight[k : k + d], bias[k : k + d], config["n_head"]) for k in (0, d))
    return K, Q


Maps = Callable[..., tuple[Array, Array]]
_PARTS: dict[str, tuple[Callable[..., Array], Callable[..., Array], Maps]] = {
    "bert": (_bert_embedded, _bert, _bert_maps),
    "gpt2": (_gpt2_embedded, _gpt2, _gpt2_maps),
}
"""Embeddings, the rows after a layer, and its maps to keys and queries."""


def _by_head(weight: Array, bias: Array, heads: int) -> Array:
    """Return a map (H m, d) with its bias by head, (H, m, d + 1)."""
    return np.concatenate([weight, bias[:, None]], 1).reshape(heads, -1, weight.shape[1] + 1)


def _attended(rows: Array, K: Array, Q: Array, values: Array, causal: bool) -> Array:
    """Return the means of the values by the attention of every head, side by side, (n, T, H m)."""
    n, T, _ = rows.shape
    one = np.concatenate([rows, np.ones((n, T, 1))], -1)
    keys, queries = (one[:, None] @ A.transpose(0, 2, 1) for A in (K, Q))  # (n, H, T, m)
    logits = queries @ keys.transpose(0, 1, 3, 2) / math.sqrt(K.shape[1])
    if causal:
        logits = np.where(np.tri(T, dtype=bool), logits, -np.inf)
    s = np.exp(logits - logits.max(-1, keepdims=True))
    s /= s.sum(-1, keepdims=True)
    by_head = values.reshape(n, T, len(K), -1).transpose(0, 2, 1, 3)
    return np.asarray((s @ by_head).transpose(0, 2, 1, 3).reshape(n, T, -1))


def _norm(p: Mapping[str, Array], name: str, rows: Array, eps: float) -> Array:
    """Return the layer norm of rows."""
    scale, shift = p[f"{name}.weight"], p[f"{name}.bias"]
    centred = rows - rows.mean(-1, keepdims=True)
    variance = np.square(centred).mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + eps) * scale + shift)
