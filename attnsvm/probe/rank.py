"""`probe=rank`: effective and stable rank of W."""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.probe.base import Probe, Snapshot


class Rank(Probe):
    """Effective rank #{sigma_k > threshold sigma_1} and stable rank sum_k sigma_k^2 / sigma_1^2.

    NaN for W = 0.

    Parameters
    ----------
    threshold : float
        0 < threshold < 1.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return both ranks, from the singular values."""
        sigma = torch.linalg.svdvals(snapshot.W)
        ratio = sigma / sigma[:, :1]  # NaN for W = 0
        defined = sigma[:, 0] > 0
        effective = (ratio > self.threshold).sum(-1).to(sigma)
        return {
            "effective": torch.where(defined, effective, torch.nan),
            "stable": ratio.square().sum(-1),
        }
