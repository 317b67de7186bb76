"""`data=pretrained`: a head of a pretrained model on sentences of a text."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Generator, Tensor

from attnsvm.config import ConfigError
from attnsvm.data.base import Data, check_own_scores, read_text
from attnsvm.data.pretrained.hooks import heads_of
from attnsvm.data.pretrained.layer import AttentionLayer, Restricted, restricted
from attnsvm.data.pretrained.model import Transformer, load, token_scores
from attnsvm.head import Head, RowScores
from attnsvm.linalg import own_settings
from attnsvm.model import Model
from attnsvm.problem import ProblemBatch

CONTROL_STREAM = 0x5DEECE66D
"""The seed of a control's draws is seed ^ this."""

Tokens = tuple[tuple[int, ...], ...]
"""The tokens (N, T) of sentences."""


@dataclass(eq=False)
class Pretrained(Data):
    """The samples of an instance are sentences, their tokens the rows that a layer sees.

    The query of a sample is one of its own rows, drawn. The weights that come with an instance are
    those of the head, and then of the other heads of its layer. With scores=attended the score of a
    token is 1 higher than that of the others if the head attends to it most, so that training on
    them trains the head towards the tokens that it selects itself. With scores=loss it is by how
    much attention to the token lowers the loss of the model (`token_scores`); a causal model has no
    such score for the tokens that controls move before a query. All labels are +1.

    `transformer` is minilm, or a folder with config.json, model.safetensors and tokenizer.json, and
    `text` a file with one sentence a line, by default that of attnsvm. The n sentences of an
    instance are drawn without replacement from those with at least T tokens, and truncated. Without
    `sinks` their first token is neither key nor query, and sentences have a token after those. For
    `control` see `restricted`; a token that it moves keeps its score.
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
        source, sentences = self._read()
        if self.scores == "loss" and self.control in ("queries", "tokens") and source.causal:
            must = "must be attended with a causal model, whose query has no score for later tokens"
            raise ConfigError(f"data.scores=loss with data.control={self.control}: {must}")
        drawn = [self._instance(source, sentences, seed + i) for i in range(trials)]
        X, Z, mask, W, v = map(torch.stack, zip(*drawn, strict=True))
        Y, seeds = torch.ones_like(Z[..., 0]), seed + torch.arange(trials)
        return ProblemBatch(X, Z, Y, mask, RowScores(), {"v": v}, seeds, W)

    def words(self, seed: int) -> tuple[list[list[str]], list[int]]:
        """Return the tokens of the sentences of the instance `seed`, as text, and each query."""
        source, sentences = self._read()
        chosen, query = self._drawn(source, len(sentences), seed)
        text = source.tokenizer.convert_ids_to_tokens
        return [text(ids) for ids in sentences[chosen, : self.T].tolist()], query.tolist()

    def _read(self) -> tuple[Transformer, Tensor]:
        """Return the model, and sentences of T tokens or more; for the next tokens one more."""
        source = load(self.transformer)
        least = self.T + (not self.sinks or (self.scores == "loss" and source.causal))
        sentences = _sentences(source, read_text(self.text), least)
        if len(sentences) < self.n:
            where = "the text of attnsvm" if self.text is None else f"data.text={self.text}"
            count = f"{len(sentences)}, the sentences of {where} with at least {least} tokens"
            raise ConfigError(f"data.n={self.n}: must be <= {count}")
        for field, most in source.largest.items():
            if (value := getattr(self, field)) > most:
                raise ConfigError(f"data.{field}={value}: must be <= {most} in {self.transformer}")
        return source, sentences

    def _drawn(self, source: Transformer, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return the numbers of n of the sentences, and the position of each query, (n,).

        A causal query comes after the first admissible token, so that it has a choice.
        """
        generator = Generator().manual_seed(seed)
        chosen = torch.randperm(count, generator=generator)[: self.n]
        first = source.causal + (not self.sinks)
        return chosen, torch.randint(first, self.T, (self.n,), generator=generator)

    def _instance(self, source: Transformer, sentences: Tensor, seed: int) -> tuple[Tensor, ...]:
        """Return X, Z, mask, W, scores of an instance."""
        chosen, query = self._drawn(source, len(sentences), seed)
        tokens = _hashable(sentences[chosen, : self.T])
        layer = _layer(source, tokens, self.at_layer)
        stream = seed ^ CONTROL_STREAM
        part = _restricted(layer, tuple(query.tolist()), self.sinks, self.control, stream)
        gamma = None
        if self.scores == "loss":
            following = sentences[(chosen + 1) % len(sentences)]
            targets = _hashable(sentences[chosen, 1:] if source.causal else following)
            scores = _scores(source, tokens, targets)[self.at_layer]
            gamma = scores[part.source, self.at_head, query[part.source], torch.arange(self.T)]
        return part.X, part.Z, part.mask, *part.head(self.at_head, gamma)


# Cells of a sweep differ in the head of a layer, on the same sentences.


@lru_cache(maxsize=8)
def _sentences(source: Transformer, text: str, T: int) -> Tensor:
    return source.sentences(text, T)


@lru_cache(maxsize=32)
def _layer(source: Transformer, tokens: Tokens, at_layer: int) -> AttentionLayer:
    with own_settings():
        return [*heads_of(source.network, torch.tensor(tokens)).values()][at_layer]


@lru_cache(maxsize=64)
def _restricted(
    layer: AttentionLayer, query: tuple[int, ...], sinks: bool, control: str, seed: int
) -> Restricted:
    mask = layer.mask & (torch.arange(layer.X.shape[1]) >= 1 - sinks)
    generator = Generator().manual_seed(seed)
    return restricted(replace(layer, mask=mask), torch.tensor(query), control, generator)


@lru_cache(maxsize=16)
def _scores(source: Transformer, tokens: Tokens, targets: Tokens) -> Tensor:
    return token_scores(source, torch.tensor(tokens), torch.tensor(targets))


def _hashable(tokens: Tensor) -> Tokens:
    return tuple(map(tuple, tokens.tolist()))
