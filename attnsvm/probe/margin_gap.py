"""`probe=margin_gap`: by how much W misses the largest margin, at every recorded step."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from attnsvm.comparison import margin_gap
from attnsvm.config.probe import MarginGapConfig
from attnsvm.probe.base import Probe, Snapshot


class MarginGap(Probe):
    """1 - rho(W) of `attnsvm.margin_gap`, by norm; NaN for a norm whose SVM is not solved."""

    SOLUTIONS: ClassVar[bool] = True

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the gap by each norm."""
        W, solutions = snapshot.W, snapshot.solutions
        nothing = W.new_full((len(W),), torch.nan)
        return {
            norm: margin_gap(W, solutions[norm]) if norm in solutions else nothing
            for norm in MarginGapConfig.QUANTITIES
        }
