"""Folders of models: the network is the one that transformers loads from them, or refused."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

import attnsvm
from attnsvm import ConfigError
from attnsvm.data import Pretrained
from attnsvm.data.pretrained.model import load
from attnsvm.head import Linear
from attnsvm.model import CrossAttention

pytest.importorskip("tokenizers")  # of transformers, which is slow to import

from tests.pretrained import tiny as small

TOKENS = torch.randint(3, 90, (4, 7), generator=torch.Generator().manual_seed(0))


def as_published(kind: str, prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a tiny model under the names of a checkpoint, with what else it has."""
    tensors = {f"{prefix}{name}": tensor for name, tensor in small.tensors(kind).items()}
    if kind == "gpt2":
        seen = torch.ones(1, 1, small.POSITIONS, small.POSITIONS).tril()
        tensors |= {f"{prefix}h.{at}.attn.bias": seen for at in range(small.LAYERS)}
        return tensors | {"lm_head.weight": tensors[f"{prefix}wte.weight"]}  # tied
    tensors[f"{prefix}embeddings.position_ids"] = torch.arange(small.POSITIONS)[None]
    tensors[f"{prefix}pooler.dense.weight"] = torch.ones(small.D, small.D)
    if prefix:  # names of layer norms in old checkpoints, and the head of its training
        for old, new in (("gamma", "weight"), ("beta", "bias")):
            for name in [name for name in tensors if name.endswith(f"LayerNorm.{new}")]:
                tensors[name.removesuffix(new) + old] = tensors.pop(name)
        tensors["cls.predictions.bias"] = torch.zeros(98)
    return tensors


@pytest.mark.parametrize(
    ("kind", "prefix"), [("gpt2", ""), ("gpt2", "transformer."), ("bert", ""), ("bert", "bert.")]
)
def test_layers_rows_and_attention_are_those_of_the_library(tmp_path, kind, prefix):
    """Of a checkpoint as published: loaded and hooked by us, and loaded by transformers."""
    folder = small.write(tmp_path / "model", kind)
    small.safetensors(folder / "model.safetensors", as_published(kind, prefix))
    model = load(str(folder))
    assert model.causal == (kind == "gpt2")
    assert model.largest == {"T": small.POSITIONS, "at_layer": 1, "at_head": 2}
    layers = [*attnsvm.heads_of(model.network, TOKENS).values()]
    network = small.library(kind).from_pretrained(
        small.tiny(kind), dtype=torch.float64, attn_implementation="eager"
    )
    with torch.no_grad():
        expected = network(TOKENS, output_attentions=True, output_hidden_states=True)
        last = model.network(TOKENS).last_hidden_state
    torch.testing.assert_close(last, expected.last_hidden_state, rtol=1e-12, atol=1e-12)
    assert len(layers) == small.LAYERS
    for at, layer in enumerate(layers):
        rows = expected.hidden_states[at]
        if kind == "gpt2":
            rows = network.h[at].ln_1(rows)
        torch.testing.assert_close(layer.X, rows, rtol=1e-12, atol=1e-12)
        attention = layer.log_attention().exp()
        torch.testing.assert_close(attention, expected.attentions[at], rtol=1e-10, atol=1e-12)
        one = torch.cat([rows, torch.ones_like(rows[..., :1])], -1)
        W = torch.stack([layer.W(head) for head in range(small.HEADS)])
        logits = torch.einsum("ntd,hde,nke->nhkt", one, W, one)
        logits = logits.masked_fill(~layer.mask[:, None], -torch.inf)
        torch.testing.assert_close(logits.softmax(-1), attention)


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch, tmp_path):
    folder = small.write(tmp_path / "model", "bert")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"must be installed: pip install 'attnsvm\["):
        load(str(folder))


LARGE = torch.full((small.D,), torch.nan)


@pytest.mark.parametrize(
    ("kind", "fields", "change", "told"),
    [
        ("bert", {"model_type": "unknown"}, {}, "unknown"),
        (
            "bert",
            {"num_attention_heads": 5},
            {},
            r"\(12\) is not a multiple of the number of attention",
        ),
        ("bert", {"num_hidden_layers": 3}, {}, r"has no encoder\.layer\.2"),
        ("bert", {"vocab_size": 10}, {}, "mismatch"),
        ("bert", {"hidden_size": "12"}, {}, "hidden_size"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, {}, "is not the softmax"),
        ("gpt2", {"n_positions": 4}, {}, "mismatch"),
        ("bert", {}, {"embeddings.LayerNorm.bias": LARGE}, "has NaN or Inf"),
    ],
)
def test_a_model_that_is_not_understood_is_refused(tmp_path, kind, fields, change, told):
    folder = small.write(tmp_path, kind)
    (folder / "config.json").write_text(json.dumps(small.CONFIGS[kind] | fields))
    small.safetensors(folder / "model.safetensors", small.tensors(kind) | change)
    with pytest.raises(
        ConfigError, match=f"data.transformer=.*{told}.*; must be minilm, or a folder"
    ):
        load(str(folder))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("content", ["{", None])
def test_files_that_are_missing_or_damaged_are_refused(tmp_path, name, content):
    folder = small.write(tmp_path, "bert")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(
        ConfigError, match=f"data.transformer=.*; must be .* a folder with .*{name}"
    ):
        load(str(folder))


def test_code_in_a_folder_is_not_run(tmp_path):
    folder = small.write(tmp_path, "bert")
    (folder / "own.py").write_text("raise SystemExit")
    code = {"auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    for kind in ("bert", "own"):
        config = small.CONFIGS["bert"] | code | {"model_type": kind}
        (folder / "config.json").write_text(json.dumps(config))
        if kind == "bert":
            assert type(load(str(folder)).network).__name__ == "BertModel"
        else:
            with pytest.raises(ConfigError, match=r"data\.transformer="):
                load(str(folder))


def test_a_folder_is_read_again_after_each_of_its_files_has_changed(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(small.tiny("bert"), folder)
    assert load(str(folder)).sentences("ab", 4).tolist() == [[1, 68, 69, 2]]
    words = json.loads((folder / "tokenizer.json").read_text())
    words["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(words))
    assert load(str(folder)).sentences("ab", 2).tolist() == [[68, 69]]


def test_sentences_are_truncated_and_short_ones_and_copies_left_out():
    bert, gpt2 = (load(str(small.tiny(kind))) for kind in ("bert", "gpt2"))
    text = "abcdef\n\nab\nabc \nabcdef"
    assert bert.sentences(text, 5).tolist() == [[1, 68, 69, 70, 2]] * 2
    assert gpt2.sentences(text, 5).tolist() == [[68, 69, 70, 71, 72]]
    assert bert.sentences("a", 5).shape == (0, 5)


REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "minilm.json").read_text())


@pytest.mark.pretrained
def test_the_real_model_has_tokens_and_embeddings_of_its_published_library_and_its_heads():
    """Mean of the last rows, of unit norm. The library masks with float32 numbers: 4e-9 apart."""
    model, names = load("minilm"), ("sentences", "tokens", "embeddings")
    for sentence, tokens, expected in zip(*map(REFERENCE.get, names), strict=True):
        ids = model.sentences(sentence, len(tokens))
        assert ids.tolist() == [tokens]
        with torch.no_grad():
            mean = model.network(ids).last_hidden_state[0].mean(0)
        embedding, expected = mean / mean.norm(), torch.tensor(expected).double()
        torch.testing.assert_close(embedding[:32], expected, rtol=0, atol=1e-8)
    source = Pretrained("minilm", None, 5, 11, 6, 8, True, "none", "attended")
    batch = source.sample(Linear(), CrossAttention(), 2, 3)
    assert batch.X.shape == (2, 6, 8, 42)
    assert batch.weights.shape == (2, 12, 42, 42)
