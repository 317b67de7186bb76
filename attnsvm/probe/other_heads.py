"""`probe=other_heads`: the other heads of a layer against the SVM of one head's tokens."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from attnsvm.config.probe import OtherHeadsConfig
from attnsvm.linalg import times
from attnsvm.linalg.directions import unit
from attnsvm.probe.base import Probe, Snapshot
from attnsvm.svm import SvmSolution
from attnsvm.svm.equalities import restoring


class OtherHeads(Probe):
    """Mean correlation of the weights of the other heads with the SVM, by norm.

    The weights are those that come with data=pretrained. With selection=multi they are projected
    on the matrices with equal logits inside of every set of attended tokens, as W_mm has. NaN for a
    norm whose SVM is not solved, and where there is no other head.
    """

    SOLUTIONS: ClassVar[bool] = True
    GEN_SVM: ClassVar[bool] = True
    WEIGHTS: ClassVar[bool] = True

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the mean correlation in each norm."""
        weights, solutions = snapshot.batch.weights, snapshot.solutions
        nothing = torch.full_like(snapshot.W[:, 0, 0], torch.nan)
        if weights is None or weights.shape[1] < 2 or not solutions:
            return dict.fromkeys(OtherHeadsConfig.QUANTITIES, nothing)
        others = _with_equal_logits(next(iter(solutions.values())), weights[:, 1:])
        rows = unit(others).flatten(2)
        return {
            norm: times(rows, unit(solutions[norm].W).flatten(1)[..., None]).mean((1, 2))
            if norm in solutions
            else nothing
            for norm in OtherHeadsConfig.QUANTITIES
        }


def _with_equal_logits(solution: SvmSolution[Tensor], W: Tensor) -> Tensor:
    """Return the W (B, H, d, d) projected on the matrices that satisfy the equalities, if any."""
    restored = restoring(solution.problem.equalities())
    return torch.stack([restored(one) for one in W.unbind(1)], dim=1)
