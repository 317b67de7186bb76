"""Folders of models: the network is the one that transformers loads from them, or refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from attnsvm import ConfigError
from attnsvm.data import Pretrained
from attnsvm.data.pretrained import forward, load
from attnsvm.data.pretrained.layer import with_one
from attnsvm.head import Linear
from attnsvm.model import CrossAttention

pytest.importorskip("tokenizers")  # of transformers, which is slow to import

from tests.pretrained import tiny as small
from tests.quick import beside

TOKENS = torch.randint(3, 90, (4, 7), generator=torch.Generator().manual_seed(0))


def as_published(kind: str, prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a tiny model under the names of a checkpoint, with what else it has."""
    given = {f"{prefix}{name}": tensor for name, tensor in small.tensors(kind).items()}
    if kind == "gpt2":
        seen = torch.ones(1, 1, small.POSITIONS, small.POSITIONS).tril()
        given |= {f"{prefix}h.{at}.attn.bias": seen for at in range(small.LAYERS)}
        return given | {"lm_head.weight": given[f"{prefix}wte.weight"]}  # tied
    given[f"{prefix}embeddings.position_ids"] = torch.arange(small.POSITIONS)[None]
    given[f"{prefix}pooler.dense.weight"] = torch.ones(small.D, small.D)
    if prefix:  # names of layer norms in old checkpoints, and the head of its training
        for old, new in (("gamma", "weight"), ("beta", "bias")):
            for name in [name for name in given if name.endswith(f"LayerNorm.{new}")]:
                given[name.removesuffix(new) + old] = given.pop(name)
        given["cls.predictions.bias"] = torch.zeros(98)
    return given


@pytest.mark.parametrize(
    ("kind", "prefix"), [("gpt2", ""), ("gpt2", "transformer."), ("bert", ""), ("bert", "bert.")]
)
def test_layers_rows_and_attention_are_those_of_the_library(tmp_path, kind, prefix):
    """Of a checkpoint as published: loaded, run and hooked by us, and loaded by transformers."""
    where = small.write(tmp_path / "model", kind)
    small.safetensors(where / "model.safetensors", as_published(kind, prefix))
    layers, last = forward(load(str(where)), TOKENS)
    network = small.library(kind).from_pretrained(
        small.tiny(kind), dtype=torch.float64, attn_implementation="eager"
    )
    with torch.no_grad():
        expected = network(TOKENS, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(last, expected.last_hidden_state, rtol=1e-12, atol=1e-12)
    for at, found in enumerate(layers):
        rows = expected.hidden_states[at]
        if kind == "gpt2":
            rows = network.h[at].ln_1(rows)
        torch.testing.assert_close(found.X, rows, rtol=1e-12, atol=1e-12)
        attention = found.log_attention().exp()
        torch.testing.assert_close(attention, expected.attentions[at], rtol=1e-10, atol=1e-12)
        logits = torch.stack([
            torch.einsum("ntd,de,nke->nkt", with_one(rows), found.W(head), with_one(rows))
            for head in range(small.HEADS)
        ], 1).masked_fill(~found.mask[:, None], -torch.inf)  # fmt: skip
        torch.testing.assert_close(logits.softmax(-1), attention)
    assert len(layers) == small.LAYERS
    with pytest.raises(ConfigError, match=r"head=3: must be >= 0 and < 3"):
        layers[0].W(small.HEADS)


def broken(tmp_path, kind="bert", **fields):
    """Return a copy of a tiny model with other fields in its config."""
    copy = tmp_path / "model"
    shutil.copytree(small.tiny(kind), copy)
    config = json.loads((copy / "config.json").read_text()) | fields
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(("kind", "fields", "told"), beside(__file__))
def test_a_model_that_is_not_understood_is_refused_by_name(tmp_path, kind, fields, told):
    with pytest.raises(ConfigError) as error:
        load(str(broken(tmp_path, kind, **fields)))
    assert told in str(error.value)
    assert "data.transformer=" in str(error.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"bert.embeddings.LayerNorm.gamma": torch.ones(small.D)}, "has embeddings.*weight twice"),
        ({"embeddings.LayerNorm.bias": torch.full((small.D,), torch.nan)}, "has NaN or Inf"),
    ],
)
def test_numbers_that_are_not_finite_and_two_names_are_refused(tmp_path, change, told):
    where = small.write(tmp_path, "bert")
    small.safetensors(where / "model.safetensors", small.tensors("bert") | change)
    with pytest.raises(ConfigError, match=told):
        load(str(where))


def test_more_tokens_or_words_than_the_model_has_are_refused():
    model = load(str(small.tiny("bert")))
    told = rf"data\.T=17: must be <= {small.POSITIONS}, the positions"
    with pytest.raises(ConfigError, match=told):
        forward(model, torch.zeros(2, 17, dtype=torch.int64))
    with pytest.raises(ConfigError, match="token 98: must be >= 0 and < vocab_size=98"):
        forward(model, TOKENS.clamp(min=98))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("config.json", "{", "must be JSON"),
        ("config.json", "[" * 10**5, "must be JSON"),
        ("config.json", None, "no such file in the folder"),
        ("model.safetensors", "{", "must be safetensors"),
        ("model.safetensors", None, "no such file in the folder"),
        ("tokenizer.json", "{", "must be a tokenizer"),
    ],
)
def test_files_that_are_missing_or_damaged_are_named(tmp_path, name, content, told):
    copy = broken(tmp_path)
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_text(content)
    with pytest.raises(ConfigError, match=f"{name}: .*{told}"):
        load(str(copy))


def test_a_folder_is_read_again_after_each_of_its_files_has_changed(tmp_path):
    copy = broken(tmp_path)
    assert load(str(copy)).encoded(["ab"], 4).tolist() == [[1, 68, 69, 2]]
    words = json.loads((copy / "tokenizer.json").read_text())
    words["post_processor"] = None
    del words["model"]["vocab"]["[UNK]"]
    (copy / "tokenizer.json").write_text(json.dumps(words))
    assert load(str(copy)).encoded(["ab"], 2).tolist() == [[68, 69]]
    with pytest.raises(ConfigError, match=r"tokenizer\.json: .*must have a token for every part"):
        load(str(copy)).encoded(["caf\u00e9"], 2)


def test_sentences_are_truncated_and_short_ones_left_out():
    bert, gpt2 = (load(str(small.tiny(kind))) for kind in ("bert", "gpt2"))
    assert bert.encoded(["abcdef", "ab", "abc"], 5).tolist() == [[1, 68, 69, 70, 2]] * 2
    assert gpt2.encoded(["abcdef", "ab", "abc"], 5).tolist() == [[68, 69, 70, 71, 72]]
    assert bert.encoded(["a"], 5).shape == (0, 5)


REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "minilm.json").read_text())


@pytest.mark.pretrained
def test_the_real_model_has_tokens_and_embeddings_of_its_published_library_and_its_heads():
    """Mean of the last rows, of unit norm. The library masks with float32 numbers: 4e-9 apart."""
    model, names = load("minilm"), ("sentences", "tokens", "embeddings")
    for sentence, tokens, expected in zip(*map(REFERENCE.get, names), strict=True):
        found = model.encoded([sentence], len(tokens))
        assert found.tolist() == [tokens]
        mean = forward(model, found)[1][0].mean(0)
        embedding, expected = mean / mean.norm(), torch.tensor(expected).double()
        torch.testing.assert_close(embedding[:32], expected, rtol=0, atol=1e-8)
    source = Pretrained("minilm", None, 5, 11, 6, 8, True, "none", "attended")
    batch = source.sample(Linear(), CrossAttention(), 2, 3)
    assert batch.X.shape == (2, 6, 8, 42)
    assert batch.weights.shape == (2, 12, 42, 42)
