"""The base classes of the sources of instances, and the draws that they share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Generator, Tensor

from attnsvm.config import ConfigError
from attnsvm.config.data import DrawnConfig
from attnsvm.data.problem import ProblemBatch
from attnsvm.display.pace import each
from attnsvm.head import Head, Joint, Linear, Parameters, Quadratic, RowScores, Vocabulary
from attnsvm.model import CrossAttention, Model
from attnsvm.record.files import MAX_JSON_BYTES, CorruptRecordError, open_regular, reason_of

TEXT = Path(__file__).with_name("alice.txt")
"""Chapters 1 to 4 of Alice's Adventures in Wonderland by Lewis Carroll, 1865; public domain."""


@dataclass(frozen=True)
class Drawn:
    """One instance as drawn: X (n, T, d), Z (n, d), labels, parameters of the head; float64."""

    X: Tensor
    Z: Tensor
    Y: Tensor
    head_parameters: Parameters


class Data(ABC):
    """A source of problem instances."""

    @abstractmethod
    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return instances with seeds seed, seed + 1, ..., at most `trials` of them."""


@dataclass(eq=False)
class Seeded(Data):
    """Instances drawn one by one, each from its own CPU generator with seed `seed + i`.

    Draws are float32, normalised in float32 and then cast to float64, independent of the default
    dtype and the global generator: bit for bit as published. Labels of a sequence model, one per
    query, are drawn last, so that tokens, queries and head are those of the published instance.
    """

    n: int = DrawnConfig.n
    T: int = DrawnConfig.T
    d: int = DrawnConfig.d

    @abstractmethod
    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Return one instance with labels of shape (n,)."""

    def head_of(self, head: Head, model: Model) -> Head:
        """Return the head of the instances; ConfigError if the source cannot have it."""
        return head

    def labels(self, generator: Generator, shape: tuple[int, ...]) -> Tensor:
        """Return labels of this shape; +1 unless the source draws them."""
        return torch.ones(shape, dtype=torch.float64)

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return `trials` instances, instance i drawn from seed + i."""
        seeds, head = range(seed, seed + trials), self.head_of(head, model)
        shape, drawn = model.label_shape(self.n, self.T), list[Drawn]()
        for k in each("instance", seeds):
            generator = Generator().manual_seed(k)
            instance = self.draw(generator, head)
            if shape != tuple(instance.Y.shape):
                instance = replace(instance, Y=self.labels(generator, shape))
            drawn.append(instance)
        X, Z, Y = (torch.stack([getattr(instance, name) for instance in drawn]) for name in "XZY")
        parameters = {
            name: torch.stack([instance.head_parameters[name] for instance in drawn])
            for name in drawn[0].head_parameters
        }
        samples = vars(model.expand(X, Z, Y, None))
        return ProblemBatch(
            **samples, head=head, head_parameters=parameters, seeds=torch.tensor(seeds)
        )


def check_v(head: Head, data: str) -> None:
    """Raise ConfigError unless it is known that scores are v^T x plus a function of ||x||."""
    if type(head) not in (Linear, Joint, Quadratic):
        name = type(head).__name__.lower()
        raise ConfigError(f"head={name}: must be linear, joint or quadratic with data={data}")


def check_own_scores(head: Head, model: Model, data: str, *classifiers: type[Model]) -> None:
    """Raise ConfigError unless tokens with scores and queries of their own can replace these.

    `classifiers` are models that are allowed besides cross-attention.
    """
    fixed = type(head) is Linear and not head.train
    if not fixed or not isinstance(model, (CrossAttention, *classifiers)):
        models = "cross_attention or linear" if classifiers else "cross_attention"
        must = f"must be linear without training, {models}, with data={data}"
        raise ConfigError(f"head, model: {must}: its tokens have scores of their own")


LabelHead = RowScores | Vocabulary
"""Heads that score next tokens."""


def head_of_labels(head: Head, model: Model, data: str) -> LabelHead:
    """Return the head that scores next tokens: the vocabulary, or one in place of the linear."""
    if isinstance(head, Vocabulary):
        check_own_scores(Linear(), model, data)
        return head
    check_own_scores(head, model, data)
    return RowScores()


def normal(generator: Generator, *shape: int) -> Tensor:
    """Return a standard normal draw, float32."""
    return torch.randn(*shape, generator=generator, dtype=torch.float32)


def text_name(text: str | None) -> str:
    """Return what messages call the text of `read_text`."""
    return "the text of attnsvm" if text is None else f"data.text={text}"


def read_text(text: str | None) -> str:
    """Return the text of a file, by default that of attnsvm; ConfigError if it cannot be read."""
    try:
        with open_regular(
            (TEXT if text is None else Path(text)).resolve(), MAX_JSON_BYTES
        ) as stream:
            return stream.read(MAX_JSON_BYTES).decode()
    except (OSError, ValueError, CorruptRecordError) as error:
        must = "must be a text file, UTF-8"
        raise ConfigError(f"data.text={text}: {reason_of(error)}; {must}") from error
