"""`data=token_graph`: next tokens drawn from the priorities of a vocabulary."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from attnsvm.config.data import TokenGraphConfig, VocabularyConfig
from attnsvm.data.base import Drawn, LabelHead, Seeded, head_of_labels, normal
from attnsvm.head import Head, unit_vector
from attnsvm.linalg import own_settings
from attnsvm.model import Model


@dataclass(eq=False)
class Vocabulary(Seeded):
    """Sequences of T token ids with the next one, the label, among them (arXiv 2403.08081).

    E (K, d) are the embeddings of the vocabulary, uniform on the unit sphere or orthonormal. The
    query is the embedding of the last token. The head of a sequence with label y has the row c_y of
    C, which is E, or pinv(E)^T: then it reads off the attention that y has.
    """

    NAME: ClassVar[str]

    K: int = VocabularyConfig.K
    embeddings: str = "sphere"
    output: str = VocabularyConfig.output

    @abstractmethod
    def sequences(self, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw the ids of the sequences (n, T) and of their next tokens (n,)."""

    def head_of(self, head: Head, model: Model) -> Head:
        """Return the head of each sequence's label."""
        return head_of_labels(head, model, self.NAME)

    @own_settings()
    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw embeddings, ids, labels."""
        assert isinstance(head, LabelHead)  # as `head_of` says
        E = self.vocabulary(generator)
        ids, following = self.sequences(generator)
        X, C = E[ids], E if self.output == "tied" else torch.linalg.pinv(E).mT
        of_head = head.of_labels(C, following)
        return Drawn(X, X[:, -1].clone(), self.labels(generator, (self.n,)), of_head)

    def vocabulary(self, generator: Generator) -> Tensor:
        """Draw the embeddings (K, d)."""
        E = unit_vector(generator, self.K, self.d)
        if self.embeddings == "orthonormal":
            E = torch.linalg.svd(normal(generator, self.K, self.d).double(), full_matrices=False)[2]
        return E


@dataclass(eq=False)
class TokenGraph(Vocabulary):
    """Ids are uniform, and a graph decides which of them is next.

    With an acyclic graph each last token has its own random order of the vocabulary, and the label
    is the first of the sequence's ids by it; with a cyclic one it is the id at a random place.
    """

    NAME = "token_graph"

    graph: str = TokenGraphConfig.graph

    def sequences(self, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw ids and next tokens."""
        ids = torch.randint(self.K, (self.n, self.T), generator=generator)
        if self.graph == "cyclic":
            place = torch.randint(self.T, (self.n, 1), generator=generator)
        else:
            orders = [torch.randperm(self.K, generator=generator) for _ in range(self.K)]
            place = torch.stack(orders)[ids[:, -1:], ids].argmin(1, keepdim=True)
        return ids, ids.gather(1, place).squeeze(1)
