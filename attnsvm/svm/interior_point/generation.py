"""Constraint generation: the SVM on a working set of rows, until no other row is violated.

Few constraints are active. Multipliers of the working set, zeros elsewhere, prove a lower bound of
the whole problem, and W divided by its least margin over all rows proves an upper one. All N rows
enter through the margins d_k^T (W z_i) only, which cost O(N d).

Every norm starts on the support of the Frobenius solution. In rough rounds idle rows leave the
working set and nearly active ones enter. Then rows only enter: those that W violates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnsvm.norm import Norm, Schatten, norm_of
from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.equalities import independent_equalities, restore_equalities
from attnsvm.svm.frobenius.pivoting import least_distance, restrict
from attnsvm.svm.interior_point.loop import Cone, follow
from attnsvm.svm.interior_point.rows import Rows, largest
from attnsvm.svm.interior_point.solver import InteriorPoint, cones
from attnsvm.svm.problem import SvmProblem, power_of_two
from attnsvm.svm.solution import Candidate, Solver
from attnsvm.svm.tolerances import CONVERGED_GAP_LARGE
from attnsvm.svm.wide import basis

LARGE = 1000
"""Least number of rows for which constraint generation is faster."""

ROUNDS = 12
MISSED = -1e-10
"""Slack relative to h_k below which a row outside of the working set enters."""

LEAST = 1e-4
"""Least slack, relative to h_k, of a row that enters."""

SHARE = 0.1
"""Least slack of any row, relative to h_k, as a share of the largest violation."""

POLISHED = 2**20
"""Most entries of all vec(d_k z_k^T) with which the method for small instances is tried."""


class ConstraintGeneration(Solver):
    """Any norm on a working set of rows, one instance after the other."""

    norm: Norm

    def __init__(self, norm: str | Norm) -> None:
        self.norm = norm_of(norm)

    def candidates(self, problem: SvmProblem) -> Candidate:
        """Return W, multipliers and rays of large instances; NaN where none."""
        parts = [self._alone(problem.take(slice(b, b + 1))) for b in range(problem.B)]
        return Candidate(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def _alone(self, problem: SvmProblem) -> Candidate:
        """Return the candidate of a single instance."""
        found = least_distance(problem)
        separates = (problem.margins(found.W) > 0)[problem.inequality].all()
        rough = self.norm.name == "frobenius" or not found.W.isfinite().all() or not found.W.any()
        if rough or not separates:
            return found
        if not isinstance(self.norm, Schatten) or problem.n >= problem.Z.shape[2]:
            W, a = _generated(problem, found, self.norm)
            return found._replace(W=W, multipliers=a)
        P_z = basis(problem.Z)
        narrow = replace(problem, Z=problem.Z @ P_z)
        W, a = _generated(narrow, found._replace(W=found.W @ P_z), self.norm)
        return found._replace(W=W @ P_z.mT, multipliers=a)


def _generated(problem: SvmProblem, start: Candidate, norm: Norm) -> tuple[Tensor, Tensor]:
    """Return W and multipliers of one instance, from its Frobenius solution."""
    best_W, best_a = start.W, start.multipliers
    upper, lower = upper_bound(problem, best_W, norm), lower_bound(problem, best_a, norm)[1]
    inequality, equality = problem.inequality[0], _independent(problem)
    working = equality | (inequality & (best_a[0] != 0))
    index = working.nonzero()[:, 0]
    small = InteriorPoint(norm)
    method = Followed if cones(norm) else Afresh
    run = method(small, problem, index, best_W, best_a)
    for gap in (*run.rough, *[CONVERGED_GAP_LARGE] * ROUNDS):
        rough = gap > CONVERGED_GAP_LARGE
        W, a_part = run.solve(gap, rough)
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
        run.change(index, gap)
    return best_W, best_a


class Afresh:
    """A method that starts from the Frobenius solution in each round."""

    rough: tuple[float, ...] = ()

    def __init__(
        self, small: InteriorPoint, problem: SvmProblem, index: Tensor, W: Tensor, a: Tensor
    ) -> None:
        self.small, self.problem, self.index, self.W, self.a = small, problem, index, W, a

    def solve(self, gap: float, keep: bool) -> tuple[Tensor, Tensor]:
        """Return W (1, d, d) and multipliers (1, r) on the rows."""
        part = restrict(self.problem, self.index)
        return self.small.improved(part, self.W, self.a[:, self.index])

    def change(self, index: Tensor, gap: float) -> None:
        """Continue on the rows at `index`; what the last rough round left has this gap."""
        self.index = index


class Followed(Afresh):
    """The predictor-corrector method, whose rows change on the way."""

    cone: Cone[Any]

    def __init__(
        self, small: InteriorPoint, problem: SvmProblem, index: Tensor, W: Tensor, a: Tensor
    ) -> None:
        super().__init__(small, problem, index, W, a)
        self.size = power_of_two(W.norm())
        rows = self.rows = Rows(problem, index, self.size)
        a = a[:, index]
        for cone in cones(small.norm):
            self.cone = cone.on(rows)
            self.point = self.cone.start(*rows.scaled(W, a))
            self.rough = self.cone.ROUGH
            if cone.norm.name != small.norm.name:
                best, self.point = follow(self.cone, self.point, self.rough[0])
                W, a = rows.given(best.W, best.a)

    def solve(self, gap: float, keep: bool) -> tuple[Tensor, Tensor]:
        """Return W and multipliers of the best bounds.

        With `keep` the next round starts where this one ends, else where it started.
        """
        best, last = follow(self.cone, self.point, gap)
        W, a = self.rows.given(best.W, best.a)
        if keep:
            self.point = last
        if keep or best.met(gap) or len(self.index) * W.numel() > POLISHED:
            return W, a
        found = self.small.candidates(restrict(self.problem, self.index))
        return (found.W, found.multipliers) if found.W.isfinite().all() else (W, a)

    def change(self, index: Tensor, gap: float) -> None:
        """Continue with the slacks and multipliers of the rows that stay.

        A row that enters gets the size of its slack and the multiplier mu / s_k. Where W violates a
        row by much, W must move by much, so that no slack may be too small: else steps are short.
        """
        x, mu = self.point, self.cone.mean(self.point)
        rows = self.rows = Rows(self.problem, index, self.size)
        slack = rows.margins(x.W) - rows.h
        s = torch.maximum(slack.abs(), max(gap, LEAST) * rows.h)
        a = mu / s
        stays = torch.isin(index, self.index)
        place = torch.searchsorted(self.index, index[stays])
        s[:, stays], a[:, stays] = x.s[:, place], x.a[:, place]
        violation = largest(rows.on_inequalities(-slack / rows.h)).clamp(min=0.0)
        s = torch.where(rows.inequality, torch.maximum(s, SHARE * violation * rows.h), 1.0)
        self.cone, self.index = self.cone.on(rows), index
        self.point = self.cone.inside(replace(x, s=s, a=a))


def _independent(problem: SvmProblem) -> Tensor:
    """Return which equality rows to keep so that they are independent, (N,) bool."""
    index = problem.equality[0].nonzero()[:, 0]
    kept = torch.zeros_like(problem.equality[0])
    if len(index):
        kept[index] = independent_equalities(restrict(problem, index))[0]
    return kept
