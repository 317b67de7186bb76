"""A pretrained model from its folder: config.json, model.safetensors and tokenizer.json.

The network is that of the library transformers, made from the few fields of config.json that are
named here and the stored tensors. No pickle and no code of a folder is read.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from attnsvm.config import ConfigError
from attnsvm.config.fields import Range
from attnsvm.config.sources import CONFIG, TENSORS, TOKENIZER, model_folder
from attnsvm.config.words import rows
from attnsvm.data.pretrained.hooks import caught
from attnsvm.data.pretrained.layer import AttentionLayer
from attnsvm.linalg import own_settings
from attnsvm.record.files import MAX_JSON_BYTES, MAX_TABLE_BYTES, open_regular

FIELDS = list(rows(Path(__file__).with_name("fields.csv")))
"""Fields of config.json that are read. Values are whole numbers >= 1, small ones, which are added
to variances, or the only one that is understood, as JSON. Of one that is optional the default of
transformers holds; it is the value where only one is understood."""

OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Parts of names of tensors in old checkpoints of BERT, and today's."""

SCALE = 20.0
"""Of the cosines of sentence embeddings: a common choice."""


@dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A pretrained model: its folder, bert or gpt2, its network and its tokenizer.

    The network is a BertModel or GPT2Model of the library transformers, float64; the tokenizer is
    a Tokenizer of the library tokenizers.
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
        """
        tokenizer = self.tokenizer
        must = "must have a token for every part of a text, such as unk_token, and fewer tokens of "
        with _reading(self.path, TOKENIZER, f"{must}its own than data.T"):
            tokenizer.no_truncation()
            ids = [one.ids for one in tokenizer.encode_batch(list(sentences))]
            kept = [k for k, one in enumerate(ids) if len(one) >= T]
            tokenizer.enable_truncation(T)
            short = [one.ids for one in tokenizer.encode_batch([sentences[k] for k in kept])]
        return torch.tensor(short, dtype=torch.int64).reshape(len(short), T)

    def _run(self, tokens: Tensor, **options: Any) -> Any:
        """Return what the network returns for some tokens (N, T)."""
        config: Any = self.network.config
        T, positions, words = tokens.shape[1], config.max_position_embeddings, config.vocab_size
        if positions < T:
            raise ConfigError(f"data.T={T}: must be <= {positions}, the positions of {self.path}")
        if tokens.max() >= words or tokens.min() < 0:
            must = f"must be >= 0 and < vocab_size={words}"
            raise ConfigError(f"data.transformer={self.path}: token {int(tokens.max())}: {must}")
        if self.causal:
            options["use_cache"] = False
        else:
            options["token_type_ids"] = torch.zeros_like(tokens)
        return self.network(tokens, position_ids=torch.arange(T)[None], **options)


def load(model: str) -> PretrainedModel:
    """Return the model of `data.transformer`, minilm or a folder; ConfigError if it is not one."""
    path = model_folder(model)
    if path is None:
        must = "its package must be installed, see docs/pretrained.md; or the path of a folder"
        raise ConfigError(f"data.transformer={model}: {must}")
    for name in (CONFIG, TENSORS, TOKENIZER):
        if not (path / name).is_file():
            what = f"{name}: no such file in the folder" if path.is_dir() else "no such folder"
            must = f"must be minilm, or a folder with {CONFIG}, {TENSORS} and {TOKENIZER}"
            raise ConfigError(f"data.transformer={model}: {what}; {must}")
    found = [(path / name).stat() for name in (CONFIG, TENSORS, TOKENIZER)]
    return _load(path, tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found))


def contents(path: Path) -> bytes:
    """Return the bytes of a regular file of at most 64 MiB, or of one that a link leads to."""
    with open_regular(path.resolve(), MAX_JSON_BYTES) as stream:
        return stream.read(MAX_JSON_BYTES)


def forward(model: PretrainedModel, tokens: Tensor) -> tuple[list[AttentionLayer], Tensor]:
    """Return the attention layers of a model on tokens (N, T), and its last rows (N, T, d).

    The layers have the rows that each of them sees; those of GPT-2 after the layer norm. A model
    that is too small for the tokens is a ConfigError.
    """
    with torch.no_grad(), own_settings(), caught(model.network, model.causal) as layers:
        rows: Tensor = model._run(tokens).last_hidden_state
    return list(layers.values()), rows


def token_scores(model: PretrainedModel, tokens: Tensor, targets: Tensor) -> Tensor:
    """Return by how much more attention to a token lowers the loss, at every layer and head.

    The score of token t for the query q of sequence i is

        gamma_ihqt = -dl_i / ds_ihqt = -(dl_i / do_ihq)^T V_h x_it,

    s the attention of head h, o = sum_t s_t V_h x_t its output, and l_i the loss of the sequence.
    For GPT-2 it is the mean of -log p(next token), embeddings as output weights. For BERT it is

        -log p(next sentence of i),     p = softmax_j(SCALE cos(e_i, e'_j)),

    among the next sentences of all, with the mean of the last rows as embedding: the kind of loss
    by which sentence embedders are trained. Embeddings e' of next sentences are constants.

    Tokens are (N, T), and targets (N, T) those to be predicted: the next token of each one, or the
    next sentence. Scores are (L, N, H, T, T), in nats.
    """
    with own_settings(), torch.enable_grad():
        found = model._run(tokens, output_attentions=True)
        rows = found.last_hidden_state
        if model.causal:
            log_p = (rows @ model.network.get_parameter("wte.weight").mT).log_softmax(-1)
            losses = -log_p.gather(2, targets[..., None]).mean((1, 2))
        else:
            e, others = (normalize(V.mean(1), dim=-1) for V in (rows, forward(model, targets)[1]))
            losses = -(SCALE * e @ others.mT).log_softmax(-1).diagonal()
        return -torch.stack(torch.autograd.grad(losses.sum(), found.attentions))


@lru_cache(maxsize=2)
def _load(path: Path, versions: tuple[tuple[int, ...], ...]) -> PretrainedModel:
    try:
        import tokenizers
        import transformers
        from safetensors.torch import load_file
    except ImportError as error:
        must = f"{error.name} must be installed: pip install 'attnsvm[minilm]'"
        raise ConfigError(f"data.transformer={path}: {must}") from error
    with _reading(path, CONFIG, "must be JSON"):
        config = json.loads(contents(path / CONFIG))
    kind = config.get("model_type") if isinstance(config, dict) else None
    kinds = dict.fromkeys(row["model_type"] for row in FIELDS)
    if not isinstance(kind, str) or kind not in kinds:
        raise _refused(path, CONFIG, f"model_type={kind!r}: must be {' | '.join(kinds)}")
    fields = _fields(path, config, kind)
    with _reading(path, TENSORS, "must be safetensors"):
        open_regular((path / TENSORS).resolve(), MAX_TABLE_BYTES).close()
        stored = load_file(path / TENSORS)
    tensors: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        known = name.removeprefix("bert.").removeprefix("transformer.")
        for old, new in OLD_NAMES.items():
            known = known.replace(old, new)
        if known in tensors:
            raise _refused(path, TENSORS, f"has {known} twice")
        tensors[known] = tensor.double()
    with _reading(path, f"{CONFIG} and {TENSORS}", "must fit together"):
        network = _network(transformers, kind, fields, tensors)
    for name, part in network.state_dict().items():
        if not part.isfinite().all():
            raise _refused(path, TENSORS, f"{name} has NaN or Inf; must be finite numbers")
    with _reading(path, TOKENIZER, "must be a tokenizer"):
        tokenizer = tokenizers.Tokenizer.from_buffer(contents(path / TOKENIZER))
    tokenizer.no_padding()
    return PretrainedModel(path, kind, network, tokenizer)


@contextmanager
def _reading(path: Path, file: str, must: str) -> Iterator[None]:
    """Refuse a file, with what it must be, for whatever is raised inside, also by Rust."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:500]
        raise _refused(path, file, f"{reason}; {must}") from error


def _fields(path: Path, config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the fields of config.json that make the network."""
    fields = {}
    for row in (row for row in FIELDS if row["model_type"] == kind):
        name, must = row["field"], row["value"]
        if must not in ("whole", "small"):
            fields[name] = json.loads(must)
            if (value := config.get(name, fields[name])) != fields[name]:
                raise _refused(path, CONFIG, f"{name}={value!r}: must be {fields[name]}")
        elif (value := config.get(name)) is not None or row["optional"] == "no":
            allowed = Range(0, 1, below=True) if must == "small" else Range(1)
            if not allowed.holds(value) or not (must == "small" or isinstance(value, int)):
                told = f"{allowed}" if must == "small" else "a whole number >= 1"
                raise _refused(path, CONFIG, f"{name}={value!r}: must be {told}")
            fields[name] = value
    return fields


def _network(
    transformers: Any, kind: str, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> nn.Module:
    """Return the network with these tensors; others, of heads of the training, do not matter."""
    layers = fields["num_hidden_layers" if kind == "bert" else "n_layer"]
    if layers > len(tensors):
        raise ValueError(f"{layers} layers, but {len(tensors)} tensors")
    library = {"bert": "Bert", "gpt2": "GPT2"}[kind]
    made, of_config = (getattr(transformers, library + part) for part in ("Config", "Model"))
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = made(**fields, **ids, attn_implementation="eager")
    with torch.device("meta"):  # nothing is drawn, and no size is believed
        network: nn.Module = of_config(
            config, **({"add_pooling_layer": False} if kind == "bert" else {})
        )
    parts = {name: tensors[name] for name in network.state_dict() if name in tensors}
    network.load_state_dict(parts, assign=True)
    return network.eval()


def _refused(path: Path, file: str, why: str) -> ConfigError:
    return ConfigError(f"data.transformer={path}: {file}: {why}")
