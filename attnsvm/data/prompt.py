"""`data=prompt`: all samples share one query."""

from __future__ import annotations

from torch import Generator

from attnsvm.data.base import Drawn
from attnsvm.data.seeded import Seeded, unit_rows
from attnsvm.head import Head


class Prompt(Seeded):
    """Tokens and v uniform on the unit sphere, one query z for all samples; all labels +1.

    The model of arXiv 2306.13596: only p = W z enters the logits x^T p, so that training W from
    zero is training of the prompt p, W(k) = p(k) z^T / ||z||^2.
    """

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, tokens, the query."""
        parameters = head.draw(generator, self.d)
        X = unit_rows(generator, self.n, self.T, self.d)
        Z = unit_rows(generator, 1, self.d).expand(self.n, -1).contiguous()
        return Drawn(X, Z, self.labels(generator, (self.n,)), parameters)
