"""Random instances, each from its own generator, bit for bit as published."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod

import torch
from torch import Generator, Tensor

from attnsvm.data.base import Data, Drawn, batch_of, stacked
from attnsvm.head import Head
from attnsvm.model import Model
from attnsvm.problem import ProblemBatch


class Seeded(Data):
    """Instances drawn one by one, each from its own CPU generator with seed `seed + i`.

    Draws are float32, normalised in float32 and then cast to float64, independent of the default
    dtype and the global generator. Labels of a sequence model, one per query, are drawn last, so
    that tokens, queries and head are those of the published instance.
    """

    def __init__(self, n: int, T: int, d: int) -> None:
        self.n, self.T, self.d = n, T, d

    @abstractmethod
    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Return one instance with labels of shape (n,)."""

    def labels(self, generator: Generator, shape: tuple[int, ...]) -> Tensor:
        """Return labels of this shape; +1 unless the source draws them."""
        return torch.ones(shape, dtype=torch.float64)

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return `trials` instances, instance i drawn from seed + i."""
        drawn = [self._draw_labelled(seed + i, head, model) for i in range(trials)]
        samples = model.expand(
            torch.stack([one.X for one in drawn]),
            torch.stack([one.Z for one in drawn]),
            torch.stack([one.Y for one in drawn]),
            None,
        )
        parameters = [one.head_parameters for one in drawn]
        return batch_of(samples, head, stacked(parameters), seed)

    def _draw_labelled(self, seed: int, head: Head, model: Model) -> Drawn:
        generator = Generator().manual_seed(seed)
        drawn = self.draw(generator, head)
        shape = model.label_shape(self.n, self.T)
        if shape == tuple(drawn.Y.shape):
            return drawn
        return dataclasses.replace(drawn, Y=self.labels(generator, shape))


def normal(generator: Generator, *shape: int) -> Tensor:
    """Return a standard normal draw, float32."""
    return torch.randn(*shape, generator=generator, dtype=torch.float32)


def unit_rows(generator: Generator, *shape: int) -> Tensor:
    """Return a draw uniform on the unit sphere along the last axis, float64."""
    rows = normal(generator, *shape)
    unit: Tensor = rows / rows.norm(dim=-1, keepdim=True)
    return unit.double()
