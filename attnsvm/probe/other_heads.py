"""`probe=other_heads`: the other heads of a layer against the SVM of one head's tokens."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from attnsvm.config.probe import OtherHeadsConfig
from attnsvm.direction import one_minus_correlation
from attnsvm.probe.base import Probe, Snapshot


class OtherHeads(Probe):
    """Mean correlation of the weights of the other heads with the SVM, by norm.

    The weights are those that come with data=pretrained. NaN for a norm whose SVM is not solved,
    and where there is no other head.
    """

    SOLUTIONS: ClassVar[bool] = True
    WEIGHTS: ClassVar[bool] = True

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the mean correlation in each norm."""
        weights, solutions = snapshot.batch.weights, snapshot.solutions
        nothing = torch.full_like(snapshot.W[:, 0, 0], torch.nan)
        if weights is None or weights.shape[1] < 2:
            return dict.fromkeys(OtherHeadsConfig.QUANTITIES, nothing)
        return {
            norm: 1 - one_minus_correlation(weights[:, 1:], solutions[norm].W[:, None]).mean(1)
            if norm in solutions
            else nothing
            for norm in OtherHeadsConfig.QUANTITIES
        }
