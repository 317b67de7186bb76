"""What solvers of other norms have in common: they start from the Frobenius solution.

It exists exactly where any solution does, and its ray proves infeasibility whatever the norm.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.frobenius import LeastDistance
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.solution import Candidate
from attnsvm.svm.solver import Solver
from attnsvm.svm.tolerances import CONVERGED_GAP


class FromFrobenius(Solver):
    """A fast method for all instances, and others for those whose bracket it leaves open."""

    @abstractmethod
    def improved(self, problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W and multipliers of feasible instances, from their Frobenius solutions."""

    @abstractmethod
    def others(self, problem: SvmProblem, W: Tensor, a: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield further W (1, d, d) and multipliers (1, N) of a single instance, given such."""

    def candidates(self, problem: SvmProblem) -> Candidate:
        """Return W and multipliers, NaN where no W is feasible, and the rays of those."""
        start = LeastDistance().candidates(problem)
        W, a = torch.full_like(start.W, torch.nan), torch.full_like(start.multipliers, torch.nan)
        margins = torch.where(problem.inequality, problem.margins(start.W), torch.inf)
        asked = start.W.isfinite().all(dim=(1, 2)) & start.W.any(-1).any(-1)
        index = (asked & (margins.amin(dim=1) > 0)).nonzero()[:, 0]
        if index.numel():
            part = problem.take(index)
            found = self.improved(part, start.W[index], start.multipliers[index])
            W[index], a[index] = self.best(part, *found)
        return Candidate(W, a, start.ray)

    def best(self, problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best W and multipliers; others are tried where the bracket is open."""
        upper = upper_bound(problem, W, self.norm)
        lower = lower_bound(problem, a, self.norm)[1]
        for b in (~(upper <= (1 + CONVERGED_GAP) * lower)).nonzero()[:, 0].tolist():
            one = slice(b, b + 1)
            part = problem.take(one)
            for new_W, new_a in self.others(part, W[one], a[one]):
                new_upper = upper_bound(part, new_W, self.norm)
                new_lower = lower_bound(part, new_a, self.norm)[1]
                if new_upper < upper[b]:
                    W[one], upper[one] = new_W, new_upper
                if new_lower > lower[b]:
                    a[one], lower[one] = new_a, new_lower
                if upper[b] <= (1 + CONVERGED_GAP) * lower[b]:
                    break
        return W, a
