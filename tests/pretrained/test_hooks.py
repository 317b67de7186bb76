"""Attention caught by hooks in torch modules and in those of transformers, or refused."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import _global_forward_hooks
from torch.testing import assert_close

import attnsvm
from attnsvm import ConfigError
from tests.kkt import normal as rows
from tests.pretrained.tiny import FIELDS

IDS = torch.randint(3, 50, (3, 7), generator=torch.Generator().manual_seed(0))


def attention_of(layer):
    return layer.log_attention().exp()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_heads_of_multihead_attention(bias, batch_first):
    torch.manual_seed(0)
    sizes = {"kdim": 6, "vdim": 6, "bias": bias, "batch_first": batch_first}
    module = nn.MultiheadAttention(8, 2, **sizes).double()
    if bias:
        nn.init.normal_(module.in_proj_bias)
    query, key = rows(3, 4, 8), rows(3, 5, 6, seed=1)
    inputs = [x if batch_first else x.transpose(0, 1) for x in (query, key, key)]
    hidden = torch.zeros(3, 5, dtype=torch.bool)
    hidden[1, 2:] = True
    (layer,) = attnsvm.heads_of(module, *inputs, key_padding_mask=hidden).values()
    expected = module(*inputs, key_padding_mask=hidden, average_attn_weights=False)[1]
    assert_close(attention_of(layer), expected)
    assert_close(layer.Z, query)
    assert torch.equal(layer.mask, ~hidden[:, None].expand(3, 4, 5))
    assert layer.W(1).shape == (7, 9)


@pytest.mark.parametrize("padded", [False, True])
def test_heads_of_an_encoder_are_found_in_order_and_with_their_mask(padded):
    """In eval() too, where torch has a fast path that runs no hooks."""
    torch.manual_seed(0)
    part = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder, X = nn.TransformerEncoder(part, 2).double().eval(), rows(3, 5, 8)
    mask = torch.ones(3, 5, 5).tril().bool()
    options = {"mask": nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)}
    if padded:
        mask = torch.tensor([5, 3, 5])[:, None, None] > torch.arange(5).expand(5, 5)
        options = {"src_key_padding_mask": ~mask[:, 0]}
    layers = attnsvm.heads_of(encoder, X, **options)
    assert torch.backends.mha.get_fastpath_enabled()
    assert list(layers) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert_close(layers["layers.0.self_attn"].X, X)
    assert all(layer.mask.equal(mask) for layer in layers.values())


class Projected(nn.Module):
    """Attention as in common libraries, with children of these names; `logits` is what it does."""

    def __init__(self, key: str = "k_proj", query: str = "q_proj", logits: Any = None) -> None:
        super().__init__()
        self.names, self.logits = (key, query), logits or READ["plain"]
        torch.manual_seed(0)
        for name in self.names:
            setattr(self, name, nn.Linear(6, 8, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        K, Q = (getattr(self, name)(x).unflatten(-1, (2, 4)).transpose(1, 2) for name in self.names)
        return self.logits(Q, K, Q @ K.mT / 2).softmax(-1)


def fused(Q: torch.Tensor, K: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return logits whose softmax is what torch's fused attention gives."""
    identity = torch.eye(K.shape[-2], dtype=K.dtype).expand(*K.shape[:2], -1, -1)
    return F.scaled_dot_product_attention(Q, K, identity, **options).log()


READ: dict[str, Any] = {
    "plain": lambda Q, K, L: L,
    "without the factor": lambda Q, K, L: 2 * L,
    "padding": lambda Q, K, L: L.index_fill(3, torch.tensor(4), -1e30),
    "fused, causal": lambda Q, K, L: fused(Q, K, is_causal=True),
    "(N H, S, T)": lambda Q, K, L: torch.bmm(Q.flatten(0, 1), K.flatten(0, 1).mT) / 2,
}


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", READ)
def test_heads_of_modules_with_linear_children(name, kind):
    module = nn.Sequential(nn.Identity(), Projected("key", "query", READ[name])).to(kind)
    X = rows(3, 5, 6).to(kind)
    layer = attnsvm.heads_of(module, X)["1"]
    expected = module(X).view(3, 2, 5, 5).double()
    near = 1e-14 if kind == torch.float64 else 4 * torch.finfo(kind).eps
    assert_close(attention_of(layer), expected, rtol=0, atol=near)
    assert torch.equal(layer.mask, (expected > 0).any(1))


REFUSED: dict[str, Any] = {
    "relative positions": lambda Q, K, L: L + 0.1 * torch.arange(5.0).double(),
    "another factor": lambda Q, K, L: L * 1.001,
    "a mask of one head": lambda Q, K, L: L.index_fill(3, torch.tensor(4), -1e30).where(HEAD_1, L),
    "heads in another order": lambda Q, K, L: L.flip(1),
    "a sink": lambda Q, K, L: F.pad(L, (1, 0)),
    "no number": lambda Q, K, L: L * torch.nan,
}
HEAD_1 = torch.tensor([False, True])[:, None, None]


class Called(Projected):
    """A module with these parts, called as `run` says."""

    def __init__(self, run: Any, **parts: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, X: torch.Tensor) -> Any:
        return self.run(self, X)


NOT_THE_SOFTMAX = "its attention is not the softmax"
MODULES = {
    **{name: (Projected(logits=of), NOT_THE_SOFTMAX) for name, of in REFUSED.items()},
    "added to logits": (
        Called(
            lambda self, X: self.part(X, X, X, attn_mask=rows(5, 5)),
            part=nn.MultiheadAttention(6, 2, batch_first=True).double(),
        ),
        NOT_THE_SOFTMAX,
    ),
    "talking heads": (
        Called(lambda self, X: (X, Projected.forward(self, X).flip(1))),
        "the attention that it returns must be the softmax",
    ),
    "a shared layer": (
        Called(lambda self, X: (self.part(X), self.part(X)), part=Projected("key", "query")),
        "part: runs more than once",
    ),
    "fewer keys than queries": (
        Called(
            lambda self, X: (self.k_proj(X), self.q_proj(X)),
            k_proj=nn.Linear(6, 4, dtype=torch.float64),
        ),
        "must have as many keys as queries",
    ),
    "no attention": (nn.Linear(6, 3).double(), r"must contain torch\.nn\.MultiheadAttention"),
    "float16": (Projected().half(), r"must be .* module\.(float|double)\(\)"),
}


@pytest.mark.parametrize("name", MODULES)
def test_what_is_not_the_softmax_of_bilinear_logits_is_refused(name):
    """Also dtypes whose rounding hides other attention."""
    module, message = MODULES[name]
    with pytest.raises(ConfigError, match=message):
        attnsvm.heads_of(module, 3 * rows(3, 5, 6).to(next(module.parameters())))
    assert not _global_forward_hooks
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_zero_that_may_be_an_underflow_is_refused():
    """In float32 exp(-200) is zero: no mask tells such a token from one that is hidden."""
    module, X = Projected(), 30 * rows(3, 5, 6)
    attnsvm.heads_of(module, X)
    with pytest.raises(ConfigError, match=r"underflows; must be float64.*module\.double\(\)"):
        attnsvm.heads_of(module.float(), X.float())


@pytest.mark.parametrize(("kind", "name"), [("Bert", "bert"), ("GPT2", "gpt2")])
def test_heads_of_models_of_transformers(kind, name):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**FIELDS[name], attn_implementation="eager")
    network = getattr(transformers, f"{kind}Model")(config).eval()
    for dtype in (torch.float32, torch.float64):
        layers = attnsvm.heads_of(network.to(dtype), IDS)
        expected = network(IDS, output_attentions=True).attentions
        for layer, attention in zip(layers.values(), expected, strict=True):
            error = attention_of(layer) - attention.double()
            assert error.abs().amax() <= (1e-6 if dtype == torch.float32 else 1e-14)
