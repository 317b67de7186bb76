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

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from attnsvm.display.pace import each
from attnsvm.linalg.decompositions import largest
from attnsvm.norm import Norm, norm_of
from attnsvm.norm.cone import Best, Cone, follow
from attnsvm.norm.rows import DenseRows, FactoredRows, Rows
from attnsvm.svm import reference
from attnsvm.svm.certificate import bounds, check_ray
from attnsvm.svm.equalities import independent_equalities, restoring
from attnsvm.svm.frobenius import least_norm
from attnsvm.svm.frobenius.pivoting import (
    ENTERING,
    by_blocks,
    by_instance,
    grown,
    most_violated,
)
from attnsvm.svm.interior_point import face
from attnsvm.svm.problem import EQUALITY, INEQUALITY, PADDING, SvmProblem, power_of_two
from attnsvm.svm.solution import Candidate, Method
from attnsvm.svm.tolerances import CONVERGED_GAP, CONVERGED_GAP_LARGE, RAY_RATIO


def solve(problem: SvmProblem, norm: Norm) -> Candidate:
    """Return W and multipliers, NaN where no W is feasible, and the rays of those."""
    start = least_norm(problem)
    W, a = torch.full_like(start.W, torch.nan), torch.full_like(start.multipliers, torch.nan)
    index = _usable(problem, start).nonzero()[:, 0]
    if index.numel():
        part = problem.take(index)
        part, rows = part.first_rows(int(part.most_rows().max()))
        y = start.multipliers[index].gather(1, rows)
        near = followed(part, start.W[index], y, norm)
        W[index], of_part = improved(part, *near, norm)
        a[index] = torch.zeros_like(a[index]).scatter(1, rows, of_part)
    return Candidate(W, a, start.ray)


def _usable(problem: SvmProblem, start: Candidate) -> Tensor:
    """Return where the method can start: where W is not zero and separates, without a ray, (B,).

    Margins that are rounding error do not count.
    """
    clear = problem.separating & ~problem.faint(start.W)
    margins = torch.where(clear, problem.margins(start.W), torch.inf).amin(dim=1)
    known = start.W.isfinite().all(dim=(1, 2)) & start.W.any(-1).any(-1) & (margins > 0)
    return known & (check_ray(problem, start.ray)[1] < RAY_RATIO)


PART = 2**21
"""Entries of the normal equations of a part of the batch: they fit the cache."""


def followed(problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """Return W and multipliers of the method from Frobenius solutions, a part at a time."""
    count = max(1, PART // problem.N**2)
    parts = [slice(k, k + count) for k in range(0, problem.B, count)]
    pairs = [_followed(problem.take(part), W[part], a[part], norm) for part in parts]
    return torch.cat([W for W, _ in pairs]), torch.cat([a for _, a in pairs])


def _followed(problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    part, size = _near_unit(problem, W)
    keep = part.inequality | independent_equalities(part)
    D, h = torch.where(keep[..., None], part.D, 0.0), torch.where(keep, part.h, 0.0)
    part = replace(part, D=D, h=h, kind=torch.where(keep, part.kind, PADDING))
    rows = rows_of(part, torch.arange(part.N, device=D.device))
    best = in_turn(norm.path(), rows, W / size, a[..., None], CONVERGED_GAP)
    W, a = best.W * size, best.a[..., 0]
    return restoring(_held(problem, W, a))(W), a


def _near_unit(problem: SvmProblem, W: Tensor) -> tuple[SvmProblem, Tensor]:
    """Return the problem for W of norm about one, and a power of two near ||W||_F, (B, 1, 1)."""
    size = power_of_two(W.flatten(1).norm(dim=1))[:, None, None]
    return replace(problem, h=problem.h / size[:, 0]), size


def rows_of(problem: SvmProblem, index: Tensor) -> Rows:
    """Return the rows at `index` of all instances."""
    kind = problem.kind[:, index, None]
    columns = {
        "h": problem.h[:, index, None],
        "rhs_scale": problem.rhs_scale[..., None],
        "inequality": kind == INEQUALITY,
        "real": kind != PADDING,
    }
    D, sample = problem.D[:, index], index // (problem.N // problem.n)
    if problem.shape is not None:
        return DenseRows(A=(D * problem.Z).reshape(*D.shape[:2], *problem.shape), **columns)
    samples, sample = torch.unique_consecutive(sample, return_inverse=True)
    return FactoredRows(D=D, Z=problem.Z[:, samples], sample=sample, **columns)


def in_turn(stages: Sequence[Norm], rows: Rows, W: Tensor, a: Tensor, gap: float) -> Best:
    """Return the best W and multipliers (B, N, 1) of the last norm; each starts the next."""
    best = Best(W, a, W, a)
    for norm in stages:
        cone = norm.cone(rows)
        best, _ = follow(cone, cone.start(best.W, best.a), gap)
    return best


def _held(problem: SvmProblem, W: Tensor, a: Tensor) -> SvmProblem:
    """Return the problem with equalities for active rows that do not scale W.

    These are rows of small right-hand sides, and all where problems are not homogeneous. The slack
    of an active row is less than the square of its multiplier, both relative: of two sides of a
    narrow slab both would have a larger multiplier than slack.
    """
    rows = problem.inequality & (problem.small_rhs | ~problem.homogeneous[:, None])
    if not rows.any():
        return problem
    weight = a * problem.scale
    weight = weight / weight.abs().amax(dim=1, keepdim=True)
    slack = (problem.margins(W) - problem.h) / problem.scale
    size = W.flatten(1).norm(dim=1, keepdim=True)
    active = rows & (weight > 0) & (weight.square() * size > slack)
    return replace(problem, kind=torch.where(active, EQUALITY, problem.kind).to(problem.kind))


def decided(method: Method, problem: SvmProblem) -> Candidate:
    """Return the candidate of a method for the Frobenius norm, CVXPY's where it has nothing.

    Active-set methods may go round where many constraints are degenerate. An interior point is not
    a vertex, and tells which of them are active.
    """
    candidate, norm = method(problem), norm_of("frobenius")
    W, a = candidate.W, candidate.multipliers
    index = (~problem.separated_by(W) & ~problem.trivial).nonzero()[:, 0]
    if not index.numel():
        return candidate
    part = problem.take(index)
    failed = bounds(part, W[index], a[index], norm)[0].isinf()
    failed &= check_ray(part, candidate.ray[index])[1] < RAY_RATIO
    index = index[failed]
    if index.numel() and problem.N * problem.size[0] * problem.size[1] <= POLISHED:
        part = problem.take(index)
        W[index], a[index] = improved(part, W[index], a[index], norm)
    return candidate


def improved(problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """Return the best W and multipliers; others are tried where the bracket is open."""
    upper, lower = bounds(problem, W, a, norm)
    left = (~(upper <= (1 + CONVERGED_GAP) * lower)).nonzero()[:, 0].tolist()
    for b in each("instance", left):
        at = slice(b, b + 1)
        part = problem.take(at).to("cpu")
        best = Best(*(x[at].cpu() for x in (W, a, upper, lower)))
        for V, y in others(part, best.W, best.a, norm):
            best = best.narrowed(V, y, *bounds(part, V, y, norm))
            if best.met(CONVERGED_GAP):
                break
        W[at], a[at] = best.W, best.a
    return W, a


def others(
    problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield further W (1, d, d) and multipliers (1, N) of a single instance, given such."""
    if norm.path():
        yield from _near_face(problem, W, a, norm)
        if find_spec("cvxpy") is None:
            return
    for options in norm.programs:
        program = reference.candidates(problem, norm, **options)
        W, a = program.W, program.multipliers
        if W.isfinite().all():
            yield restoring(_held(problem, W, a))(W), a
            if norm.path():
                yield from _near_face(problem, W, a, norm)


def _near_face(
    problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what `face` finds near W (1, d, d) and multipliers (1, N) of a single instance."""
    index = (problem.inequality | independent_equalities(problem))[0].nonzero()[:, 0]
    if W.numel() + len(index) > face.MOST_ENTRIES:
        return
    part = problem.restrict(index)
    A = (part.D[0, :, :, None] * part.queries[0, :, None]).reshape(-1, *problem.size)
    rows = face.Rows(*(x.numpy() for x in (A, part.h[0], part.equality[0])))
    for point in face.polish(rows, W[0].numpy(), a[0, index].numpy(), norm):
        V, y = (torch.from_numpy(x)[None] for x in point)
        yield V, torch.zeros_like(problem.h).index_copy(1, index, y)


LARGE = 401
"""Least number of rows for which constraint generation is faster."""

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
    return by_instance(partial(_alone, norm=norm), problem)


def _alone(problem: SvmProblem, norm: Norm) -> Candidate:
    """Return the candidate of a single instance."""
    start = by_blocks(problem)
    if norm.is_hilbert or not _usable(problem, start):
        return start
    index = problem.equality[0].nonzero()[:, 0]
    equality = torch.zeros_like(problem.equality[0])  # independent ones
    if len(index):
        equality[index] = independent_equalities(problem.restrict(index))[0]
    working = equality | (problem.inequality[0] & (start.multipliers[0] != 0))
    if not norm.path() or problem.small_rhs.any():
        return grown(partial(solve, norm=norm), problem, working)
    part, size = _near_unit(problem, start.W)
    near = start._replace(W=start.W / size)
    best = _generated(part, near, norm, equality, working)
    return start._replace(W=best.W * size, multipliers=best.a)


def _generated(
    problem: SvmProblem, start: Candidate, norm: Norm, equality: Tensor, working: Tensor
) -> Best:
    """Return the best W and multipliers of one instance, from its Frobenius solution.

    `equality` and `working`, (N,): independent equalities, and the first working set. A rough round
    starts where the one before ended, the others where the last rough one did; in these the working
    set only grows, until no other row is violated.
    """
    W, a = start.W, start.multipliers
    best = Best(W, a, *bounds(problem, W, a, norm))
    inequality, index = problem.inequality[0], working.nonzero()[:, 0]
    rows, a = rows_of(problem, index), a[:, index, None]
    *earlier, last = norm.path()
    W, a = in_turn(earlier, rows, W, a, last.cone(rows).ROUGH[0])[:2]
    cone = last.cone(rows)
    x = cone.start(W, a)
    for gap in itertools.chain(cone.ROUGH, itertools.repeat(CONVERGED_GAP_LARGE)):
        rough, part = gap > CONVERGED_GAP_LARGE, problem.restrict(index)
        near, end = follow(cone, x, gap)
        if rough:
            x = end
        elif not near.met(gap):  # rows that enter may leave a point near the boundary
            a = start.multipliers[:, index, None]
            near = in_turn(norm.path(), rows, start.W, a, gap)
        W, of_part = near.W, near.a[..., 0]
        if not rough and not near.met(gap) and len(index) * W.numel() <= POLISHED:
            small = solve(part, norm)
            if small.W.isfinite().all():
                W, of_part = small.W, small.multipliers
        W = restoring(_held(part, W, of_part))(W)
        a = torch.zeros_like(problem.h).index_copy(1, index, of_part)
        best = best.narrowed(W, a, *bounds(problem, W, a, norm))
        relative = ((problem.margins(W) - problem.h) / problem.rhs_scale)[0]
        if rough:  # W may be too long: the least margin of the working set counts as one
            least = torch.where(working & inequality, relative, torch.inf).amin()
            relative = relative - least.clamp(min=0.0)
            idle = relative > gap**0.5
            working = equality | (working & ~idle) | (inequality & (relative < 0.1 * gap**0.25))
        else:
            missed = inequality & ~working & (relative < MISSED)
            if best.met(2 * CONVERGED_GAP_LARGE) or not missed.any():
                break
            working = working | most_violated(relative, missed, max(ENTERING, len(index) // 2))
        index, before = working.nonzero()[:, 0], index
        rows = rows_of(problem, index)
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
