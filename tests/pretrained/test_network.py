"""Forward passes and heads against torch's own attention, on tiny random models."""

from __future__ import annotations

import json
import math
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu

import attnsvm
from attnsvm import ConfigError
from attnsvm.data.pretrained import folder, forward
from attnsvm.data.pretrained.layer import with_one

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")

from tests.pretrained.tiny import HEADS, LAYERS, WIDTH, D, tiny

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
    model = folder(str(tiny(kind)))
    of = model.tensors.__getitem__
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
    layer = forward(folder(str(tiny(kind))), TOKENS)[0][1]
    rows = with_one(layer.X)
    for head in range(HEADS):
        logits = torch.einsum("ntd,de,nke->nkt", rows, layer.W(head), rows)
        logits = logits.masked_fill(~layer.mask, -torch.inf)
        torch.testing.assert_close(logits.softmax(-1), layer.log_attention()[:, head].exp())
    with pytest.raises(ConfigError, match=r"head=3: must be >= 0 and < 3"):
        layer.W(HEADS)


def test_a_gpt2_token_does_not_see_later_ones():
    model = folder(str(tiny("gpt2")))
    changed = TOKENS.clone()
    changed[:, -1] = 5
    for one, other in zip(forward(model, TOKENS)[0], forward(model, changed)[0], strict=True):
        torch.testing.assert_close(one.X[:, :-1], other.X[:, :-1], rtol=0, atol=1e-12)


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
        ("bert", {"hidden_act": "relu"}, "hidden_act='relu': must be gelu"),
        ("bert", {"num_attention_heads": 5}, "5 heads: must divide the width 12"),
        ("bert", {"num_hidden_layers": 3}, "encoder.layer.2.attention.self.key.weight: missing"),
        ("bert", {"num_hidden_layers": 0}, "num_hidden_layers=0: must be a whole number >= 1"),
        ("bert", {"intermediate_size": 7}, "intermediate.dense.weight: shape (20, 12); must be"),
        ("bert", {"position_embedding_type": "relative_key"}, "must be absolute"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "must be False"),
        ("gpt2", {"n_positions": 4}, "wpe.weight: shape"),
        ("bert", {"model_type": ["bert"]}, "model_type=['bert']: must be bert | gpt2"),
        ("bert", {"layer_norm_eps": "small"}, "layer_norm_eps='small': must be a number in [0, 1)"),
        ("bert", {"layer_norm_eps": None}, "layer_norm_eps=None: must be a number"),
        ("bert", {"layer_norm_eps": math.nan}, "layer_norm_eps=nan: must be a number"),
        ("bert", {"type_vocab_size": "2"}, "type_vocab_size='2': must be a whole number >= 1"),
        ("gpt2", {"layer_norm_epsilon": -1e-5}, "layer_norm_epsilon=-1e-05: must be a number"),
        ("gpt2", {"n_inner": 2.5}, "n_inner=2.5: must be a whole number >= 1"),
    ],
)  # fmt: skip
def test_a_model_that_is_not_understood_is_refused_by_name(tmp_path, kind, fields, told):
    if fields.get("n_positions"):
        with pytest.raises(ConfigError, match=r"data\.T=7: must be <= n_positions=4"):
            forward(folder(str(broken(tmp_path, kind, **fields))), TOKENS)
        return
    with pytest.raises(ConfigError) as error:
        forward(folder(str(broken(tmp_path, kind, **fields))), TOKENS)
    assert told in str(error.value)
    assert "data.transformer=" in str(error.value)


def test_files_that_are_missing_or_damaged_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no such folder; must be minilm, or a folder with"):
        folder(str(tmp_path / "nowhere"))
    for name, told in (
        ("config.json", "must be JSON"),
        ("model.safetensors", "must be safetensors"),
    ):
        copy = broken(tmp_path / name)
        (copy / name).write_text("{")
        with pytest.raises(ConfigError, match=told):
            folder(str(copy))
        (copy / name).unlink()
        with pytest.raises(ConfigError, match=f"{name}: no such file in the folder"):
            folder(str(copy))
    copy = broken(tmp_path / "nested")
    (copy / "config.json").write_text("[" * 10**5)
    with pytest.raises(ConfigError, match="must be JSON"):
        folder(str(copy))
    copy = broken(tmp_path / "unknown")
    words = json.loads((copy / "tokenizer.json").read_text())
    del words["model"]["vocab"]["[UNK]"]
    (copy / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(ConfigError, match=r"tokenizer\.json: .*must have a token for every part"):
        folder(str(copy)).encoded(["caf\u00e9"], 2)
    copy = broken(tmp_path / "tokenizer")
    (copy / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="must be a tokenizer"):
        folder(str(copy)).encoded(["a"], 2)


def test_a_folder_is_read_again_after_each_of_its_files_has_changed(tmp_path):
    copy = broken(tmp_path)
    assert folder(str(copy)).encoded(["ab"], 4).tolist() == [[1, 68, 69, 2]]
    words = json.loads((copy / "tokenizer.json").read_text())
    words["post_processor"] = None
    (copy / "tokenizer.json").write_text(json.dumps(words))
    assert folder(str(copy)).encoded(["ab"], 2).tolist() == [[68, 69]]


def test_sentences_are_truncated_and_short_ones_left_out():
    bert, gpt2 = (folder(str(tiny(kind))) for kind in ("bert", "gpt2"))
    assert bert.encoded(["abcdef", "ab", "abc"], 5).tolist() == [[1, 68, 69, 70, 2]] * 2
    assert gpt2.encoded(["abcdef", "ab", "abc"], 5).tolist() == [[68, 69, 70, 71, 72]]
    assert bert.words([1, 68]) == ["[CLS]", "a"]
    assert bert.encoded(["a"], 5).shape == (0, 5)


# --- heads of torch modules -----------------------------------------------------------------------


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_heads_of_multihead_attention(bias, batch_first):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(
        8, 2, bias=bias, kdim=6, vdim=6, batch_first=batch_first
    ).double()
    if bias:
        nn.init.normal_(module.in_proj_bias)
    query, key = rows(3, 4, 8), rows(3, 5, 6, seed=1)
    given = (query, key) if batch_first else (query.transpose(0, 1), key.transpose(0, 1))
    hidden = torch.zeros(3, 5, dtype=torch.bool)
    hidden[1, 2:] = True
    (layer,) = attnsvm.heads_of(
        module, given[0], given[1], given[1], key_padding_mask=hidden
    ).values()
    expected = module(
        given[0], given[1], given[1], key_padding_mask=hidden, average_attn_weights=False
    )[1]
    torch.testing.assert_close(layer.log_attention().exp(), expected)
    assert layer.W(1).shape == (7, 9)


def test_heads_of_an_encoder_are_found_in_order_and_with_their_mask():
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), 2
    ).double().eval()  # fmt: skip
    X = rows(3, 5, 8)
    later = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    found = attnsvm.heads_of(encoder, X, mask=later)
    assert list(found) == ["layers.0.self_attn", "layers.1.self_attn"]
    torch.testing.assert_close(found["layers.0.self_attn"].X, X)
    torch.testing.assert_close(found["layers.1.self_attn"].X, encoder.layers[0](X, src_mask=later))
    assert torch.equal(found["layers.1.self_attn"].mask[0], torch.ones(5, 5).tril().bool())


class Projected(nn.Module):
    """Attention as in common libraries, with children of these names."""

    def __init__(self, key: str, query: str) -> None:
        super().__init__()
        self.num_heads = 2
        self.names = key, query
        for name in self.names:
            setattr(self, name, nn.Linear(6, 8, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        K, Q = (getattr(self, name)(x).unflatten(-1, (2, 4)).transpose(1, 2) for name in self.names)
        return (Q @ K.mT / math.sqrt(4)).softmax(-1)


@pytest.mark.parametrize("names", [("k_proj", "q_proj"), ("key", "query")])
def test_heads_of_modules_with_linear_children(names):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Identity(), Projected(*names))
    X = rows(3, 5, 6)
    layer = attnsvm.heads_of(module, X)["1"]
    torch.testing.assert_close(layer.log_attention().exp(), module(X))
    causal = attnsvm.heads_of(module, X, causal=True)["1"].log_attention().exp()
    assert (causal.triu(1) == 0).all()


class Turned(nn.Module):
    """Stands for a rotary embedding, of which the class is named only."""


class RotaryEmbedding(Turned):
    pass


class RoPE(Turned):
    pass


class Turning(Turned):
    def apply_rotary(self) -> None:
        pass


def test_rotary_positions_anywhere_in_the_model_are_refused():
    """Of the parent, by class or by attribute, a function or a buffer too."""
    for holder, value in (
        ("turn", RotaryEmbedding()), ("turn", RoPE()), ("turn", Turning()), ("rope", Turned()),
        ("apply_rotary", math.cos), ("rope_theta", 1e4), ("rel_pos_bias", Turned()),
        ("config", SimpleNamespace(rope_theta=1e4)),
    ):  # fmt: skip
        model = nn.Sequential(Projected("k_proj", "q_proj"))
        setattr(model, holder, value)
        model.forward = model[0].forward
        with pytest.raises(ConfigError, match="0: must have no rotary or relative positions"):
            attnsvm.heads_of(model, rows(3, 5, 6))
        assert not model[0].k_proj._forward_pre_hooks
    for holder, value in (("rope", None), ("use_rope", False), ("property_of", 1), ("q_norm", 0),
                          ("scale", 0.5), ("scaling", True), ("key_norm", nn.Identity()),
                          ("europe", "on"),
                          ("config", SimpleNamespace(rope_scaling=None))):  # fmt: skip
        module = Projected("k_proj", "q_proj")
        setattr(module, holder, value)
        assert len(attnsvm.heads_of(module, rows(3, 5, 6))) == 1


def test_projections_that_are_called_by_keyword_are_refused():
    class Named(Projected):
        def forward(self, x):
            return self.q_proj(input=x) @ self.k_proj(input=x).mT

    with pytest.raises(ConfigError, match=r"q_proj: must be called with its rows first"):
        attnsvm.heads_of(nn.Sequential(Named("k_proj", "q_proj")), rows(3, 5, 6))


def test_layers_that_run_more_than_once_are_refused_and_no_hook_is_left():
    shared = nn.MultiheadAttention(6, 2, batch_first=True).double()

    class Twice(nn.Module):
        def __init__(self, part):
            super().__init__()
            self.part = part

        def forward(self, x):
            given = (x, x, x) if isinstance(self.part, nn.MultiheadAttention) else (x,)
            return self.part(*given), self.part(*given)

    for part in (shared, Projected("key", "query")):
        with pytest.raises(ConfigError, match="part: runs more than once"):
            attnsvm.heads_of(Twice(part), rows(3, 5, 6))
        assert not any(one._forward_pre_hooks for one in part.modules())
    unnamed = Projected("key", "query")
    del unnamed.num_heads
    with pytest.raises(ConfigError, match="must have the number of heads"):
        attnsvm.heads_of(nn.ModuleList([shared, unnamed]), rows(3, 5, 6))
    assert not shared._forward_pre_hooks


def test_modules_without_bilinear_attention_are_refused():
    with pytest.raises(ConfigError, match=r"must contain torch\.nn\.MultiheadAttention"):
        attnsvm.heads_of(nn.Linear(3, 3), torch.zeros(2, 3))
    with pytest.raises(ConfigError, match="add_bias_kv"):
        attnsvm.heads_of(nn.MultiheadAttention(4, 2, add_bias_kv=True), *[torch.zeros(2, 3, 4)] * 3)
    turned = Projected("k_proj", "q_proj")
    turned.rotary_emb = nn.Identity()
    with pytest.raises(ConfigError, match="rotary"):
        attnsvm.heads_of(turned, rows(3, 5, 6))
    for name, value, told in (
        ("q_norm", nn.LayerNorm(4), "must have no q_norm"),
        ("key_layernorm", nn.LayerNorm(4), "must have no key_layernorm"),
        ("scaling", 0.25, r"scaling=0\.25: must be 0\.5, m\^-1/2 for m=4"),
        ("scale", torch.tensor(2.0), "scale=2: must be 0.5"),
        ("config", SimpleNamespace(position_embedding_type="relative_key"), "must be absolute"),
    ):
        other = Projected("k_proj", "q_proj")
        setattr(other, name, value)
        with pytest.raises(ConfigError, match=told):
            attnsvm.heads_of(other, rows(3, 5, 6))
    unnamed = Projected("key", "query")
    del unnamed.num_heads
    with pytest.raises(ConfigError, match="must have the number of heads"):
        attnsvm.heads_of(unnamed, rows(3, 5, 6))
    added = nn.MultiheadAttention(4, 2, batch_first=True).double()
    with pytest.raises(ConfigError, match="attn_mask: must be boolean, or 0 and -inf"):
        attnsvm.heads_of(added, *[rows(2, 3, 4)] * 3, attn_mask=rows(3, 3))
