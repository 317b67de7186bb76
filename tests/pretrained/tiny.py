"""Tiny random models of type bert and gpt2 as folders."""

import json
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

MADE: list[Path] = []
"""Folders of this process; `remove` is called where its tests end (tests/conftest.py)."""

CHARACTERS = [chr(k) for k in range(32, 127)]
D, HEADS, LAYERS, WIDTH, POSITIONS = 12, 3, 2, 20, 16

CONFIGS = {
    "bert": {
        "model_type": "bert", "hidden_size": D, "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS, "intermediate_size": WIDTH, "hidden_act": "gelu",
        "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "vocab_size": len(CHARACTERS) + 3,
    },
    "gpt2": {
        "model_type": "gpt2", "n_embd": D, "n_head": HEADS, "n_layer": LAYERS, "n_inner": WIDTH,
        "activation_function": "gelu_new", "n_positions": POSITIONS, "layer_norm_epsilon": 1e-5,
        "vocab_size": len(CHARACTERS) + 3, "bos_token_id": None, "eos_token_id": None,
    },
}  # fmt: skip


def library(kind: str) -> Any:
    """Return the class of a model in transformers."""
    import transformers

    return {"bert": transformers.BertModel, "gpt2": transformers.GPT2Model}[kind]


def tensors(kind: str) -> dict[str, torch.Tensor]:
    """Return random tensors of a model, float32; large enough that heads differ."""
    generator, cls = torch.Generator().manual_seed(1), library(kind)
    fields = {name: value for name, value in CONFIGS[kind].items() if name != "model_type"}
    with torch.device("meta"):
        shapes = cls(cls.config_class(**fields)).state_dict()
    return {
        name: torch.randn(tensor.shape, generator=generator)
        for name, tensor in sorted(shapes.items())
        if not name.startswith("pooler")
    }


def safetensors(path: Path, given: dict[str, torch.Tensor]) -> None:
    """Write tensors."""
    from safetensors.torch import save_file

    save_file({name: tensor.clone() for name, tensor in given.items()}, path)


def tokenizer(kind: str) -> dict[str, Any]:
    """Return a tokenizer whose tokens are characters, of bert between [CLS] and [SEP]."""
    vocabulary = {word: k for k, word in enumerate(["[UNK]", "[CLS]", "[SEP]", *CHARACTERS])}
    ends = [{"SpecialToken": {"id": name, "type_id": 0}} for name in ("[CLS]", "[SEP]")]
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    around = {
        "type": "TemplateProcessing", "single": [ends[0], sequence, ends[1]],
        "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            name: {"id": name, "ids": [k], "tokens": [name]}
            for k, name in ((1, "[CLS]"), (2, "[SEP]"))
        },
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated",
                          "invert": False},
        "post_processor": around if kind == "bert" else None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }  # fmt: skip


def write(folder: Path, kind: str) -> Path:
    """Write a model into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[kind]))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(kind)))
    safetensors(folder / "model.safetensors", tensors(kind))
    return folder


@lru_cache
def tiny(kind: str) -> Path:
    """Return the folder of a tiny model, which is made once in a process."""
    MADE.append(Path(tempfile.mkdtemp(prefix="attnsvm-")))
    return write(MADE[-1] / kind, kind)


def remove() -> None:
    """Remove the folders that `tiny` has made."""
    for folder in MADE:
        shutil.rmtree(folder, ignore_errors=True)
