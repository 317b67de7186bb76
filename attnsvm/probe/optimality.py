"""`probe=optimality`: in how many samples the selected token is optimal, or locally optimal."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from attnsvm.config.probe import OptimalityConfig
from attnsvm.probe.base import Probe, Snapshot
from attnsvm.svm import SvmSolution, SvmStatus


class Optimality(Probe):
    """Definition 2 of arXiv 2308.16898, sample by sample.

    The selected tokens of an instance are locally optimal in a norm if the share in it is 1. With
    selection=multi that is not defined where a sample attends to several tokens: NaN.
    """

    SOLUTIONS: ClassVar[bool] = True
    GEN_SVM: ClassVar[bool] = True

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the shares."""
        solutions = snapshot.solutions
        gamma, selected = snapshot.batch.scores(), snapshot.selected[..., None]
        below = gamma < gamma.gather(2, selected)
        itself = torch.zeros_like(below).scatter(2, selected, True)
        admissible = snapshot.batch.mask & ~itself
        found = {"best": (below | ~admissible).all(2).double().mean(1)}
        for norm in OptimalityConfig.QUANTITIES.keys() - found:
            share = torch.full_like(found["best"], torch.nan)
            if norm in solutions:
                known = _one_token_solved(solutions[norm]).to(share.device)
                above = (below | ~solutions[norm].support).all(2).double().mean(1)
                share = torch.where(known, above, share)
            found[norm] = share
        return found


def _one_token_solved(solution: SvmSolution[Tensor]) -> Tensor:
    """Return whether each SVM is solved and has one token for every sample, (B,)."""
    solved = torch.tensor([status is SvmStatus.solved for status in solution.statuses])
    several = solution.problem.equality.flatten(1).any(1)
    return solved & ~several.cpu()
