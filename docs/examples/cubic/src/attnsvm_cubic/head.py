"""`head=cubic`."""

from __future__ import annotations

from attnsvm.head import Head, unit_vector


class Cubic(Head):
    """h(o) = (v^T o)^power with parameters v, shape (B, d), ||v|| = 1.

    Parameters
    ----------
    power : int
        The exponent, odd.
    """

    def __init__(self, power):
        super().__init__()
        self.power = power

    def draw(self, generator, d):
        """Return v, uniform on the unit sphere."""
        return {"v": unit_vector(generator, d)}

    def value(self, o, parameters):
        """Return (v^T o)^power, shape (B, ...), of o (B, ..., d)."""
        v = parameters["v"]
        v = v.reshape(len(v), *[1] * (o.ndim - 2), v.shape[-1])
        return (o * v).sum(-1) ** self.power
