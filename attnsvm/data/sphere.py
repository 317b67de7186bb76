"""`data=sphere`: tokens, queries and head on the unit sphere."""

from __future__ import annotations

from torch import Generator, Tensor

from attnsvm.data.base import Drawn
from attnsvm.data.seeded import Seeded, normal, unit_rows
from attnsvm.head import Head


class Sphere(Seeded):
    """Tokens, queries and v uniform on the unit sphere; labels +-1 with equal chance."""

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, labels, tokens, queries - or, with the relu head, the tokens first."""
        parameters = head.draw(generator, self.d)
        if head.LABELS_FIRST:
            Y = self.labels(generator, (self.n,))
            X = unit_rows(generator, self.n, self.T, self.d)
        else:
            X = unit_rows(generator, self.n, self.T, self.d)
            Y = self.labels(generator, (self.n,))
        return Drawn(X, unit_rows(generator, self.n, self.d), Y, parameters)

    def labels(self, generator: Generator, shape: tuple[int, ...]) -> Tensor:
        """Return signs of normal draws."""
        return 2.0 * (normal(generator, *shape) > 0).double() - 1.0
