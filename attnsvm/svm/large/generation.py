"""Constraint generation: the SVM on a working set of rows, until no other row is violated.

Few constraints are active. Multipliers of the working set, zeros elsewhere, prove a lower bound of
the whole problem, and W divided by its least margin over all rows proves an upper one. All N rows
enter through the margins d_k^T (W z_i) only, which cost O(N d).

Every norm starts on the support of the Frobenius solution. In rough rounds idle rows leave the
working set and nearly active ones enter. Then rows only enter: those that W violates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.norm import Norm, norm_of
from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.entrywise import LinearProgram, Power
from attnsvm.svm.equalities import independent_equalities, restore_equalities
from attnsvm.svm.from_frobenius import FromFrobenius
from attnsvm.svm.large.linear import Linear
from attnsvm.svm.large.nuclear import Nuclear
from attnsvm.svm.large.pivoting import least_distance
from attnsvm.svm.large.power import PowerOnRows
from attnsvm.svm.large.spectral import SpectralOnRows
from attnsvm.svm.large.working_set import Afresh, OnRows, restrict
from attnsvm.svm.nuclear import InteriorPoint
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.schatten import Spectral
from attnsvm.svm.solution import Candidate
from attnsvm.svm.solver import Solver
from attnsvm.svm.tolerances import CONVERGED_GAP_LARGE

LARGE = 1000  # least number of rows for which constraint generation is faster
ROUNDS = 12
MISSED = -1e-10  # slack relative to h_k below which a row outside of the working set enters


class ConstraintGeneration(Solver):
    """Any norm on a working set of rows, one instance after the other.

    Parameters
    ----------
    small : Solver
        The method for small instances in this norm.
    """

    def __init__(self, small: Solver) -> None:
        self.norm, self.small = small.norm, small

    def candidates(self, problem: SvmProblem) -> Candidate:
        """Return W, multipliers and rays of large instances; NaN where none."""
        parts = []
        for b in range(problem.B):
            part = problem.take(slice(b, b + 1))
            found = least_distance(part)
            separates = (part.margins(found.W) > 0)[part.inequality].all()
            method = _on_rows(self.small)
            if method and found.W.isfinite().all() and found.W.any() and separates:
                W, a = _generated(part, found, norm_of(self.norm), method)
                found = Candidate(W, a, found.ray)
            parts.append(found)
        return Candidate(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _on_rows(small: Solver) -> OnRows | None:
    """Return the method for the working sets of an instance; none for the Frobenius norm."""
    match small:
        case InteriorPoint():
            return Nuclear()
        case LinearProgram():
            return Linear(small)
        case Power():
            return PowerOnRows(small)
        case Spectral():
            return SpectralOnRows(small)
        case FromFrobenius():
            return Afresh(small)
    return None


def _generated(
    problem: SvmProblem, start: Candidate, norm: Norm, method: OnRows
) -> tuple[Tensor, Tensor]:
    """Return W and multipliers of one instance, from its Frobenius solution."""
    best_W, best_a = start.W, start.multipliers
    upper, lower = upper_bound(problem, best_W, norm), lower_bound(problem, best_a, norm)[1]
    inequality, equality = problem.inequality[0], _independent(problem)
    working = equality | (inequality & (best_a[0] != 0))
    index = working.nonzero()[:, 0]
    method.begin(problem, index, best_W, best_a[:, index])
    for gap in (*method.ROUGH, *[CONVERGED_GAP_LARGE] * ROUNDS):
        rough = gap > CONVERGED_GAP_LARGE
        W, a_part = method.solve(gap, rough)
        W = restore_equalities(restrict(problem, index), W)
        a = torch.zeros_like(best_a)
        a[:, index] = a_part
        new_upper, new_lower = upper_bound(problem, W, norm), lower_bound(problem, a, norm)[1]
        if new_upper < upper:
            best_W, upper = W, new_upper
        if new_lower > lower:
            best_a, lower = a, new_lower
        relative = ((problem.margins(W) - problem.h) / problem.h)[0]
        if rough:  # W may be too long: the least margin of the working set counts as one
            least = torch.where(working & inequality, relative, torch.inf).amin()
            relative = relative - least.clamp(min=0.0)
            idle = relative > gap**0.5
            working = equality | (working & ~idle) | (inequality & (relative < 0.1 * gap**0.25))
        else:
            missed = inequality & ~working & (relative < MISSED)
            if upper <= (1 + 2 * CONVERGED_GAP_LARGE) * lower or not missed.any():
                break
            working = working | missed
        index = working.nonzero()[:, 0]
        method.change(index, gap)
    return best_W, best_a


def _independent(problem: SvmProblem) -> Tensor:
    """Return which equality rows to keep so that they are independent, (N,) bool."""
    index = problem.equality[0].nonzero()[:, 0]
    kept = torch.zeros_like(problem.equality[0])
    if len(index):
        kept[index] = independent_equalities(restrict(problem, index))[0]
    return kept
