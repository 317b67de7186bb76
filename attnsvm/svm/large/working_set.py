"""A problem on some of its rows, and the interface of methods whose rows change on the way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from attnsvm.svm.from_frobenius import FromFrobenius
from attnsvm.svm.problem import SvmProblem


def restrict(problem: SvmProblem, index: Tensor) -> SvmProblem:
    """Return the problem with the rows at `index`, each of them as one sample."""
    return SvmProblem(
        problem.D[:, index],
        problem.Z[:, index // (problem.N // problem.n)],
        problem.h[:, index],
        problem.kind[:, index],
        problem.token[:, index],
    )


def staying(old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of the rows `new` are among `old`, and their places there; both ascend."""
    stays = torch.isin(new, old)
    return stays, torch.searchsorted(old, new[stays])


class OnRows(ABC):
    """A method for one instance, on rows that change.

    Attributes
    ----------
    ROUGH : tuple of float
        Duality gaps of the rounds after which idle rows leave.
    """

    ROUGH: ClassVar[tuple[float, ...]] = ()

    @abstractmethod
    def begin(self, problem: SvmProblem, index: Tensor, W: Tensor, a: Tensor) -> None:
        """Start on the rows at `index`, (r,), from W (1, d, d) and multipliers a (1, r)."""

    @abstractmethod
    def solve(self, gap: float, keep: bool) -> tuple[Tensor, Tensor]:
        """Return W (1, d, d) and multipliers (1, r) of a duality gap of at most `gap`.

        With `keep` the next round starts where this one ends, else where it started.
        """

    @abstractmethod
    def change(self, index: Tensor, gap: float) -> None:
        """Continue on the rows at `index`; what the last rough round left has this gap."""


class Afresh(OnRows):
    """Any solver, which starts from the Frobenius solution in each round."""

    def __init__(self, solver: FromFrobenius) -> None:
        self.solver = solver

    def begin(self, problem: SvmProblem, index: Tensor, W: Tensor, a: Tensor) -> None:
        """Keep the problem and the start."""
        self.problem, self.W = problem, W
        self.a = a.new_zeros(problem.h.shape)
        self.a[:, index] = a
        self.index = index

    def solve(self, gap: float, keep: bool) -> tuple[Tensor, Tensor]:
        """Return the solver's W and multipliers on the rows."""
        part = restrict(self.problem, self.index)
        return self.solver.best(part, *self.solver.improved(part, self.W, self.a[:, self.index]))

    def change(self, index: Tensor, gap: float) -> None:
        """Take these rows in the next round."""
        self.index = index
