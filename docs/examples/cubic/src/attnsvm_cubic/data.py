"""`data=clusters`."""

from __future__ import annotations

import torch

from attnsvm.data import Drawn, Seeded


class Clusters(Seeded):
    """Tokens +-c + spread * noise, c the same for a sample; queries and labels as in `sphere`."""

    def __init__(self, n, T, d, spread):
        super().__init__(n, T, d)
        self.spread = spread

    def draw(self, generator, head):
        """Return one instance; everything is drawn from its generator."""

        def normal(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float32).double()

        centre, noise = normal(self.n, 1, self.d), normal(self.n, self.T, self.d)
        side = normal(self.n, self.T, 1).sign()
        X = side * centre / centre.norm(dim=-1, keepdim=True) + self.spread * noise
        Z = normal(self.n, self.d)
        Y = self.labels(generator, (self.n,))
        return Drawn(X, Z, Y, head.draw(generator, self.d))

    def labels(self, generator, shape):
        """Return labels of equal chance."""
        return torch.randn(*shape, generator=generator, dtype=torch.float32).sign().double()
