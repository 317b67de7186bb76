"""Any norm from the Frobenius solution: the predictor-corrector method, then what it leaves open.

The Frobenius solution exists exactly where any solution does, and its ray proves infeasibility
whatever the norm.

Many rows: constraint generation, the SVM on a working set of rows, until no other row is violated.
Few constraints are active. Multipliers of the working set, zeros elsewhere, prove a lower bound of
the whole problem, and W divided by its least margin over all rows proves an upper one. All N rows
enter through the margins d_k^T (W z_i) only, which cost O(N d).

Every norm starts on the support of the Frobenius solution. In rough rounds idle rows leave the
working set and nearly active ones enter. Then rows only enter: those that W violates.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnsvm.display.pace import each
from attnsvm.linalg.decompositions import largest
from attnsvm.norm import Norm
from attnsvm.norm.cone import Best, Cone, follow
from attnsvm.norm.rows import Rows
from attnsvm.svm import reference
from attnsvm.svm.certificate import bounds
from attnsvm.svm.equalities import independent_equalities, restoring
from attnsvm.svm.frobenius import least_norm
from attnsvm.svm.frobenius.pivoting import by_blocks, grown
from attnsvm.svm.interior_point import face
from attnsvm.svm.interior_point.scaling import Scaling, scaled_rows
from attnsvm.svm.problem import EQUALITY, PADDING, SvmProblem, power_of_two
from attnsvm.svm.reduction import basis
from attnsvm.svm.solution import Candidate
from attnsvm.svm.tolerances import CONVERGED_GAP, CONVERGED_GAP_LARGE


def solve(problem: SvmProblem, norm: Norm) -> Candidate:
    """Return W and multipliers, NaN where no W is feasible, and the rays of those."""
    start = least_norm(problem)
    W, a = torch.full_like(start.W, torch.nan), torch.full_like(start.multipliers, torch.nan)
    margins = torch.where(problem.separating, problem.margins(start.W), torch.inf)
    known = start.W.isfinite().all(dim=(1, 2)) & start.W.any(-1).any(-1)
    index = (known & (margins.amin(dim=1) > 0)).nonzero()[:, 0]
    if index.numel():
        part = problem.take(index)
        plain = least_norm(part.plain).W.cpu() if part.slight.any() else start.W[index].cpu()
        part, rows = part.first_rows(int(part.most_rows().max()))
        part, y = part.to("cpu"), start.multipliers[index].gather(1, rows)
        found = followed(part, start.W[index].cpu(), y.cpu(), norm)
        W_part, a_part = improved(part, *found, norm, plain)
        W[index] = W_part.to(W)
        a[index] = torch.zeros_like(a[index]).scatter(1, rows, a_part.to(a))
    return Candidate(W, a, start.ray)


PART = 2**21
"""Entries of the normal equations of a part of the batch: they fit the cache."""


def followed(problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """Return W and multipliers of the method from Frobenius solutions, a part at a time."""
    count = max(1, PART // problem.N**2)
    parts = [slice(k, k + count) for k in range(0, problem.B, count)]
    pairs = [_followed(problem.take(part), W[part], a[part], norm) for part in parts]
    return torch.cat([W for W, _ in pairs]), torch.cat([a for _, a in pairs])


def _followed(problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    rows, scaling = _rows(problem, W, norm, torch.arange(problem.N))
    w, y = scaling.inward(W, a)
    for stage in norm.path():
        cone = stage.cone(rows)
        best, _ = follow(cone, cone.start(w, y), CONVERGED_GAP)
        w, y = best.W, best.a
    W, a = scaling.outward(w, y)
    return restoring(_held(problem, W, a))(W), a


def _held(problem: SvmProblem, W: Tensor, a: Tensor) -> SvmProblem:
    """Return the problem with equalities for active rows, where W keeps its scale.

    That is where problems are not homogeneous. Active rows are those whose multipliers are larger
    than their slacks, both relative.
    """
    rows = problem.inequality & ~problem.homogeneous[:, None]
    if not rows.any():
        return problem
    weight = a * problem.scale
    weight = weight / weight.abs().amax(dim=1, keepdim=True)
    slack = (problem.margins(W) - problem.h) / problem.scale
    active = rows & (weight * W.flatten(1).norm(dim=1)[:, None] > slack)
    return replace(problem, kind=torch.where(active, EQUALITY, problem.kind).to(problem.kind))


def improved(
    problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm, plain: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the best W and multipliers; others are tried where the bracket is open.

    `plain` (B, d, d) has positive margins.
    """
    W = problem.lifted(W, plain)
    upper, lower = bounds(problem, W, a, norm)
    left = (~(upper <= (1 + CONVERGED_GAP) * lower)).nonzero()[:, 0].tolist()
    for b in each("instance", left):
        one = slice(b, b + 1)
        part, best = problem.take(one), Best(W[one], a[one], upper[one], lower[one])
        for V, y in others(part, best.W, best.a, norm):
            V = part.lifted(V, plain[one])
            best = best.narrowed(V, y, *bounds(part, V, y, norm))
            if best.met(CONVERGED_GAP):
                break
        W[one], a[one] = best.W, best.a
    return W, a


def others(
    problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield further W (1, d, d) and multipliers (1, N) of a single instance, given such."""
    if norm.path():
        yield from _near_face(problem, W, a, norm)
    for options in norm.programs:
        program = reference.candidates(problem, norm, **options)
        yield program.W, program.multipliers
        if norm.path() and program.W.isfinite().all():
            yield from _near_face(problem, program.W, program.multipliers, norm)


def _near_face(
    problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what `face` finds near W (1, d, d) and multipliers (1, N) of a single instance."""
    index = (problem.inequality | independent_equalities(problem))[0].nonzero()[:, 0]
    rows, scaling = _rows(problem, W, norm, index)
    w, y = scaling.inward(W, a[:, index])
    if w.numel() + len(index) > face.MOST_ENTRIES:
        return
    numbers = rows.matrices(), rows.h[..., 0], ~rows.inequality[..., 0]
    of_face = face.Rows(*(x[0].numpy() for x in numbers))
    for point, multipliers in face.polish(of_face, w[0].numpy(), y[0, :, 0].numpy(), norm):
        w, y = torch.from_numpy(point)[None], torch.from_numpy(multipliers)[None, :, None]
        W, multipliers_there = scaling.outward(w, y)
        yield W, torch.zeros_like(problem.h).index_copy(1, index, multipliers_there)


def _rows(problem: SvmProblem, W: Tensor, norm: Norm, index: Tensor) -> tuple[Rows, Scaling]:
    """Return the rows at `index` of all instances near W, dependent equalities as padding.

    In few dimensions if the norm allows it.
    """
    P_d, P_z = (
        basis(x) if _narrow(norm, problem) and x.shape[1] < x.shape[2] else None
        for x in (problem.D, problem.Z)
    )
    keep = problem.inequality | independent_equalities(problem)
    D, h = torch.where(keep[..., None], problem.D, 0.0), torch.where(keep, problem.h, 0.0)
    part = replace(problem, D=D, h=h, kind=torch.where(keep, problem.kind, PADDING))
    size = power_of_two(W.flatten(1).norm(dim=1))[:, None, None]
    return scaled_rows(norm, part, index, size, P_d, P_z)


def _narrow(norm: Norm, problem: SvmProblem) -> bool:
    """Whether the span of the rows has bases P_d, P_z that the norm does not see."""
    return norm.rotation_invariant and problem.shape is None


LARGE = 401
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
    if norm.is_hilbert or not (separates and start.W.isfinite().all() and start.W.any()):
        return start
    index = problem.equality[0].nonzero()[:, 0]
    equality = torch.zeros_like(problem.equality[0])  # independent ones
    if len(index):
        equality[index] = independent_equalities(problem.restrict(index))[0]
    working = equality | (problem.inequality[0] & (start.multipliers[0] != 0))
    if not norm.path() or problem.slight.any():
        return grown(partial(solve, norm=norm), problem, working)
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
    narrow = _narrow(norm, problem) and problem.n < problem.Z.shape[2]
    P_z = basis(problem.Z) if narrow else None
    size = power_of_two(W.norm())
    rows, scaling = scaled_rows(norm, problem, index, size, None, P_z)
    W, a = scaling.inward(W, a[:, index])
    *earlier, last = norm.path()
    for stage in earlier:
        cone = stage.cone(rows)
        rough_best, _ = follow(cone, cone.start(W, a), cone.ROUGH[0])
        W, a = rough_best.W, rough_best.a
    cone = last.cone(rows)
    x = cone.start(W, a)
    for gap in (*cone.ROUGH, *[CONVERGED_GAP_LARGE] * ROUNDS):
        rough, part = gap > CONVERGED_GAP_LARGE, problem.restrict(index)
        found, end = follow(cone, x, gap)
        W, of_part = scaling.outward(found.W, found.a)
        if rough:
            x = end
        elif not found.met(gap) and len(index) * found.W.numel() <= POLISHED:
            small = solve(part, norm)
            if small.W.isfinite().all():
                W, of_part = small.W, small.multipliers
        W = restoring(_held(part, W, of_part))(W)
        a = torch.zeros_like(problem.h).index_copy(1, index, of_part)
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
        rows, scaling = scaled_rows(norm, problem, index, size, None, P_z)
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
    s = torch.maximum(slack.abs(), max(gap, LEAST) * rows.rhs_scale)
    a = mu / s
    stays = torch.isin(index, before)
    place = torch.searchsorted(before, index[stays])
    s[:, stays], a[:, stays] = x.s[:, place], x.a[:, place]
    violation = largest(rows.on_inequalities(-slack / rows.rhs_scale)).clamp(min=0.0)
    s = torch.where(rows.inequality, torch.maximum(s, SHARE * violation * rows.rhs_scale), 1.0)
    cone = cone.on(rows)
    return cone, cone.inside(replace(x, s=s, a=a))
