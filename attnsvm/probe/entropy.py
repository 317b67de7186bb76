"""`probe=entropy`: the entropy of attention."""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.probe.base import Probe, Snapshot


class Entropy(Probe):
    """-sum_t s_t log s_t of each sample, in nats: 0 if it attends to one token, at most log T."""

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return mean and maximum over the samples."""
        entropy = torch.special.entr(snapshot.softmax).sum(-1)
        return {"mean": entropy.mean(-1), "max": entropy.amax(-1)}
