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
    selection=multi that is not defined where a sample attends to several tokens: NaN. Beside each
    share stands its expected value if the scores of every sample were in random order: a token is
    above k others in one of 1 + k orders.
    """

    SOLUTIONS: ClassVar[bool] = True
    GEN_SVM: ClassVar[bool] = True

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the shares, and those by chance."""
        gamma, selected = snapshot.batch.scores(), snapshot.selected[..., None]
        below = gamma < gamma.gather(2, selected)
        itself = torch.zeros_like(below).scatter(2, selected, True)
        found = _shares("best", below, snapshot.batch.mask & ~itself)
        undefined = torch.full_like(found["best"], torch.nan)
        for norm in OptimalityConfig.NORMS:
            found |= {norm: undefined, f"{norm}_chance": undefined}
            if (solution := snapshot.solutions.get(norm)) is not None:
                known = _one_token_solved(solution).to(undefined.device)
                shares = _shares(norm, below, solution.support)
                found |= {name: share.where(known, undefined) for name, share in shares.items()}
        return found


def _shares(name: str, below: Tensor, others: Tensor) -> dict[str, Tensor]:
    """Return the share of samples with all `others` (B, n, T) below, and that by chance."""
    return {
        name: (below | ~others).all(2).double().mean(1),
        f"{name}_chance": (1 + others.sum(2)).double().reciprocal().mean(1),
    }


def _one_token_solved(solution: SvmSolution[Tensor]) -> Tensor:
    """Return whether each SVM is solved and has one token for every sample, (B,)."""
    solved = torch.tensor([status is SvmStatus.solved for status in solution.statuses])
    several = solution.problem.equality.flatten(1).any(1)
    return solved & ~several.cpu()
