"""Folders of models: what is read from them, or refused."""

import json
import sys
from pathlib import Path

import pytest
import torch

from attnsvm import ConfigError
from attnsvm.data.pretrained.source import load, sentences_of

pytest.importorskip("tokenizers")  # of transformers, which is slow to import

from tests.pretrained import tiny as small


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_model_has_its_sizes_and_its_sentences(kind):
    """Short lines and copies are left out, longer ones truncated."""
    model = load(str(small.tiny(kind)))
    assert model.causal == (kind == "gpt2")
    sizes = {"T": small.POSITIONS, "at_layer": small.LAYERS - 1, "at_head": small.HEADS - 1}
    assert model.largest == sizes
    tokens = {"bert": [[1, 68, 69, 70, 2]] * 2, "gpt2": [[68, 69, 70, 71, 72]]}
    assert sentences_of(model, "abcdef\n\nab\nabc \nabcdef", 5).tolist() == tokens[kind]
    assert sentences_of(model, "a", 5).shape == (0, 5)


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch, tmp_path):
    folder = small.write(tmp_path / "model", "bert")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"must be installed: pip install 'attnsvm\["):
        load(str(folder))


def with_fields(**fields):
    def change(folder):
        config = folder / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | fields))

    return change


def not_finite(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["embeddings.LayerNorm.bias"][0] = torch.nan
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def own_code(folder):
    (folder / "own.py").write_text("raise SystemExit")
    with_fields(auto_map={"AutoConfig": "own.Config", "AutoModel": "own.Model"})(folder)


BAD = [
    ("unknown", "bert", with_fields(model_type="unknown")),
    ("has no encoder.layer.2", "bert", with_fields(num_hidden_layers=3)),
    ("mismatch", "bert", with_fields(vocab_size=10)),
    ("is not the softmax", "gpt2", with_fields(scale_attn_by_inverse_layer_idx=True)),
    ("has NaN or Inf", "bert", not_finite),
    (
        "contains custom code",
        "bert",
        lambda folder: (own_code(folder), with_fields(model_type="own")(folder)),
    ),
]
FILES = ["config.json", "model.safetensors", "tokenizer.json"]
BAD += [(FILES[1], "bert", lambda folder: (folder / FILES[1]).unlink())]
BAD += [(name, "bert", lambda folder, name=name: (folder / name).write_text("{")) for name in FILES]


@pytest.mark.parametrize(("message", "kind", "change"), BAD)
def test_a_folder_that_is_not_understood_is_refused(tmp_path, message, kind, change):
    change(small.write(tmp_path, kind))
    must = f"data.transformer=.*{message}.*; must be minilm, or a fol"
    with pytest.raises(ConfigError, match=f"{must}|data.transformer=.*; must be .*{message}"):
        load(str(tmp_path))


def test_code_in_a_folder_is_not_run(tmp_path):
    own_code(small.write(tmp_path, "bert"))
    assert type(load(str(tmp_path)).network).__name__ == "BertModel"


def test_a_folder_is_read_again_after_each_of_its_files_has_changed(tmp_path):
    file = small.write(tmp_path, "bert") / "tokenizer.json"
    assert sentences_of(load(str(tmp_path)), "ab", 4).tolist() == [[1, 68, 69, 2]]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"post_processor": None}))
    assert sentences_of(load(str(tmp_path)), "ab", 2).tolist() == [[68, 69]]


REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "minilm.json").read_text())


@pytest.mark.pretrained
def test_the_real_model_has_tokens_and_embeddings_of_its_published_library_and_its_heads():
    """Mean of the last rows, of unit norm. The library masks with float32 numbers: 4e-9 apart."""
    model, names = load("minilm"), ("sentences", "tokens", "embeddings")
    for sentence, tokens, expected in zip(*map(REFERENCE.get, names), strict=True):
        ids = sentences_of(model, sentence, len(tokens))
        assert ids.tolist() == [tokens]
        with torch.no_grad():
            mean = model.network(ids).last_hidden_state[0].mean(0)
        embedding, expected = mean / mean.norm(), torch.tensor(expected).double()
        torch.testing.assert_close(embedding[:32], expected, rtol=0, atol=1e-8)
    size = {"at_layer": 5, "at_head": 11, "n": 6, "T": 8}
    batch = small.drawn(2, 3, transformer="minilm", **size)
    assert batch.X.shape == (2, 6, 8, 42)
    assert batch.weights.shape == (2, 12, 42, 42)
