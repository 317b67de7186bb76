"""Constraint generation: the SVM on a working set of rows, until no other row is violated.

Few constraints are active. Multipliers of the working set, zeros elsewhere, prove a lower bound of
the whole problem, and W divided by its least margin over all rows proves an upper one. All N rows
enter through the margins d_k^T (W z_i) only, which cost O(N d).

Every norm starts on the support of the Frobenius solution. In rough rounds idle rows leave the
working set and nearly active ones enter. Then rows only enter: those that W violates.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnsvm.display.pace import each
from attnsvm.norm import Norm, Schatten
from attnsvm.svm.certificate import bounds
from attnsvm.svm.equalities import independent_equalities, restoring
from attnsvm.svm.frobenius.pivoting import by_blocks, grown
from attnsvm.svm.interior_point import solver
from attnsvm.svm.interior_point.loop import Best, Cone, follow
from attnsvm.svm.interior_point.rows import Rows, largest
from attnsvm.svm.problem import SvmProblem, power_of_two
from attnsvm.svm.reduction import basis
from attnsvm.svm.solution import Candidate
from attnsvm.svm.tolerances import CONVERGED_GAP_LARGE

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


def constraint_generation(problem: SvmProblem, norm: Norm) -> Candidate:
    """Return W, multipliers and rays of large instances, one after the other; NaN where none."""
    instances = each("instance", range(problem.B))
    parts = [_alone(problem.take(slice(b, b + 1)), norm) for b in instances]
    return Candidate(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _alone(problem: SvmProblem, norm: Norm) -> Candidate:
    """Return the candidate of a single instance."""
    start = by_blocks(problem)
    separates = bool((problem.margins(start.W) > 0)[problem.separating].all())
    if norm.name == "frobenius" or not (separates and start.W.isfinite().all() and start.W.any()):
        return start
    index = problem.equality[0].nonzero()[:, 0]
    equality = torch.zeros_like(problem.equality[0])  # independent ones
    if len(index):
        equality[index] = independent_equalities(problem.restrict(index))[0]
    working = equality | (problem.inequality[0] & (start.multipliers[0] != 0))
    if not solver.cones(norm) or problem.slight.any():
        return grown(partial(solver.solve, norm=norm), problem, working)
    best = _generated(problem, start, norm, equality, working)
    return start._replace(W=best.W, multipliers=best.a)


def _generated(
    problem: SvmProblem, start: Candidate, norm: Norm, equality: Tensor, working: Tensor
) -> Best:
    """Return the best W and multipliers of one instance, from its Frobenius solution.

    `equality` and `working`, (N,): independent equalities, and the first working set. A rough round
    starts where the one before ended, the others where the last rough one did.
    """
    W, a = start.W, start.multipliers
    best = Best(W, a, *bounds(problem, W, a, norm))
    inequality, index = problem.inequality[0], working.nonzero()[:, 0]
    narrow = isinstance(norm, Schatten) and problem.n < problem.d
    P_z = basis(problem.Z) if narrow else None
    rows = Rows(problem, index, power_of_two(W.norm()), None, P_z)
    W, a = rows.scaled(W, a[:, index])
    for stage in solver.cones(norm):
        cone = stage.on(rows)
        x = cone.start(W, a)
        if stage.norm.name != norm.name:
            found, x = follow(cone, x, cone.ROUGH[0])
            W, a = found.W, found.a
    for gap in (*cone.ROUGH, *[CONVERGED_GAP_LARGE] * ROUNDS):
        rough, part = gap > CONVERGED_GAP_LARGE, problem.restrict(index)
        found, last = follow(cone, x, gap)
        W, of_part = cone.rows.given(found.W, found.a)
        if rough:
            x = last
        elif not found.met(gap) and len(index) * found.W.numel() <= POLISHED:
            small = solver.solve(part, norm)
            if small.W.isfinite().all():
                W, of_part = small.W, small.multipliers
        W, a = restoring(part)(W), torch.zeros_like(problem.h).index_copy(1, index, of_part)
        best = best.narrowed(W, a, *bounds(problem, W, a, norm))
        relative = ((problem.margins(W) - problem.h) / problem.most)[0]
        if rough:  # W may be too long: the least margin of the working set counts as one
            least = torch.where(working & inequality, relative, torch.inf).amin()
            relative = relative - least.clamp(min=0.0)
            idle = relative > gap**0.5
            working = equality | (working & ~idle) | (inequality & (relative < 0.1 * gap**0.25))
        else:
            missed = inequality & ~working & (relative < MISSED)
            if best.met(2 * CONVERGED_GAP_LARGE) or not missed.any():
                break
            working = working | missed
        index, before = working.nonzero()[:, 0], index
        rows = Rows(problem, index, cone.rows.size, None, P_z)
        cone, x = _with_rows(cone, x, rows, index, before, gap)
    return best


def _with_rows(
    cone: Cone[Any], x: Any, rows: Rows, index: Tensor, before: Tensor, gap: float
) -> tuple[Cone[Any], Any]:
    """Return the cone and its point on other rows, those at `index` instead of `before`.

    Rows that stay keep slack and multiplier. A row that enters gets the size of its slack and the
    multiplier mu / s_k. Where W violates a row by much, W must move by much, so that no slack may
    be too small: else steps are short. What the last rough round left has the gap `gap`.
    """
    mu, slack = cone.mean(x), rows.margins(x.W) - rows.h
    s = torch.maximum(slack.abs(), max(gap, LEAST) * rows.most)
    a = mu / s
    stays = torch.isin(index, before)
    place = torch.searchsorted(before, index[stays])
    s[:, stays], a[:, stays] = x.s[:, place], x.a[:, place]
    violation = largest(rows.on_inequalities(-slack / rows.most)).clamp(min=0.0)
    s = torch.where(rows.inequality, torch.maximum(s, SHARE * violation * rows.most), 1.0)
    cone = cone.on(rows)
    return cone, cone.inside(replace(x, s=s, a=a))
