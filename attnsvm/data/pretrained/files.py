"""The folder of a pretrained model: config.json, model.safetensors and tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.pretrained import CONFIG, TENSORS, TOKENIZER, model_folder
from attnsvm.record.files import MAX_JSON_BYTES, MAX_TABLE_BYTES, CorruptRecordError, open_regular

LIBRARIES = "pip install 'attnsvm[minilm]'"


@dataclass(frozen=True, eq=False)
class Folder:
    """A pretrained model as stored.

    Attributes
    ----------
    path : Path
        The folder.
    config : mapping
        The content of config.json.
    tensors : mapping of str to Tensor
        Those of model.safetensors, float64, without the prefix of the model's class.
    finite : set of str
        The tensors that were found to be finite.
    """

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    finite: set[str] = field(default_factory=set, repr=False)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of this shape.

        Raises
        ------
        ConfigError
            If it is missing, of another shape, or not finite.
        """
        where = f"data.transformer={self.path}: {name}"
        if name not in self.tensors:
            raise ConfigError(f"{where}: missing; must be in {TENSORS}")
        found = self.tensors[name]
        if tuple(found.shape) != shape:
            raise ConfigError(f"{where}: shape {tuple(found.shape)}; must be {shape}")
        if name not in self.finite:
            if not found.isfinite().all():
                raise ConfigError(f"{where}: has NaN or Inf; must be finite numbers")
            self.finite.add(name)
        return found

    def size(self, name: str) -> int:
        """Return a positive whole number of config.json; raise ConfigError if it has none."""
        value = self.config.get(name)
        if type(value) is not int or value < 1:
            told = f"{CONFIG}: {name}={value!r}"
            raise ConfigError(f"data.transformer={self.path}: {told}: must be a whole number >= 1")
        return value

    def small(self, name: str, default: float) -> float:
        """Return a number of config.json that is added to a variance.

        Raises
        ------
        ConfigError
            If it is not >= 0 and < 1.
        """
        value = self.config.get(name, default)
        if type(value) not in (int, float) or not 0 <= value < 1:
            told = f"{CONFIG}: {name}={value!r}"
            raise ConfigError(f"data.transformer={self.path}: {told}: must be a number in [0, 1)")
        return float(value)

    def require(self, name: str, default: Any, allowed: Sequence[Any]) -> Any:
        """Return a value of config.json; raise ConfigError if it is not one of these."""
        value = self.config.get(name, default)
        if value not in allowed:
            told, must = f"{CONFIG}: {name}={value!r}", " | ".join(map(str, allowed))
            raise ConfigError(f"data.transformer={self.path}: {told}: must be {must}")
        return value

    def encoded(self, sentences: Sequence[str], T: int) -> Tensor:
        """Return the tokens of those sentences that have at least T, truncated, (N, T) int64.

        A tokenizer that adds special tokens, such as [CLS] and [SEP], counts them.

        Raises
        ------
        ConfigError
            If the tokenizer has no token for a part of a sentence.
        """
        tokenizer = _tokenizer(self)
        try:
            ids = [one.ids for one in tokenizer.encode_batch(list(sentences))]
            kept = [k for k, one in enumerate(ids) if len(one) >= T]
            tokenizer.enable_truncation(T)
            short = [one.ids for one in tokenizer.encode_batch([sentences[k] for k in kept])]
        except Exception as error:  # the library raises no other type
            raise ConfigError(
                f"data.transformer={self.path}: {TOKENIZER}: {error}; must have a token for every "
                "part of a text, such as unk_token, and fewer tokens of its own than data.T"
            ) from error
        finally:
            tokenizer.no_truncation()
        return torch.tensor(short, dtype=torch.int64).reshape(len(short), T)

    def words(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens of their numbers as text."""
        tokenizer = _tokenizer(self)
        return [str(tokenizer.id_to_token(k)) for k in ids]


def folder(model: str) -> Folder:
    """Return the model of `data.transformer`: minilm, or a folder.

    Raises
    ------
    ConfigError
        If a library or a file is missing, or cannot be read.
    """
    path = model_folder(model)
    if path is None:
        raise ConfigError(
            f"data.transformer={model}: its package must be installed, see docs/pretrained.md; or "
            "the path of a folder"
        )
    for name in (CONFIG, TENSORS, TOKENIZER):
        if not (path / name).is_file():
            what = f"{name}: no such file in the folder" if path.is_dir() else "no such folder"
            must = f"must be minilm, or a folder with {CONFIG}, {TENSORS} and {TOKENIZER}"
            raise ConfigError(f"data.transformer={model}: {what}; {must}")
    found = [(path / name).stat() for name in (CONFIG, TENSORS, TOKENIZER)]
    return _read(path, tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found))


def contents(path: Path) -> bytes:
    """Return the bytes of a regular file of at most 64 MiB, or of one that a link leads to.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is a pipe or a device, which may have no end, or is larger.
    """
    try:
        with open_regular(path.resolve(), MAX_JSON_BYTES) as stream:
            return stream.read(MAX_JSON_BYTES)
    except CorruptRecordError as error:
        raise ValueError(str(error)) from error


@lru_cache(maxsize=2)
def _read(path: Path, versions: tuple[tuple[int, ...], ...]) -> Folder:
    safetensors = _library("safetensors.torch", path)
    try:
        config = json.loads(contents(path / CONFIG))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"data.transformer={path}: {CONFIG}: {error}; must be JSON") from error
    if not isinstance(config, dict):
        raise ConfigError(f"data.transformer={path}: {CONFIG}: must be an object with fields")
    try:
        with open_regular((path / TENSORS).resolve(), MAX_TABLE_BYTES):
            stored = safetensors.load_file(path / TENSORS)
    except Exception as error:  # the library's own type, and those of Rust
        raise ConfigError(
            f"data.transformer={path}: {TENSORS}: {error}; must be safetensors"
        ) from error
    tensors: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if tensor.is_floating_point():
            known = _known_as(name)
            if known in tensors:
                raise ConfigError(f"data.transformer={path}: {TENSORS}: has {known} twice")
            tensors[known] = tensor.double()
    return Folder(path, config, tensors)


def _known_as(name: str) -> str:
    """Return the name of a tensor without the prefix of its class, in today's words.

    Old checkpoints of BERT call weight and bias of a layer norm gamma and beta.
    """
    name = name.removeprefix("bert.").removeprefix("transformer.")
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


@lru_cache(maxsize=2)
def _tokenizer(source: Folder) -> Any:
    path = source.path
    tokenizers = _library("tokenizers", path)
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(contents(path / TOKENIZER))
    except Exception as error:  # the library raises no other type
        raise ConfigError(
            f"data.transformer={path}: {TOKENIZER}: {error}; must be a tokenizer"
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _library(name: str, path: Path) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        told = f"{library} must be installed: {LIBRARIES}"
        raise ConfigError(f"data.transformer={path}: {told}") from error
