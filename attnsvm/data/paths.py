"""The two published scenes in two dimensions: `data=paths_far | paths_near`."""

from __future__ import annotations

import torch
from torch import Generator

from attnsvm.data.base import Drawn, Seeded, normal, unit_rows
from attnsvm.head import Head


class PathsFar(Seeded):
    """First published two-dimensional scene (seed 1): n=2, T=3, the samples far apart."""

    def __init__(self) -> None:
        super().__init__(n=2, T=3, d=2)

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, tokens of spread 0.3 around (-1, 0) and (1, 0), queries."""
        parameters = head.draw(generator, self.d)
        X = 0.3 * normal(generator, self.n, self.T, self.d)
        X += torch.tensor([[[-1.0, 0.0]], [[1.0, 0.0]]])
        Z = unit_rows(generator, self.n, self.d)
        return Drawn(X.double(), Z, self.labels(generator, (self.n,)), parameters)


class PathsNear(Seeded):
    """Second published two-dimensional scene (seed 3): n=2, T=5, one token of each sample apart."""

    def __init__(self) -> None:
        super().__init__(n=2, T=5, d=2)

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, tokens of spread 0.5 around (-1, 0) except the first of each, queries."""
        parameters = head.draw(generator, self.d)
        X = 0.5 * normal(generator, self.n, self.T, self.d)
        X[:, 1:] += torch.tensor([-1.0, 0.0])
        X[:, 0] = torch.tensor([[1.0, 0.5], [1.0, -0.5]])
        Z = unit_rows(generator, self.n, self.d)
        return Drawn(X.double(), Z, self.labels(generator, (self.n,)), parameters)
