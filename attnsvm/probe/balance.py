"""`probe=balance`: how far K and Q are from balance."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from attnsvm.probe.base import Probe, Snapshot


class Balance(Probe):
    """||K^T K - Q^T Q||_F / (||K||_F ||Q||_F); NaN where a factor is zero.

    Gradient flow keeps K^T K - Q^T Q; it is zero for factors of the least norm of K Q^T.
    """

    FACTORS: ClassVar[bool] = True

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the gap."""
        K, Q = snapshot.K, snapshot.Q
        assert K is not None
        assert Q is not None
        k, q = (F.flatten(1).norm(dim=1) for F in (K, Q))
        unit_K, unit_Q = K / k[:, None, None], Q / q[:, None, None]  # squares do not overflow
        ratio = (k / q)[:, None, None]
        apart = unit_K.mT @ unit_K * ratio - unit_Q.mT @ unit_Q / ratio
        return {"gap": apart.flatten(1).norm(dim=1)}
