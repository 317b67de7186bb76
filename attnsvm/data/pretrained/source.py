"""`data=pretrained`: a head of a pretrained model on sentences of a text."""

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from attnsvm.config import ConfigError
from attnsvm.config.sources import CONFIG, TENSORS, TOKENIZER, model_folder
from attnsvm.data.base import Data, check_own_scores, read_text, text_name
from attnsvm.data.pretrained.hooks import heads_of
from attnsvm.data.pretrained.layer import AttentionLayer, restricted
from attnsvm.data.problem import ProblemBatch
from attnsvm.head import Head, RowScores
from attnsvm.linalg import own_settings
from attnsvm.model import Model

CONTROL_STREAM = 0x5DEECE66D
"""The seed of a control's draws is seed ^ this."""

SCALE = 20.0
"""Of the cosines of sentence embeddings: a common choice."""

Tokens = tuple[tuple[int, ...], ...]
"""The tokens (N, T) of sentences."""


@dataclass(frozen=True, eq=False)
class Transformer:
    """A network of the library transformers, float64, with its tokenizer.

    `causal` says whether tokens attend to earlier ones only; `largest` has the largest values of T,
    at_layer and at_head.
    """

    network: Any
    tokenizer: Any
    causal: bool
    largest: Mapping[str, int]


def load(model: str) -> Transformer:
    """Return the model of `data.transformer`, minilm or a folder; ConfigError if it is not one.

    Nothing is unpickled, no code of the folder runs, and nothing is loaded over a network.
    """
    folder = model_folder(model)
    if folder is None:
        must = "must be the path of a folder, or installed: see docs/findings/pretrained.md"
        raise ConfigError(f"data.transformer={model}: {must}")
    try:
        files = [(folder / name).stat() for name in (CONFIG, TENSORS, TOKENIZER)]
        return _load(folder, *((file.st_mtime_ns, file.st_size) for file in files))
    except ImportError as error:
        must = f"{error.name} must be installed: pip install 'attnsvm[minilm]'"
        raise ConfigError(f"data.transformer={model}: {must}") from error
    except Exception as error:  # of files that are not what they should be, also from Rust
        reason = " ".join(str(error).split())[:500]
        must = f"must be minilm, or a folder with {CONFIG}, {TENSORS} and {TOKENIZER}"
        raise ConfigError(f"data.transformer={model}: {reason}; {must}") from error


@lru_cache(maxsize=2)
def _load(folder: Path, *versions: tuple[int, int]) -> Transformer:
    from transformers import AutoModel, PreTrainedTokenizerFast

    with own_settings(), contextlib.redirect_stderr(io.StringIO()):  # a bar of progress
        network, report = AutoModel.from_pretrained(
            folder,
            dtype=torch.float64,
            attn_implementation="eager",
            output_loading_info=True,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    if missing := [name for name in report["missing_keys"] if not name.startswith("pooler")]:
        raise ValueError(f"{TENSORS} has no {missing[0]}")
    if not all(part.isfinite().all() for part in network.state_dict().values()):
        raise ValueError(f"{TENSORS} has NaN or Inf")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / TOKENIZER))
    if len(tokenizer) > network.config.vocab_size:
        raise ValueError(f"{TOKENIZER} has more tokens than {network.config.vocab_size}")
    layers = [*heads_of(network.eval(), torch.zeros(1, 2, dtype=torch.int64)).values()]
    positions = network.config.max_position_embeddings
    largest = {"T": positions, "at_layer": len(layers) - 1, "at_head": len(layers[0].K) - 1}
    return Transformer(network, tokenizer, not layers[0].mask[0, 0, 1], largest)


def token_scores(source: Transformer, tokens: Tensor, targets: Tensor) -> Tensor:
    """Return gamma_ihqt = -dl_i / ds_ihqt, by how much attention to a token lowers the loss.

    s is the attention of head h and l_i the loss of sequence i: of a causal model the mean of
    -log p(next token), embeddings as output weights, otherwise -log p(next sentence of i),
    p = softmax_j(SCALE cos(e_i, e'_j)) among the next sentences of all, with the mean of the last
    rows as embedding e and constant e'. Tokens are (N, T), and targets (N, T) the next token of
    each one, or the next sentence. Scores are (L, N, H, T, T), in nats.
    """
    with own_settings(), torch.enable_grad():
        output = source.network(tokens, output_attentions=True)
        rows = output.last_hidden_state
        if source.causal:
            embeddings = source.network.get_input_embeddings().weight
            log_p = (rows @ embeddings.mT).log_softmax(-1)
            losses = -log_p.gather(2, targets[..., None]).mean((1, 2))
        else:
            with torch.no_grad():
                others = source.network(targets).last_hidden_state
            e, e_next = (normalize(V.mean(1), dim=-1) for V in (rows, others))
            losses = -(SCALE * e @ e_next.mT).log_softmax(-1).diagonal()
        return -torch.stack(torch.autograd.grad(losses.sum(), output.attentions))


@dataclass(eq=False)
class Pretrained(Data):
    """The samples of an instance are sentences, their tokens the rows that a layer sees.

    The n sentences of an instance are drawn from the lines of `text` with at least T tokens, and
    truncated; the query of a sample is one of its own rows, drawn. Weights are those of the head,
    then of the other heads of its layer. With scores=attended the token that the head attends to
    most scores 1 more than the others; with scores=loss a token scores by how much attention to it
    lowers the loss of the model (`token_scores`). All labels are +1. Without `sinks` the first
    token is neither key nor query, and sentences have a token after those. For `control` see
    `restricted`; a token that it moves keeps its score.
    """

    transformer: str
    text: str | None
    at_layer: int
    at_head: int
    n: int
    T: int
    sinks: bool
    control: str
    scores: str

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return `trials` instances, the sentences of instance i drawn from seed + i."""
        check_own_scores(head, model, "pretrained")
        source, sentences = self.read()
        if self.scores == "loss" and self.control in ("queries", "tokens") and source.causal:
            must = "must be attended with a causal model, whose query has no score for later tokens"
            raise ConfigError(f"data.scores=loss with data.control={self.control}: {must}")
        drawn = [self._instance(source, sentences, seed + i) for i in range(trials)]
        X, Z, mask, W, v = map(torch.stack, zip(*drawn, strict=True))
        Y, seeds = torch.ones_like(Z[..., 0]), seed + torch.arange(trials)
        return ProblemBatch(X, Z, Y, mask, RowScores(), {"v": v}, seeds, W)

    def words(self, seed: int) -> tuple[list[list[str]], list[int]]:
        """Return the tokens of the sentences of the instance `seed`, as text, and each query."""
        source, sentences = self.read()
        chosen, query = self.drawn(source, len(sentences), seed)
        text = source.tokenizer.convert_ids_to_tokens
        return [text(ids) for ids in sentences[chosen, : self.T].tolist()], query.tolist()

    def read(self) -> tuple[Transformer, Tensor]:
        """Return the model, and sentences of T tokens or more; for the next tokens one more."""
        source = load(self.transformer)
        length = self.T + (not self.sinks or (self.scores == "loss" and source.causal))
        sentences = sentences_of(source, read_text(self.text), length)
        if len(sentences) < self.n:
            count = f"{len(sentences)}, the sentences of {text_name(self.text)}"
            raise ConfigError(f"data.n={self.n}: must be <= {count} with at least {length} tokens")
        for field, largest in source.largest.items():
            if (value := getattr(self, field)) > largest:
                must = f"must be <= {largest} in {self.transformer}"
                raise ConfigError(f"data.{field}={value}: {must}")
        return source, sentences

    def drawn(self, source: Transformer, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return the numbers of n of the sentences, and the position of each query, (n,).

        A causal query comes after the first admissible token, so that it has a choice.
        """
        generator = Generator().manual_seed(seed)
        chosen = torch.randperm(count, generator=generator)[: self.n]
        first = source.causal + (not self.sinks)
        return chosen, torch.randint(first, self.T, (self.n,), generator=generator)

    def _instance(self, source: Transformer, sentences: Tensor, seed: int) -> tuple[Tensor, ...]:
        """Return X, Z, mask, W, scores of an instance."""
        chosen, query = self.drawn(source, len(sentences), seed)
        tokens, targets = sentences[chosen, : self.T], sentences[(chosen + 1) % len(sentences)]
        if source.causal:
            targets = sentences[chosen, 1:]
        named = [tuple(map(tuple, ids.tolist())) for ids in (tokens, targets)]
        layer = _layers(source, named[0])[self.at_layer]
        mask = layer.mask & (torch.arange(self.T) >= 1 - self.sinks)
        random = Generator().manual_seed(seed ^ CONTROL_STREAM)
        part, gamma = restricted(replace(layer, mask=mask), query, self.control, random), None
        if self.scores == "loss":
            scores = _scores(source, *named)[self.at_layer]
            gamma = scores[part.source, self.at_head, query[part.source], torch.arange(self.T)]
        return part.X, part.Z, part.mask, *part.head(self.at_head, gamma)


# Cells of a sweep differ in the head of a layer, on the same sentences.


@lru_cache(maxsize=8)
def sentences_of(source: Transformer, text: str, T: int) -> Tensor:
    """Return the tokens of the different lines of at least T tokens, truncated, (N, T)."""
    lines = dict.fromkeys(line.strip() for line in text.splitlines())
    ids = source.tokenizer([*filter(None, lines)], truncation=True, max_length=T)["input_ids"]
    return torch.tensor([row for row in ids if len(row) == T], dtype=torch.int64).view(-1, T)


@lru_cache(maxsize=16)
def _layers(source: Transformer, tokens: Tokens) -> list[AttentionLayer]:
    with own_settings():
        return [*heads_of(source.network, torch.tensor(tokens)).values()]


@lru_cache(maxsize=16)
def _scores(source: Transformer, tokens: Tokens, targets: Tokens) -> Tensor:
    return token_scores(source, torch.tensor(tokens), torch.tensor(targets))
