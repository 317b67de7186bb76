"""A pretrained model from its folder: config.json, model.safetensors and tokenizer.json.

The network is that of the library transformers, made from the few fields of config.json that are
named here and the stored tensors. No pickle and no code of a folder is read.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnsvm.config import ConfigError
from attnsvm.config.fields import Range
from attnsvm.config.sources import CONFIG, TENSORS, TOKENIZER, model_folder
from attnsvm.record.files import MAX_JSON_BYTES, MAX_TABLE_BYTES, CorruptRecordError, open_regular

SIZES = {
    "bert": ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size",
             "vocab_size", "max_position_embeddings", "type_vocab_size"),
    "gpt2": ("n_embd", "n_head", "n_layer", "n_inner", "vocab_size", "n_positions"),
}  # fmt: skip
"""Fields of config.json that are whole numbers >= 1, by `model_type`."""

EPSILON = {"bert": "layer_norm_eps", "gpt2": "layer_norm_epsilon"}
"""The field that is added to variances."""

DEFAULTS = {"type_vocab_size": 2, "layer_norm_eps": 1e-12, "layer_norm_epsilon": 1e-5}
"""Fields that a config.json may lack; n_inner is 4 n_embd."""

FIXED = {
    "bert": {"hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False},
    "gpt2": {"activation_function": "gelu_new", "scale_attn_weights": True,
             "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
}  # fmt: skip
"""Fields of which one value is understood; it is also the default."""


@dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A pretrained model.

    Attributes
    ----------
    path : Path
        Its folder.
    kind : str
        bert or gpt2.
    network : Module
        A BertModel or GPT2Model of transformers, float64.
    tokenizer : Tokenizer
        Of the library tokenizers.
    """

    path: Path
    kind: str
    network: nn.Module
    tokenizer: Any

    @property
    def causal(self) -> bool:
        """Whether a token attends to itself and earlier ones only."""
        return self.kind == "gpt2"

    def encoded(self, sentences: Sequence[str], T: int) -> Tensor:
        """Return the tokens of those sentences that have at least T, truncated, (N, T) int64.

        A tokenizer that adds special tokens, such as [CLS] and [SEP], counts them.

        Raises
        ------
        ConfigError
            If the tokenizer has no token for a part of a sentence.
        """
        tokenizer = self.tokenizer
        try:
            ids = [one.ids for one in tokenizer.encode_batch(list(sentences))]
            kept = [k for k, one in enumerate(ids) if len(one) >= T]
            tokenizer.enable_truncation(T)
            short = [one.ids for one in tokenizer.encode_batch([sentences[k] for k in kept])]
        except Exception as error:  # the library raises no other type
            raise _refused(
                self.path, TOKENIZER, f"{error}; must have a token for every part of a text, such "
                "as unk_token, and fewer tokens of its own than data.T"
            ) from error  # fmt: skip
        finally:
            tokenizer.no_truncation()
        return torch.tensor(short, dtype=torch.int64).reshape(len(short), T)

    def words(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens of their numbers as text."""
        return [str(self.tokenizer.id_to_token(k)) for k in ids]


def load(model: str) -> PretrainedModel:
    """Return the model of `data.transformer`: minilm, or a folder.

    Raises
    ------
    ConfigError
        If a library or a file is missing, or is not as it must be.
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
    return _load(path, tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found))


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
def _load(path: Path, versions: tuple[tuple[int, ...], ...]) -> PretrainedModel:
    safetensors, tokenizers, transformers = (
        _library(name, path) for name in ("safetensors.torch", "tokenizers", "transformers")
    )
    try:
        config = json.loads(contents(path / CONFIG))
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(path, CONFIG, f"{error}; must be JSON") from error
    kind = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(kind, str) or kind not in SIZES:
        raise _refused(path, CONFIG, f"model_type={kind!r}: must be {' | '.join(SIZES)}")
    fields = _fields(path, config, kind)
    try:
        with open_regular((path / TENSORS).resolve(), MAX_TABLE_BYTES):
            stored = safetensors.load_file(path / TENSORS)
    except Exception as error:  # the library's own type, and those of Rust
        raise _refused(path, TENSORS, f"{error}; must be safetensors") from error
    tensors: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        known = _without_prefix(name)
        if known in tensors:
            raise _refused(path, TENSORS, f"has {known} twice")
        tensors[known] = tensor.double()
    try:
        network = _network(transformers, kind, fields, tensors)
    except Exception as error:  # of shapes, of missing tensors, of sizes that do not fit
        reason = " ".join(str(error).split())[:500]
        raise _refused(path, f"{CONFIG} and {TENSORS}", f"{reason}; must fit together") from error
    for name, part in network.state_dict().items():
        if not part.isfinite().all():
            raise _refused(path, TENSORS, f"{name} has NaN or Inf; must be finite numbers")
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(contents(path / TOKENIZER))
    except Exception as error:  # the library raises no other type
        raise _refused(path, TOKENIZER, f"{error}; must be a tokenizer") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return PretrainedModel(path, kind, network, tokenizer)


def _fields(path: Path, config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the fields of config.json that make the network."""
    for name, must in FIXED[kind].items():
        if (value := config.get(name, must)) != must:
            raise _refused(path, CONFIG, f"{name}={value!r}: must be {must}")
    names = [*SIZES[kind], EPSILON[kind]]
    fields = {name: config.get(name, DEFAULTS.get(name)) for name in names}
    if kind == "gpt2" and fields["n_inner"] is None:
        del fields["n_inner"]
    for name, value in fields.items():
        small = name == EPSILON[kind]
        allowed = Range(0, 1, below=True) if small else Range(1)
        if not allowed.holds(value) or not (small or isinstance(value, int)):
            must = f"{allowed}" if small else "a whole number >= 1"
            raise _refused(path, CONFIG, f"{name}={value!r}: must be {must}")
    return {**fields, **FIXED[kind]}


def _network(
    transformers: Any, kind: str, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> nn.Module:
    """Return the network with these tensors; others, of heads of the training, do not matter."""
    layers = fields["num_hidden_layers" if kind == "bert" else "n_layer"]
    if layers > len(tensors):
        raise ValueError(f"{layers} layers, but {len(tensors)} tensors")
    made = {"bert": (transformers.BertConfig, transformers.BertModel),
            "gpt2": (transformers.GPT2Config, transformers.GPT2Model)}[kind]  # fmt: skip
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = made[0](**fields, **ids, attn_implementation="eager")
    with torch.device("meta"):  # nothing is drawn, and no size is believed
        network: nn.Module = made[1](
            config, **{"add_pooling_layer": False} if kind == "bert" else {}
        )
    parts = {name: tensors[name] for name in network.state_dict() if name in tensors}
    network.load_state_dict(parts, assign=True)
    return network.eval()


def _without_prefix(name: str) -> str:
    """Return the name of a tensor without the prefix of its class, in today's words.

    Old checkpoints of BERT call weight and bias of a layer norm gamma and beta.
    """
    name = name.removeprefix("bert.").removeprefix("transformer.")
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _refused(path: Path, file: str, why: str) -> ConfigError:
    return ConfigError(f"data.transformer={path}: {file}: {why}")


def _library(name: str, path: Path) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        must = f"{library} must be installed: pip install 'attnsvm[minilm]'"
        raise ConfigError(f"data.transformer={path}: {must}") from error
