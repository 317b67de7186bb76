"""Tiny random models of type bert and gpt2 as folders."""

import json
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

FOLDERS: list[Path] = []
"""Folders of this process; `remove` is called where its tests end (tests/conftest.py)."""

D, HEADS, LAYERS, POSITIONS, WORDS = 12, 3, 2, 16, 98

CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {
        "model_type": "bert",
        "hidden_size": D,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": 20,
        "max_position_embeddings": POSITIONS,
        "vocab_size": WORDS,
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": D,
        "n_head": HEADS,
        "n_layer": LAYERS,
        "n_inner": 20,
        "n_positions": POSITIONS,
        "vocab_size": WORDS,
        "bos_token_id": None,
        "eos_token_id": None,
    },
}


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


def safetensors(path: Path, arrays: dict[str, torch.Tensor]) -> None:
    """Write tensors."""
    from safetensors.torch import save_file

    metadata = {"format": "pt"}
    save_file({name: tensor.clone() for name, tensor in arrays.items()}, path, metadata)


def tokenizer(kind: str) -> dict[str, Any]:
    """Return a tokenizer whose tokens are characters, of bert between [CLS] and [SEP]."""
    words = ["[UNK]", "[CLS]", "[SEP]", *map(chr, range(32, 127))]
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    first, last = ({"SpecialToken": {"id": word, "type_id": 0}} for word in words[1:3])
    around = {
        "type": "TemplateProcessing",
        "single": [first, sequence, last],
        "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            word: {"id": word, "ids": [k], "tokens": [word]}
            for k, word in enumerate(words[1:3], start=1)
        },
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": "."},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": around if kind == "bert" else None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: k for k, word in enumerate(words)},
            "unk_token": "[UNK]",
        },
    }


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
    FOLDERS.append(Path(tempfile.mkdtemp(prefix="attnsvm-")))
    return write(FOLDERS[-1] / kind, kind)


def remove() -> None:
    """Remove the folders that `tiny` has made."""
    for folder in FOLDERS:
        shutil.rmtree(folder, ignore_errors=True)
