"""Attention caught by hooks in torch modules and in those of transformers."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import attnsvm
from attnsvm import ConfigError
from tests.kkt import normal as rows
from tests.quick import quick_rows


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
    """Attention as in common libraries, with children of these names; `logits` is what it does."""

    def __init__(self, key: str = "k_proj", query: str = "q_proj", logits: Any = None) -> None:
        super().__init__()
        self.num_heads = 2
        self.names = key, query
        self.logits = logits or (lambda Q, K: Q @ K.mT / 2)
        for name in self.names:
            setattr(self, name, nn.Linear(6, 8, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        K, Q = (getattr(self, name)(x).unflatten(-1, (2, 4)).transpose(1, 2) for name in self.names)
        return self.logits(Q, K).softmax(-1)


LATER = torch.full((5, 5), -math.inf, dtype=torch.float64).triu(1)


@pytest.mark.parametrize("names", [("k_proj", "q_proj"), ("key", "query")])
def test_heads_of_modules_with_linear_children(names):
    torch.manual_seed(0)
    X = rows(3, 5, 6)
    for causal, logits in ((False, None), (True, lambda Q, K: Q @ K.mT / 2 + LATER)):
        module = nn.Sequential(nn.Identity(), Projected(*names, logits))
        layer = attnsvm.heads_of(module, X, causal=causal)["1"]
        torch.testing.assert_close(layer.log_attention().exp(), module(X))
        assert (layer.log_attention().exp().triu(1) == 0).all() == causal
        with pytest.raises(ConfigError, match="1: its attention is not that of its maps"):
            attnsvm.heads_of(module, X, causal=not causal)


def turned(V: torch.Tensor) -> torch.Tensor:
    """Return rows turned by their positions, as rotary embeddings do."""
    angle = torch.arange(V.shape[-2], dtype=V.dtype)[:, None]
    x, y = V.chunk(2, -1)
    return torch.cat([angle.cos() * x - angle.sin() * y, angle.sin() * x + angle.cos() * y], -1)


def fused(Q: torch.Tensor, K: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return logits whose softmax is what torch's fused attention gives."""
    one = torch.eye(K.shape[-2], dtype=K.dtype).expand(*K.shape[:2], -1, -1)
    return F.scaled_dot_product_attention(Q, K, one, **options).log()


OTHER: dict[str, Any] = {
    "rotary": lambda Q, K: turned(Q) @ turned(K).mT / 2,
    "relative": lambda Q, K: Q @ K.mT / 2 + torch.arange(5.0).double(),
    "relative to the query": lambda Q, K: Q @ K.mT / 2 - (LATER == 0).cumsum(-1),
    "norm of queries": lambda Q, K: F.layer_norm(Q, (4,)) @ K.mT / 2,
    "norm of keys": lambda Q, K: Q @ F.normalize(K, dim=-1).mT / 2,
    "no factor": lambda Q, K: Q @ K.mT,
    "another factor": lambda Q, K: Q @ K.mT / 2.001,
    "a soft cap": lambda Q, K: 5 * (Q @ K.mT / 10).tanh(),
    "heads in another order": lambda Q, K: (Q @ K.mT / 2).flip(1),
    "keys for queries": lambda Q, K: K @ Q.mT / 2,
    "one head for all": lambda Q, K: Q @ K[:, :1].mT / 2,
    "a window": lambda Q, K: Q @ K.mT / 2 + LATER.triu(3).mT + LATER.triu(3),
    "padding of one sequence": lambda Q, K: (Q @ K.mT / 2).index_fill(3, torch.tensor(4), -1e30),
    "fused, another factor": lambda Q, K: fused(Q, K, scale=0.4),
    "fused, causal": lambda Q, K: fused(Q, K, is_causal=True),
    "a sink": lambda Q, K: F.pad(Q @ K.mT / 2, (1, 0)),
    "tiny logits": lambda Q, K: 1e-3 * Q @ K.mT,
}


@pytest.mark.parametrize("logits", OTHER.values(), ids=OTHER)
def test_other_attention_than_that_of_the_maps_is_refused(logits):
    torch.manual_seed(0)
    model = nn.Sequential(Projected(logits=logits))
    with pytest.raises(ConfigError, match=r"0: (its attention is not|must compute)"):
        attnsvm.heads_of(model, rows(3, 5, 6))
    assert not model[0].k_proj._forward_pre_hooks
    assert torch.backends.mha.get_fastpath_enabled()


SAME: dict[str, Any] = {
    "fused": lambda Q, K: fused(Q, K),
    "scaled before": lambda Q, K: (Q / 4) @ (2 * K).mT,
    "without the largest": lambda Q, K: Q @ K.mT / 2 - (Q @ K.mT / 2).amax(-1, keepdim=True),
    "(N H, S, T)": lambda Q, K: torch.bmm(Q.flatten(0, 1), K.flatten(0, 1).mT) / 2,
}


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("logits", SAME.values(), ids=SAME)
def test_other_ways_to_the_same_attention_are_not_refused(logits, kind):
    """Whatever names the module has; in any precision."""
    torch.manual_seed(0)
    module = Projected(logits=logits).to(kind)
    module.rope_theta, module.scaling, module.q_norm = 1e4, 0.25, nn.LayerNorm(4)
    X = rows(3, 5, 6).to(kind)
    layer = attnsvm.heads_of(module, X)[""]
    expected = module(X).view(3, 2, 5, 5).double()
    near = 1e-14 if kind == torch.float64 else 4 * torch.finfo(kind).eps
    torch.testing.assert_close(layer.log_attention().exp(), expected, rtol=0, atol=near)


def test_the_number_of_heads_must_be_known_and_fit():
    for count, told in ((None, "must have the number of heads"), (3, "3 heads: must divide")):
        module = Projected()
        module.num_heads = count
        with pytest.raises(ConfigError, match=told):
            attnsvm.heads_of(module, rows(3, 5, 6))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_a_padded_encoder_is_read_with_its_mask(training, nested):
    """In evaluation torch would nest its sequences, and fuse its layers."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).double().train(training)
    X, padding = rows(3, 5, 8), torch.zeros(3, 5).bool()
    padding[0, 3:] = padding[2, 1:] = True
    with torch.inference_mode():
        found = attnsvm.heads_of(encoder, X, src_key_padding_mask=padding)
    assert len(found) == 2
    for read in found.values():
        assert torch.equal(read.mask, ~padding[:, None].expand(3, 5, 5))
        assert not read.X.is_inference()
    first = encoder.layers[0].self_attn
    expected = first(X, X, X, key_padding_mask=padding, average_attn_weights=False)[1]
    (read, *_) = found.values()
    torch.testing.assert_close(read.log_attention().exp(), expected)
    assert torch.backends.mha.get_fastpath_enabled()


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


IDS = torch.randint(3, 90, (3, 7), generator=torch.Generator().manual_seed(0))
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99}
NEO = {
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": 99,
    "attention_types": [[["global"], 2]],
}
LLAMA = {**SIZES, "num_key_value_heads": 4, "head_dim": 8, "pad_token_id": 0}
LIBRARY = quick_rows(
    ("Bert", SIZES, "read"),
    ("GPT2", GPT, "read"),
    ("GPTNeo", NEO, "refused"),
    ("GPTBigCode", {**GPT, "multi_query": False}, "refused"),
    ("GPTBigCode", {**GPT, "multi_query": True}, "refused"),
    ("GPT2", {**GPT, "scale_attn_by_inverse_layer_idx": True}, "refused"),
    ("GPT2", {**GPT, "scale_attn_weights": False}, "refused"),
    ("OPT", {**SIZES, "ffn_dim": 64, "word_embed_proj_dim": 32}, "read"),
    ("Roberta", SIZES, "read"),
    ("Electra", {**SIZES, "embedding_size": 32}, "read"),
    ("Albert", {**SIZES, "embedding_size": 16}, "refused"),
    ("DistilBert", {"dim": 32, "n_heads": 4, "vocab_size": 99}, "refused"),
    ("Deberta", {**SIZES, "relative_attention": True, "pos_att_type": ["c2p"]}, "refused"),
    ("Llama", LLAMA, "refused"),
    ("Llama", {**LLAMA, "num_key_value_heads": 2}, "refused"),
    ("Mistral", LLAMA, "refused"),
    ("Qwen2", LLAMA, "refused"),
    ("Gemma", LLAMA, "refused"),
    ("Gemma2", LLAMA, "refused"),
    ("Phi", {**SIZES, "pad_token_id": 0}, "refused"),
    ("Bloom", {**GPT, "hidden_size": 32}, "refused"),
    ("Falcon", SIZES, "refused"),
    ("GPTJ", {**GPT, "rotary_dim": 4}, "refused"),
    ("RoFormer", {**SIZES, "embedding_size": 32}, "refused"),
    ("Esm", {**SIZES, "pad_token_id": 1, "position_embedding_type": "rotary"}, "refused"),
    ("BigBird", SIZES, "read"),
    ("Longformer", {**SIZES, "attention_window": 4}, "refused"),
)


@pytest.mark.parametrize(("kind", "sizes", "outcome"), LIBRARY)
@pytest.mark.filterwarnings("ignore")
def test_models_of_the_library_are_read_right_or_refused(kind, sizes, outcome):
    """None is read wrong: the attention is that which the library returns."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes, attn_implementation="eager")
    model = getattr(transformers, f"{kind}Model")(config).eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    causal = kind in ("GPT2", "OPT", "GPTNeo", "GPTBigCode")
    if outcome == "refused":
        with pytest.raises(ConfigError, match="must"):
            attnsvm.heads_of(model, IDS, causal=causal)
        return
    layers = attnsvm.heads_of(model, IDS, causal=causal)
    with torch.no_grad():
        expected = model(IDS, output_attentions=True).attentions
    for layer, attention in zip(layers.values(), expected, strict=True):
        error = layer.log_attention().exp() - attention.double()
        assert error.abs().max() <= 1e-5
    if kind != "BigBird":
        model.set_attn_implementation("sdpa")
        fused = attnsvm.heads_of(model, IDS, causal=causal)
        assert list(fused) == list(layers)
