"""`data=orthonormal`: each sample has orthonormal tokens."""

from __future__ import annotations

import torch
from torch import Generator

from attnsvm.config import ConfigError
from attnsvm.data.base import Drawn
from attnsvm.data.seeded import Seeded, normal, unit_rows
from attnsvm.head import Head


class Orthonormal(Seeded):
    """Each sample's T <= d tokens are orthonormal; all labels +1.

    For T = d the tokens are the rows of the left factor of the singular value decomposition of a
    normal T x d draw, as published. For T < d that factor has rows of length T only; the tokens are
    then the columns of the left factor of the decomposition of its transpose.
    """

    def __init__(self, n: int, T: int, d: int) -> None:
        if T > d:
            raise ConfigError(f"data.T={T}: must be <= d={d}: the tokens are orthonormal")
        super().__init__(n, T, d)

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, tokens, queries."""
        parameters = head.draw(generator, self.d)
        X = normal(generator, self.n, self.T, self.d)
        if self.T == self.d:
            X = torch.linalg.svd(X)[0]
        else:
            X = torch.linalg.svd(X.mT, full_matrices=False)[0].mT
        Z = unit_rows(generator, self.n, self.d)
        return Drawn(X.double().contiguous(), Z, self.labels(generator, (self.n,)), parameters)
