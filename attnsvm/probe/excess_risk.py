"""`probe=excess_risk`: how far the risk is above that of attending to the selected tokens alone."""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.attention import Risk
from attnsvm.head import Linear
from attnsvm.parameterization import W
from attnsvm.probe.base import Probe, Snapshot


class ExcessRisk(Probe):
    """log(L - L*) of `attnsvm.attention.Risk.log_excess`, which neither cancels nor underflows.

    L* is the risk of attending to the selected tokens alone, the limit of L once attention
    saturates on them. NaN where L <= L*, and for heads other than the linear one.
    """

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return log(L - L*)."""
        batch = snapshot.batch
        if not isinstance(batch.head, Linear):
            return {"log": torch.full_like(snapshot.W[:, 0, 0], torch.nan)}
        risk = Risk(batch, W(), snapshot.loss)
        value = risk.log_excess(risk.forward((snapshot.W,)), snapshot.selected)
        return {"log": value.where(value.isfinite(), torch.nan)}
