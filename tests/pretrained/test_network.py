"""Forward passes and heads against torch's own attention, on tiny random models."""

from __future__ import annotations

import json
import math
import shutil

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu

from attnsvm import ConfigError
from attnsvm.data.pretrained import forward, load
from attnsvm.data.pretrained.layer import with_one

pytest.importorskip("transformers")

from tests.pretrained.tiny import (
    HEADS,
    LAYERS,
    POSITIONS,
    WIDTH,
    D,
    safetensors,
    tensors,
    tiny,
    write,
)

TOKENS = torch.randint(3, 90, (4, 7), generator=torch.Generator().manual_seed(0))


def encoder_layer(kind: str, at: int, of) -> nn.TransformerEncoderLayer:
    """Return torch's own layer with the tensors `of` a model."""
    activation = (lambda x: gelu(x, approximate="tanh")) if kind == "gpt2" else gelu
    layer = nn.TransformerEncoderLayer(
        D, HEADS, WIDTH, dropout=0.0, activation=activation, batch_first=True,
        norm_first=kind == "gpt2", layer_norm_eps=1e-5 if kind == "gpt2" else 1e-12,
        dtype=torch.float64,
    )  # fmt: skip
    if kind == "gpt2":
        block, names = f"h.{at}", ("attn.c_proj", "mlp.c_fc", "mlp.c_proj", "ln_1", "ln_2")
        weight, bias = of(f"{block}.attn.c_attn.weight").T, of(f"{block}.attn.c_attn.bias")
    else:
        block = f"encoder.layer.{at}"
        names = ("attention.output.dense", "intermediate.dense", "output.dense",
                 "attention.output.LayerNorm", "output.LayerNorm")  # fmt: skip
        maps = [f"{block}.attention.self.{name}" for name in ("query", "key", "value")]
        weight, bias = (torch.cat([of(f"{name}.{p}") for name in maps]) for p in ("weight", "bias"))
    attention = layer.self_attn
    parts = (attention.out_proj, layer.linear1, layer.linear2, layer.norm1, layer.norm2)
    with torch.no_grad():
        attention.in_proj_weight.copy_(weight)
        attention.in_proj_bias.copy_(bias)
        for part, name in zip(parts, names, strict=True):
            given = of(f"{block}.{name}.weight")
            part.weight.copy_(given.T if kind == "gpt2" and given.ndim == 2 else given)
            part.bias.copy_(of(f"{block}.{name}.bias"))
    return layer.eval()


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_layers_rows_and_attention_are_those_of_torch(kind):
    model = load(str(tiny(kind)))
    of = {name: tensor.double() for name, tensor in tensors(kind).items()}.__getitem__
    layers, last = forward(model, TOKENS)
    assert len(layers) == LAYERS
    names = {"bert": ("embeddings.word_embeddings", "embeddings.position_embeddings"),
             "gpt2": ("wte", "wpe")}[kind]  # fmt: skip
    rows = of(f"{names[0]}.weight")[TOKENS] + of(f"{names[1]}.weight")[: TOKENS.shape[1]]
    if kind == "bert":
        rows = rows + of("embeddings.token_type_embeddings.weight")[0]
        parts = (of(f"embeddings.LayerNorm.{part}") for part in ("weight", "bias"))
        rows = torch.nn.functional.layer_norm(rows, (D,), *parts, 1e-12)
    T = TOKENS.shape[1]
    later = torch.ones(T, T, dtype=torch.bool).triu(1) if kind == "gpt2" else None
    for at, found in enumerate(layers):
        layer = encoder_layer(kind, at, of)
        seen = layer.norm1(rows) if kind == "gpt2" else rows
        torch.testing.assert_close(found.X, seen, rtol=1e-11, atol=1e-11)
        expected = layer.self_attn(
            seen, seen, seen, attn_mask=later, average_attn_weights=False, need_weights=True
        )[1]
        torch.testing.assert_close(found.log_attention().exp(), expected, rtol=1e-10, atol=1e-12)
        rows = layer(rows, src_mask=later)
    if kind == "gpt2":
        parts = (of(f"ln_f.{part}") for part in ("weight", "bias"))
        rows = torch.nn.functional.layer_norm(rows, (D,), *parts, 1e-5)
    torch.testing.assert_close(last, rows, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_W_with_biases_gives_the_attention(kind):
    """softmax_t([x_t; 1]^T W [x_k; 1]) over the admissible t, to rounding."""
    layer = forward(load(str(tiny(kind))), TOKENS)[0][1]
    rows = with_one(layer.X)
    for head in range(HEADS):
        logits = torch.einsum("ntd,de,nke->nkt", rows, layer.W(head), rows)
        logits = logits.masked_fill(~layer.mask, -torch.inf)
        torch.testing.assert_close(logits.softmax(-1), layer.log_attention()[:, head].exp())
    with pytest.raises(ConfigError, match=r"head=3: must be >= 0 and < 3"):
        layer.W(HEADS)


def as_published(kind: str, prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a tiny model under the names of a checkpoint, with what else it has."""
    given = {f"{prefix}{name}": tensor for name, tensor in tensors(kind).items()}
    if kind == "gpt2":
        seen = torch.ones(POSITIONS, POSITIONS).tril().view(1, 1, POSITIONS, POSITIONS)
        given |= {f"{prefix}h.{at}.attn.bias": seen for at in range(LAYERS)}
        return given | {"lm_head.weight": given[f"{prefix}wte.weight"]}  # tied
    given[f"{prefix}embeddings.position_ids"] = torch.arange(POSITIONS)[None]
    given[f"{prefix}pooler.dense.weight"] = torch.ones(D, D)
    if prefix:  # names of layer norms in old checkpoints, and the head of its training
        for old, new in (("gamma", "weight"), ("beta", "bias")):
            for name in [name for name in given if name.endswith(f"LayerNorm.{new}")]:
                given[name.removesuffix(new) + old] = given.pop(name)
        given["cls.predictions.bias"] = torch.zeros(98)
    return given


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [("gpt2", ""), ("gpt2", "transformer."), ("bert", ""), ("bert", "bert.")],
)
def test_a_checkpoint_as_published_is_the_same_model(tmp_path, kind, prefix):
    where = write(tmp_path / "model", kind)
    safetensors(where / "model.safetensors", as_published(kind, prefix))
    (layers, rows), (expected, last) = (
        forward(load(str(path)), TOKENS) for path in (where, tiny(kind))
    )
    assert rows.equal(last)
    for one, other in zip(layers, expected, strict=True):
        assert one.X.equal(other.X)
        assert one.K.equal(other.K)


# --- folders that are not as they must be ---------------------------------------------------------


def broken(tmp_path, kind="bert", **fields):
    """Return a copy of a tiny model with other fields in its config."""
    copy = tmp_path / "model"
    shutil.copytree(tiny(kind), copy)
    config = json.loads((copy / "config.json").read_text()) | fields
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        ("bert", {"model_type": "llama"}, "model_type='llama': must be bert | gpt2"),
        ("bert", {"model_type": ["bert"]}, "model_type=['bert']: must be bert | gpt2"),
        ("bert", {"hidden_act": "relu"}, "hidden_act='relu': must be gelu"),
        ("bert", {"num_attention_heads": 5}, "(12) is not a multiple of the number of attention"),
        ("bert", {"num_hidden_layers": 3}, 'Missing key(s) in state_dict: "encoder.layer.2.'),
        ("bert", {"num_hidden_layers": 10**9}, "1000000000 layers, but 37 tensors"),
        ("bert", {"num_hidden_layers": 0}, "num_hidden_layers=0: must be a whole number >= 1"),
        ("bert", {"vocab_size": 10**30}, "must fit together"),
        ("bert", {"intermediate_size": 7}, "size mismatch for encoder.layer.0.intermediate.dense"),
        ("bert", {"position_embedding_type": "relative_key"}, "must be absolute"),
        ("bert", {"layer_norm_eps": "small"}, "layer_norm_eps='small': must be a finite number"),
        ("bert", {"layer_norm_eps": math.nan}, "layer_norm_eps=nan: must be a finite number >= 0"),
        ("bert", {"type_vocab_size": "2"}, "type_vocab_size='2': must be a whole number >= 1"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "must be False"),
        ("gpt2", {"n_positions": 4}, "size mismatch for wpe.weight"),
        ("gpt2", {"layer_norm_epsilon": -1e-5}, "layer_norm_epsilon=-1e-05: must be a finite"),
        ("gpt2", {"n_inner": 2.5}, "n_inner=2.5: must be a whole number >= 1"),
    ],
)  # fmt: skip
def test_a_model_that_is_not_understood_is_refused_by_name(tmp_path, kind, fields, told):
    with pytest.raises(ConfigError) as error:
        load(str(broken(tmp_path, kind, **fields)))
    assert told in str(error.value)
    assert "data.transformer=" in str(error.value)


def test_numbers_that_are_not_finite_and_tensors_under_two_names_are_refused(tmp_path):
    for name, change, told in (
        ("twice", {"bert.embeddings.LayerNorm.gamma": torch.ones(D)}, "LayerNorm.weight twice"),
        ("nan", {"embeddings.LayerNorm.bias": torch.full((D,), torch.nan)}, "has NaN or Inf"),
    ):
        where = write(tmp_path / name, "bert")
        safetensors(where / "model.safetensors", tensors("bert") | change)
        with pytest.raises(ConfigError, match=told):
            load(str(where))


def test_more_tokens_or_words_than_the_model_has_are_refused():
    model = load(str(tiny("bert")))
    with pytest.raises(ConfigError, match=rf"data\.T=17: must be <= {POSITIONS}, the positions"):
        forward(model, torch.zeros(2, 17, dtype=torch.int64))
    with pytest.raises(ConfigError, match="token 98: must be >= 0 and < vocab_size=98"):
        forward(model, TOKENS.clamp(min=98))


def test_files_that_are_missing_or_damaged_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no such folder; must be minilm, or a folder with"):
        load(str(tmp_path / "nowhere"))
    for name, told in (
        ("config.json", "must be JSON"),
        ("model.safetensors", "must be safetensors"),
    ):
        copy = broken(tmp_path / name)
        (copy / name).write_text("{")
        with pytest.raises(ConfigError, match=told):
            load(str(copy))
        (copy / name).unlink()
        with pytest.raises(ConfigError, match=f"{name}: no such file in the folder"):
            load(str(copy))
    copy = broken(tmp_path / "nested")
    (copy / "config.json").write_text("[" * 10**5)
    with pytest.raises(ConfigError, match="must be JSON"):
        load(str(copy))
    copy = broken(tmp_path / "unknown")
    words = json.loads((copy / "tokenizer.json").read_text())
    del words["model"]["vocab"]["[UNK]"]
    (copy / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(ConfigError, match=r"tokenizer\.json: .*must have a token for every part"):
        load(str(copy)).encoded(["caf\u00e9"], 2)
    copy = broken(tmp_path / "tokenizer")
    (copy / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="must be a tokenizer"):
        load(str(copy)).encoded(["a"], 2)


def test_a_folder_is_read_again_after_each_of_its_files_has_changed(tmp_path):
    copy = broken(tmp_path)
    assert load(str(copy)).encoded(["ab"], 4).tolist() == [[1, 68, 69, 2]]
    words = json.loads((copy / "tokenizer.json").read_text())
    words["post_processor"] = None
    (copy / "tokenizer.json").write_text(json.dumps(words))
    assert load(str(copy)).encoded(["ab"], 2).tolist() == [[68, 69]]


def test_sentences_are_truncated_and_short_ones_left_out():
    bert, gpt2 = (load(str(tiny(kind))) for kind in ("bert", "gpt2"))
    assert bert.encoded(["abcdef", "ab", "abc"], 5).tolist() == [[1, 68, 69, 70, 2]] * 2
    assert gpt2.encoded(["abcdef", "ab", "abc"], 5).tolist() == [[68, 69, 70, 71, 72]]
    assert bert.words([1, 68]) == ["[CLS]", "a"]
    assert bert.encoded(["a"], 5).shape == (0, 5)
