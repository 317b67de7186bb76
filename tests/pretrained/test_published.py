"""Checkpoints as they are published, against forward passes of plain functions of torch."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch.nn.functional import embedding, gelu, layer_norm, linear, scaled_dot_product_attention

from attnsvm import ConfigError
from attnsvm.data.pretrained import folder, forward
from attnsvm.data.pretrained.network import layer_of

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")

from tests.pretrained.tiny import HEADS, LAYERS, POSITIONS, D, safetensors, tensors, write

N, T, M = 4, 7, D // HEADS
TOKENS = torch.randint(3, 90, (N, T), generator=torch.Generator().manual_seed(3))


def attended(q, k, v, causal):
    """Return the mixed values (N, T, d), and the attention (N, H, T, T) by its definition."""
    q, k, v = (part.view(N, T, HEADS, M).transpose(1, 2) for part in (q, k, v))
    mixed = scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
    logits = q @ k.mT / math.sqrt(M)
    if causal:
        logits = logits.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
    return mixed.reshape(N, T, D), logits.softmax(-1)


def gpt2(p):
    """Return what each layer sees, its attention, and the last rows."""
    rows = embedding(TOKENS, p["wte.weight"]) + p["wpe.weight"][:T]
    seen = []
    for at in range(LAYERS):
        h = f"h.{at}"
        x = layer_norm(rows, (D,), p[f"{h}.ln_1.weight"], p[f"{h}.ln_1.bias"], 1e-5)
        qkv = linear(x, p[f"{h}.attn.c_attn.weight"].T, p[f"{h}.attn.c_attn.bias"])
        mixed, attention = attended(*qkv.split(D, dim=-1), causal=True)
        seen.append((x, attention))
        rows = rows + linear(mixed, p[f"{h}.attn.c_proj.weight"].T, p[f"{h}.attn.c_proj.bias"])
        x = layer_norm(rows, (D,), p[f"{h}.ln_2.weight"], p[f"{h}.ln_2.bias"], 1e-5)
        x = linear(x, p[f"{h}.mlp.c_fc.weight"].T, p[f"{h}.mlp.c_fc.bias"])
        x = gelu(x, approximate="tanh")
        rows = rows + linear(x, p[f"{h}.mlp.c_proj.weight"].T, p[f"{h}.mlp.c_proj.bias"])
    return seen, layer_norm(rows, (D,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)


def bert(p):
    """Return what each layer sees, its attention, and the last rows."""

    def of(name, x):
        return linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

    def norm(name, x):
        return layer_norm(x, (D,), p[f"{name}.weight"], p[f"{name}.bias"], 1e-12)

    kinds = torch.zeros_like(TOKENS)
    rows = embedding(TOKENS, p["embeddings.word_embeddings.weight"])
    rows = rows + embedding(kinds, p["embeddings.token_type_embeddings.weight"])
    rows = norm("embeddings.LayerNorm", rows + p["embeddings.position_embeddings.weight"][:T])
    seen = []
    for at in range(LAYERS):
        layer = f"encoder.layer.{at}"
        maps = (of(f"{layer}.attention.self.{name}", rows) for name in ("query", "key", "value"))
        mixed, attention = attended(*maps, causal=False)
        seen.append((rows, attention))
        mixed = of(f"{layer}.attention.output.dense", mixed)
        rows = norm(f"{layer}.attention.output.LayerNorm", rows + mixed)
        hidden = of(f"{layer}.output.dense", gelu(of(f"{layer}.intermediate.dense", rows)))
        rows = norm(f"{layer}.output.LayerNorm", rows + hidden)
    return seen, rows


def as_published(kind: str, prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a tiny model under the names of a checkpoint, with what else it has."""
    given = {f"{prefix}{name}": tensor for name, tensor in tensors(kind).items()}
    if kind == "gpt2":
        for at in range(LAYERS):
            seen = torch.ones(POSITIONS, POSITIONS).tril().view(1, 1, POSITIONS, POSITIONS)
            given[f"{prefix}h.{at}.attn.bias"] = seen
            given[f"{prefix}h.{at}.attn.masked_bias"] = torch.tensor(-1e4)
        if prefix:
            given["lm_head.weight"] = given[f"{prefix}wte.weight"]  # tied
        return given
    given[f"{prefix}embeddings.position_ids"] = torch.arange(POSITIONS)[None]
    given[f"{prefix}pooler.dense.weight"] = torch.ones(D, D)
    if prefix:  # names of layer norms in old checkpoints, and the head of its training
        for old, new in (("gamma", "weight"), ("beta", "bias")):
            for name in [name for name in given if name.endswith(f"LayerNorm.{new}")]:
                given[name.removesuffix(new) + old] = given.pop(name)
        given["cls.predictions.transform.LayerNorm.gamma"] = torch.ones(D)
        given["cls.predictions.bias"] = torch.zeros(98)
    return given


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [("gpt2", ""), ("gpt2", "transformer."), ("bert", ""), ("bert", "bert.")],
)
def test_a_published_checkpoint_gives_rows_and_heads_of_plain_torch(tmp_path, kind, prefix):
    """To 1e-10."""
    where = write(tmp_path / "model", kind)
    safetensors(where / "model.safetensors", as_published(kind, prefix))
    p = {name: tensor.double() for name, tensor in tensors(kind).items()}
    seen, last = {"gpt2": gpt2, "bert": bert}[kind](p)
    model = folder(str(where))
    layers, rows = forward(model, TOKENS)
    torch.testing.assert_close(rows, last, rtol=1e-10, atol=1e-10)
    assert len(layers) == len(seen) == LAYERS
    for at, (layer, (x, attention)) in enumerate(zip(layers, seen, strict=True)):
        torch.testing.assert_close(layer.X, x, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(layer.log_attention().exp(), attention, rtol=1e-9, atol=1e-11)
        alone = layer_of(model, TOKENS, at)
        assert torch.equal(alone.X, layer.X)
        assert torch.equal(alone.K, layer.K)
    for at in (-1, LAYERS):
        with pytest.raises(ConfigError, match=rf"data\.at_layer={at}: must be >= 0 and < 2"):
            layer_of(model, TOKENS, at)


def test_a_tensor_under_two_names_and_weights_stored_transposed_are_refused(tmp_path):
    where = write(tmp_path / "twice", "bert")
    given = tensors("bert")
    given["bert.embeddings.LayerNorm.gamma"] = torch.ones(D)
    safetensors(where / "model.safetensors", given)
    with pytest.raises(ConfigError, match=r"has embeddings\.LayerNorm\.weight twice"):
        folder(str(where))
    where = write(tmp_path / "transposed", "gpt2")
    given = tensors("gpt2")
    given["h.0.attn.c_attn.weight"] = given["h.0.attn.c_attn.weight"].T.contiguous()
    safetensors(where / "model.safetensors", given)
    with pytest.raises(ConfigError, match=r"c_attn\.weight: shape \(36, 12\); must be \(12, 36\)"):
        forward(folder(str(where)), TOKENS)
    config = json.loads((where / "config.json").read_text()) | {"model_type": "distilbert"}
    (where / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"model_type='distilbert': must be bert \| gpt2"):
        forward(folder(str(where)), TOKENS)
