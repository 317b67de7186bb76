"""`data=text`: the next words of a real text."""

import re
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from attnsvm.config import ConfigError
from attnsvm.data.base import read_text, text_name
from attnsvm.data.token_graph import Vocabulary

WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
"""A word: letters and digits, with single apostrophes and hyphens between them."""


@dataclass(eq=False)
class Text(Vocabulary):
    """Windows of T consecutive words of a text whose next word, the label, is one of them.

    The vocabulary are the K most frequent words of the text in lower case, the first ones by the
    alphabet among equally frequent ones. Other words and punctuation are left out before windows
    are taken. The n windows of an instance are drawn without replacement from the `usable` ones.

    `known` is the vocabulary, the most frequent word first; `windows` counts all windows, also
    those whose next word is not one of theirs; `usable` (N, T + 1) are the ids of those of which it
    is, and of the next word.
    """

    NAME = "text"

    text: str | None = None

    def __post_init__(self) -> None:
        n, T, K, words = self.n, self.T, self.K, WORD.findall(read_text(self.text).lower())
        counts = Counter(words)
        of = text_name(self.text)
        if K > len(counts):
            raise ConfigError(f"data.K={K}: must be <= {len(counts)}, the different words of {of}")
        self.known = sorted(counts, key=lambda word: (-counts[word], word))[:K]
        place = {word: k for k, word in enumerate(self.known)}
        ids = torch.tensor([place[word] for word in words if word in place])
        self.windows = max(len(ids) - T, 0)
        windows = ids.unfold(0, T + 1, 1) if self.windows else ids.new_zeros(0, T + 1)
        self.usable = windows[(windows[:, :-1] == windows[:, -1:]).any(1)]
        if n > len(self.usable):
            must = f"must be <= {len(self.usable)}, the windows of {T} words of {of} that have"
            raise ConfigError(f"data.n={n}: {must} their next word, of {self.windows}")

    def sequences(self, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw windows, and return their next words."""
        drawn = self.usable[torch.randperm(len(self.usable), generator=generator)[: self.n]]
        return drawn[:, :-1], drawn[:, -1]

    def words(self, seed: int) -> list[list[str]]:
        """Return the words of the windows of the instance `seed`."""
        generator = Generator().manual_seed(seed)
        self.vocabulary(generator)  # drawn before
        return [[self.known[k] for k in ids] for ids in self.sequences(generator)[0].tolist()]
