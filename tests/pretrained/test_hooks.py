"""Attention caught by hooks in torch modules and in those of transformers."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import attnsvm
from attnsvm import ConfigError
from tests.kkt import normal as rows


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_heads_of_multihead_attention(bias, batch_first):
    torch.manual_seed(0)
    sizes = {"kdim": 6, "vdim": 6, "bias": bias, "batch_first": batch_first}
    module = nn.MultiheadAttention(8, 2, **sizes).double()
    if bias:
        nn.init.normal_(module.in_proj_bias)
    query, key = rows(3, 4, 8), rows(3, 5, 6, seed=1)
    given = [x if batch_first else x.transpose(0, 1) for x in (query, key, key)]
    hidden = torch.zeros(3, 5, dtype=torch.bool)
    hidden[1, 2:] = True
    (layer,) = attnsvm.heads_of(module, *given, key_padding_mask=hidden).values()
    expected = module(*given, key_padding_mask=hidden, average_attn_weights=False)[1]
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


def named(name: str, **methods: Any) -> nn.Module:
    """Stands for what its name says, as a rotary embedding."""
    return type(name, (nn.Module,), methods)()


def attention_with(name: str, value: Any) -> nn.Module:
    part = Projected("k_proj", "q_proj")
    setattr(part, name, value)
    return part


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("turn", named("RotaryEmbedding")), ("turn", named("RoPE")), ("rope", named("Turned")),
        ("turn", named("Turning", apply_rotary=print)), ("rel_pos_bias", named("Turned")),
        ("apply_rotary", math.cos), ("rope_theta", 1e4), ("rotary_emb", nn.Identity()),
        ("config", SimpleNamespace(rope_theta=1e4)),
    ],
)  # fmt: skip
def test_rotary_positions_anywhere_in_the_model_are_refused(name, value):
    """Of the parent, by class or by attribute, a function or a buffer too."""
    model = nn.Sequential(Projected("k_proj", "q_proj"))
    model.forward = model[0].forward
    setattr(model, name, value)
    with pytest.raises(ConfigError, match="0: must have no rotary or relative positions"):
        attnsvm.heads_of(model, rows(3, 5, 6))
    assert not model[0].k_proj._forward_pre_hooks


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rope", None), ("use_rope", False), ("property_of", 1), ("q_norm", 0), ("scale", 0.5),
        ("scaling", True), ("key_norm", nn.Identity()), ("europe", "on"),
        ("config", SimpleNamespace(rope_scaling=None)),
    ],
)  # fmt: skip
def test_names_that_are_off_or_mean_something_else_are_not_refused(name, value):
    assert len(attnsvm.heads_of(attention_with(name, value), rows(3, 5, 6))) == 1


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("q_norm", nn.LayerNorm(4), "must have no q_norm"),
        ("key_layernorm", nn.LayerNorm(4), "must have no key_layernorm"),
        ("scaling", 0.25, r"scaling=0\.25: must be 0\.5, m\^-1/2 for m=4"),
        ("scale", torch.tensor(2.0), "scale=2: must be 0.5"),
        ("config", SimpleNamespace(position_embedding_type="relative_key"), "must be absolute"),
        ("num_heads", None, "must have the number of heads"),
        ("num_heads", 3, "3 heads: must divide the rows of a map"),
    ],
)
def test_logits_that_are_seen_not_to_be_bilinear_are_refused(name, value, told):
    with pytest.raises(ConfigError, match=told):
        attnsvm.heads_of(attention_with(name, value), rows(3, 5, 6))


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


def test_modules_without_bilinear_attention_are_refused():
    with pytest.raises(ConfigError, match=r"must contain torch\.nn\.MultiheadAttention"):
        attnsvm.heads_of(nn.Linear(3, 3), torch.zeros(2, 3))
    with pytest.raises(ConfigError, match=r"inputs: torch.float64; .* ROWS.to\(torch.float32\)"):
        attnsvm.heads_of(nn.Linear(3, 3), rows(2, 3))
    with pytest.raises(ConfigError, match="add_bias_kv"):
        attnsvm.heads_of(nn.MultiheadAttention(4, 2, add_bias_kv=True), *[torch.zeros(2, 3, 4)] * 3)
    added = nn.MultiheadAttention(4, 2, batch_first=True).double()
    with pytest.raises(ConfigError, match="attn_mask: must be boolean, or 0 and -inf"):
        attnsvm.heads_of(added, *[rows(2, 3, 4)] * 3, attn_mask=rows(3, 3))

    class Named(Projected):
        def forward(self, x):
            return self.q_proj(input=x) @ self.k_proj(input=x).mT

    with pytest.raises(ConfigError, match=r"q_proj: must be called with its rows first"):
        attnsvm.heads_of(Named("k_proj", "q_proj"), rows(3, 5, 6))
