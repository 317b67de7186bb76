"""`probe=[alignment]`."""

from __future__ import annotations

from attnsvm.probe import Probe


class Alignment(Probe):
    """<W, W^T> / ||W||_F^2; NaN for W = 0."""

    def measure(self, snapshot):
        """Return the quantity of every instance, shape (B,)."""
        W = snapshot.W
        return {"symmetry": (W * W.mT).sum((1, 2)) / W.square().sum((1, 2))}
