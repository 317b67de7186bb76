"""Tiny random models of type bert and gpt2 as folders."""

import json
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from tests.quick import beside

MADE: list[Path] = []
"""Folders of this process; `remove` is called where its tests end (tests/conftest.py)."""

LISTED = beside(__file__)
CONFIGS = LISTED["configs"]
SIZES = ("n_embd", "n_head", "n_layer", "n_positions")
D, HEADS, LAYERS, POSITIONS = (CONFIGS["gpt2"][name] for name in SIZES)


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
    words = ["[UNK]", "[CLS]", "[SEP]", *map(chr, range(32, 127))]
    vocabulary = {word: k for k, word in enumerate(words)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    around = LISTED["around"] if kind == "bert" else None
    return {**LISTED["tokenizer"], "post_processor": around, "model": model}


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
