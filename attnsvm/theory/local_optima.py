"""The locally optimal selections of an instance, each with its certified SVM, before training."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.data.problem import ProblemBatch
from attnsvm.linalg import own_settings
from attnsvm.norm import Norm
from attnsvm.svm import SvmSolution, SvmStatus, solve_svm

SELECTIONS = 4096
"""Largest number of selections of an instance that are listed."""

AT_ONCE = 20_000
"""Largest number of SVMs that are solved together."""


@dataclass(frozen=True, eq=False)
class LocalOptima:
    """Selections of tokens of one instance with their SVMs.

    Attributes
    ----------
    tokens : Tensor
        One token of each sample, (P, n), int64.
    solution : SvmSolution
        The SVM of each selection in one norm.
    local : list of bool or None
        Whether each is locally optimal (Definition 2 of arXiv 2308.16898): its SVM is feasible, and
        every selected token scores above its neighbours, those of margin 1. None: not decided.
    optimal : Tensor
        Whether every selected token has the highest score of its sample, (P,), bool.
    """

    tokens: Tensor
    solution: SvmSolution[Tensor]
    local: list[bool | None]
    optimal: Tensor

    def take(self, index: Tensor) -> "LocalOptima":
        """Return the selections at `index`."""
        local = [self.local[k] for k in index.tolist()]
        return LocalOptima(self.tokens[index], self.solution[index], local, self.optimal[index])


@own_settings()
def local_optima(batch: ProblemBatch, norm: str | Norm = "frobenius") -> list[LocalOptima]:
    """Return all locally optimal selections of every instance.

    One whose SVM is `undecided` is kept, with `local` None.

    Parameters
    ----------
    batch : ProblemBatch
        B instances.
    norm : str or Norm
        Of the SVM: that of the parameterization, frobenius for W and nuclear for (K, Q).

    Raises
    ------
    ValueError
        If an instance has more than 4096 selections, prod_i T_i.
    """
    if (largest := max(selection_counts(batch))) > SELECTIONS:
        raise ValueError(f"batch: {largest} selections of tokens; must be at most {SELECTIONS}")
    lists = [every_selection(mask) for mask in batch.mask]
    return [
        every.take(torch.tensor([verdict is not False for verdict in every.local]).nonzero()[:, 0])
        for every in judged(batch, lists, norm)
    ]


def judged(batch: ProblemBatch, lists: list[Tensor], norm: str | Norm) -> Iterator[LocalOptima]:
    """Yield for every instance the given selections, (P, n), with SVM and local optimality.

    Instances are solved together, up to `AT_ONCE` selections.
    """
    size = max(1, AT_ONCE // max(1, *map(len, lists)))
    for part in torch.split(torch.arange(batch.B), size):
        chosen = [lists[k] for k in part.tolist()]
        counts, tokens = [len(selections) for selections in chosen], torch.cat(chosen)
        several = batch.take(part.repeat_interleave(torch.tensor(counts)))
        gamma, (X, Z) = several.scores(), (several.X, several.Z)
        solution = solve_svm(X, Z, tokens, norm, several.mask)
        score = gamma.gather(2, tokens[..., None])
        above = ((gamma < score) | ~solution.support).flatten(1).all(1).tolist()
        pairs = zip(solution.statuses, above, strict=True)
        local = [feasible(status) and up for status, up in pairs]
        every = LocalOptima(tokens, solution, local, (score[..., 0] == gamma.amax(-1)).all(1))
        for index in torch.split(torch.arange(len(tokens)), counts):
            yield every.take(index)


def feasible(status: SvmStatus) -> bool | None:
    """Return whether some W separates the tokens of an SVM; None if it is undecided."""
    return None if status is SvmStatus.undecided else status is not SvmStatus.infeasible


def selection_counts(batch: ProblemBatch) -> list[int]:
    """Return the number of selections of one admissible token a sample, of each instance."""
    return [math.prod(row) for row in batch.mask.sum(-1).tolist()]


def every_selection(mask: Tensor) -> Tensor:
    """Return every choice of one admissible token a sample, (P, n)."""
    return torch.cartesian_prod(*(row.nonzero()[:, 0] for row in mask)).reshape(-1, len(mask))
