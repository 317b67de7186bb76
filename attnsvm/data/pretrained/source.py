"""`data=pretrained`: a head of a pretrained model on sentences of a text."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from attnsvm.config import ConfigError
from attnsvm.data.base import Data, check_own_scores
from attnsvm.data.pretrained.layer import restricted
from attnsvm.data.pretrained.model import PretrainedModel, contents, forward, load, token_scores
from attnsvm.head import Head, RowScores
from attnsvm.model import Model
from attnsvm.problem import ProblemBatch
from attnsvm.record.files import CorruptRecordError, reason_of

Value = TypeVar("Value")

TEXT = Path(__file__).parent / "alice.txt"
"""Chapters 1 to 4 of Alice's Adventures in Wonderland by Lewis Carroll, 1865; public domain."""

CONTROL_STREAM = 0x5DEECE66D
"""The seed of a control's draws is seed ^ this."""


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
        moved = self.control in ("queries", "tokens")
        if self.scores == "loss" and moved and source.causal:
            must = "must be attended with a causal model, whose query has no score for later tokens"
            raise ConfigError(f"data.scores=loss with data.control={self.control}: {must}")
        drawn = [self._instance(source, sentences, seed + i) for i in range(trials)]
        X, Z, mask, W, scores = map(torch.stack, zip(*drawn, strict=True))
        return ProblemBatch(
            X, Z, torch.ones_like(Z[..., 0]), mask, RowScores(), {"v": scores},
            seed + torch.arange(trials), W,
        )  # fmt: skip

    def words(self, seed: int) -> tuple[list[list[str]], list[int]]:
        """Return the tokens of the sentences of the instance `seed`, as text, and each query."""
        source, sentences = self._read()
        chosen, query = self._drawn(source, len(sentences), seed)
        token = source.tokenizer.id_to_token
        words = [[str(token(k)) for k in one] for one in sentences[chosen, : self.T].tolist()]
        return words, query.tolist()

    def _read(self) -> tuple[PretrainedModel, Tensor]:
        """Return the model, and sentences of T tokens or more; for the next tokens one more."""
        source = load(self.transformer)
        least = self.T + (not self.sinks or (self.scores == "loss" and source.causal))
        found = _sentences(source, read_text(self.text), least)
        if len(found) < self.n:
            where = "the text of attnsvm" if self.text is None else f"data.text={self.text}"
            must = f"must be <= {len(found)}, the sentences of {where} with at least {least} tokens"
            raise ConfigError(f"data.n={self.n}: {must}")
        return source, found

    def _drawn(self, source: PretrainedModel, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return the numbers of n of the sentences, and the position of each query, (n,).

        A causal query comes after the first admissible token, so that it has a choice.
        """
        generator = Generator().manual_seed(seed)
        chosen = torch.randperm(count, generator=generator)[: self.n]
        first = source.causal + (not self.sinks)
        return chosen, torch.randint(first, self.T, (self.n,), generator=generator)

    def _instance(
        self, source: PretrainedModel, sentences: Tensor, seed: int
    ) -> tuple[Tensor, ...]:
        """Return X, Z, mask, W, scores of an instance."""
        chosen, query = self._drawn(source, len(sentences), seed)
        tokens = sentences[chosen, : self.T]
        layers = RECENT.value(source, tokens.numpy().tobytes(), lambda: forward(source, tokens)[0])
        if not 0 <= self.at_layer < len(layers):
            raise ConfigError(f"data.at_layer={self.at_layer}: must be >= 0 and < {len(layers)}")
        layer = layers[self.at_layer]
        places = torch.arange(self.T) >= 1 - self.sinks
        if self.at_head >= layer.heads:
            raise ConfigError(f"data.at_head={self.at_head}: must be >= 0 and < {layer.heads}")
        generator = Generator().manual_seed(seed ^ CONTROL_STREAM)
        whole = RECENT.value(
            layer,
            (self.control, self.sinks, seed, query.numpy().tobytes()),
            lambda: restricted(
                replace(layer, mask=layer.mask & places), query, self.control, generator
            ),
        )
        scores = None
        if self.scores == "loss":
            following = sentences[(chosen + 1) % len(sentences)]
            targets = sentences[chosen, 1:] if source.causal else following
            key = tokens.numpy().tobytes(), targets.numpy().tobytes()
            gamma = RECENT.value(source, key, lambda: token_scores(source, tokens, targets))
            at = whole.source, self.at_head, query[whole.source], torch.arange(self.T)
            scores = gamma[self.at_layer][at]
        return whole.X, whole.Z, whole.mask, *whole.head(self.at_head, scores)


class Recent:
    """What was computed last, whose tensors have at most `most` bytes.

    Cells of a sweep differ in the head of a layer, on the same sentences: they share forward
    passes, rows in their span, and scores.
    """

    def __init__(self, most: int) -> None:
        self.most, self.bytes = most, 0
        self.kept: OrderedDict[Hashable, tuple[object, object, int]] = OrderedDict()

    def value(self, owner: object, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return what `make` returns for a key of an object, which is kept with it."""
        key = id(owner), key  # an object that is kept keeps its id
        if key in self.kept:
            self.kept.move_to_end(key)
            return self.kept[key][1]  # type: ignore[return-value]
        made = make()
        self.kept[key] = owner, made, _bytes(made)
        self.bytes += self.kept[key][2]
        while self.bytes > self.most:
            self.bytes -= self.kept.popitem(last=False)[1][2]
        return made


def _bytes(value: Any) -> int:
    """Return the bytes of a tensor, of a list of layers, or of a dataclass of tensors."""
    if isinstance(value, Tensor):
        return value.nbytes
    parts = value if isinstance(value, list) else vars(value).values()
    return sum(map(_bytes, parts))


RECENT = Recent(2**28 + 2**27)
"""What the runs of this process share: MiniLM counts 44 MB for 24 sentences and all controls."""


@lru_cache(maxsize=8)
def _sentences(source: PretrainedModel, text: str, T: int) -> Tensor:
    """Return the tokens of the different lines that have at least T, (N, T)."""
    different = dict.fromkeys(line.strip() for line in text.splitlines())
    return source.encoded([line for line in different if line], T)


def read_text(text: str | None) -> str:
    """Return the text of a file, by default that of attnsvm; ConfigError if it cannot be read."""
    try:
        return contents(TEXT if text is None else Path(text)).decode("utf-8")
    except (OSError, ValueError, CorruptRecordError) as error:
        raise ConfigError(
            f"data.text={text}: {reason_of(error)}; must be a text file, UTF-8"
        ) from error
