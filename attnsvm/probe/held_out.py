"""`probe=held_out`: what W selects in further samples of the same instance."""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.probe.base import Probe, Snapshot


class HeldOut(Probe):
    """Attention on samples that W was not trained on, those of `ProblemBatch.held_out`."""

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the share of samples that attend most to an optimal token, and the excess risk."""
        batch = snapshot.batch.held_out
        if batch is None:
            raise ConfigError("probe=[held_out]: data must be planted, with data.held_out >= 1")
        logits = (batch.X @ (batch.Z @ snapshot.W.mT)[..., None])[..., 0]
        logits = logits.masked_fill(~batch.mask, -torch.inf)
        s = logits.softmax(-1)
        outputs = (s[:, :, None] @ batch.X)[:, :, 0]
        f = batch.Y * batch.head.value(outputs, batch.head_parameters)
        gamma = batch.scores()
        best = gamma.amax(-1)
        found = gamma.gather(2, logits.argmax(-1)[..., None])[..., 0] == best
        return {"optimal": found.double().mean(-1), "excess": (best - f).mean(-1)}
