"""Tiny random models of type bert and gpt2 as folders."""

import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from attnsvm.data import Pretrained
from attnsvm.data.problem import ProblemBatch
from attnsvm.head import Linear
from attnsvm.model import CrossAttention

FOLDERS: list[Path] = []
"""Folders of this process; `remove` is called where its tests end (tests/conftest.py)."""

D, HEADS, LAYERS, POSITIONS = 12, 3, 2, 16

WORDS = ["[UNK]", "[CLS]", "[SEP]", *map(chr, range(32, 127))]

FIELDS: dict[str, dict[str, Any]] = {
    "bert": {
        "hidden_size": D,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": 20,
        "max_position_embeddings": POSITIONS,
        "vocab_size": len(WORDS),
    },
    "gpt2": {
        "n_embd": D,
        "n_head": HEADS,
        "n_layer": LAYERS,
        "n_inner": 20,
        "n_positions": POSITIONS,
        "vocab_size": len(WORDS),
        "bos_token_id": None,
        "eos_token_id": None,
    },
}


def write(folder: Path, kind: str) -> Path:
    """Write a model of random weights, large enough that heads differ; its tokens are characters.

    Those of bert are between [CLS] and [SEP].
    """
    import transformers
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    cls = {"bert": transformers.BertModel, "gpt2": transformers.GPT2Model}[kind]
    network, generator = cls(cls.config_class(**FIELDS[kind])), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, V in sorted(network.named_parameters()):
            V.normal_(generator=generator)
    network.save_pretrained(folder)
    ids = {word: k for k, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    if kind == "bert":
        around = [(word, ids[word]) for word in WORDS[1:3]]
        template = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=around)
        tokenizer.post_processor = template
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@lru_cache
def tiny(kind: str) -> Path:
    """Return the folder of a tiny model, which is made once in a process."""
    FOLDERS.append(Path(tempfile.mkdtemp(prefix="attnsvm-")))
    return write(FOLDERS[-1] / kind, kind)


def source(kind: str = "bert", **fields: Any) -> Pretrained:
    """Return `data=pretrained` of a tiny model: head 1 of layer 1, 3 sentences of 4 tokens."""
    options = {"text": None, "at_layer": 1, "at_head": 1, "n": 3, "T": 4, "sinks": True}
    options |= {"transformer": str(tiny(kind)), "control": "none", "scores": "attended"}
    return Pretrained(**options | fields)


def drawn(trials: int = 2, seed: int = 0, **fields: Any) -> ProblemBatch:
    """Return instances of a tiny model."""
    return source(**fields).sample(Linear(), CrossAttention(), trials, seed)


def remove() -> None:
    """Remove the folders that `tiny` has made."""
    for folder in FOLDERS:
        shutil.rmtree(folder, ignore_errors=True)
