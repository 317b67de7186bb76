"""`probe=mixture`: distance of attention from the mixture of tokens that scores best."""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.probe.base import Probe, Snapshot
from attnsvm.problem import ProblemBatch
from attnsvm.theory import PredictedPart, optimal_mixture


class Mixture(Probe):
    """The attention of least risk, and the W_fin that it determines; both known before training."""

    def __init__(self) -> None:
        self._known: tuple[ProblemBatch, Tensor, list[PredictedPart | None]] | None = None

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the total variation distance of the softmax, and the relative one of W_fin."""
        mixture, parts = self._predicted(snapshot.batch)
        W = snapshot.W.cpu().numpy()
        fin = [torch.nan if one is None else one.apart(V) for one, V in zip(parts, W, strict=True)]
        apart = 0.5 * (snapshot.softmax - mixture).abs().sum(-1)
        return {"apart": apart.amax(-1), "fin": torch.tensor(fin).to(apart)}

    def _predicted(self, batch: ProblemBatch) -> tuple[Tensor, list[PredictedPart | None]]:
        """Return the mixture and W_fin of every instance, made once for all snapshots."""
        if self._known is None or self._known[0] is not batch:
            mixture = optimal_mixture(batch)
            arrays = (part.cpu().numpy() for part in (batch.X, batch.Z, mixture))
            parts = [PredictedPart.of(*one) for one in zip(*arrays, strict=True)]
            self._known = batch, mixture, parts
        return self._known[1:]
