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
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnsvm.display.pace import each
from attnsvm.norm import Entrywise, Norm, Schatten, norm_of
from attnsvm.svm import reference
from attnsvm.svm.certificate import bounds, check_ray
from attnsvm.svm.equalities import independent_equalities, restoring
from attnsvm.svm.frobenius import least_norm
from attnsvm.svm.frobenius.pivoting import ENTERING, by_blocks, grown, most_violated
from attnsvm.svm.interior_point import face
from attnsvm.svm.interior_point.kernels import best_of_blocks
from attnsvm.svm.interior_point.linear import Linear
from attnsvm.svm.interior_point.loop import Best, Cone, follow
from attnsvm.svm.interior_point.nuclear import Nuclear
from attnsvm.svm.interior_point.power import Power, stages
from attnsvm.svm.interior_point.rows import DenseRows, Rows, largest, rows_for
from attnsvm.svm.interior_point.spectral import Spectral
from attnsvm.svm.problem import EQUALITY, PADDING, SvmProblem, power_of_two
from attnsvm.svm.reduction import basis
from attnsvm.svm.solution import Candidate, Method
from attnsvm.svm.tolerances import CONVERGED_GAP, CONVERGED_GAP_LARGE, RAY_RATIO

CLARABEL = {"solver": "CLARABEL", "tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
FIRST_ORDER = {"solver": "SCS", "eps": 1e-12, "max_iters": 20000}
"""For a norm without cones: slow, but it keeps digits where Clarabel loses them."""

TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
SIMPLEX = {"solver": "SCIPY", "scipy_options": {"method": "highs-ds", **TOLERANCES}}


def cones(norm: Norm) -> list[Cone[Any]]:
    """Return the cones whose solutions lead to that of the norm; none for a norm of one's own."""
    if type(norm) is Schatten and norm.p in (1, math.inf):
        return [Nuclear(norm) if norm.p == 1 else Spectral(norm)]
    if type(norm) is Entrywise and norm.p in (1, math.inf):
        return [Linear(norm)]
    if type(norm) is Entrywise or type(norm) is Schatten:
        return [Power(type(norm)(p)) for p in stages(norm.p)]
    return []


def solve(problem: SvmProblem, norm: Norm) -> Candidate:
    """Return W and multipliers, NaN where no W is feasible, and the rays of those."""
    start = least_norm(problem)
    W, a = torch.full_like(start.W, torch.nan), torch.full_like(start.multipliers, torch.nan)
    margins = torch.where(_clear(problem, start.W), problem.margins(start.W), torch.inf)
    known = start.W.isfinite().all(dim=(1, 2)) & start.W.any(-1).any(-1)
    known &= check_ray(problem, start.ray)[1] < RAY_RATIO
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


def _clear(problem: SvmProblem, W: Tensor) -> Tensor:
    """Return the separating rows of which the margins of W are not rounding error, (B, N) bool."""
    return problem.separating & ~problem.faint(W)


def followed(problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """Return W and multipliers of the method from Frobenius solutions; dense rows one by one."""
    rows = _rows(problem, W, norm, torch.arange(problem.N))
    dense = isinstance(rows, DenseRows)
    if dense and problem.B > 1:
        ones = [slice(b, b + 1) for b in range(problem.B)]
        found = [followed(problem.take(one), W[one], a[one], norm) for one in ones]
        return torch.cat([W for W, _ in found]), torch.cat([a for _, a in found])
    w, y = rows.scaled(W, a)
    for cone in cones(norm):
        cone = cone.on(rows)
        x = cone.start(w, y)
        by = follow(cone, x, CONVERGED_GAP)[0] if dense else best_of_blocks(cone, x, CONVERGED_GAP)
        w, y = by.W, by.a
    W, a = rows.given(w, y)
    return restoring(_held(problem, W, a))(W), a


def _held(problem: SvmProblem, W: Tensor, a: Tensor) -> SvmProblem:
    """Return the problem with equalities for active rows that do not scale W.

    These are slight rows, and all where problems are not homogeneous. The slack of an active row is
    less than the square of its multiplier, both relative: of two sides of a narrow slab both would
    have a larger multiplier than slack.
    """
    rows = problem.inequality & (problem.slight | ~problem.homogeneous[:, None])
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
    found, norm = method(problem), norm_of("frobenius")
    failed = bounds(problem, found.W, found.multipliers, norm)[0].isinf() & ~problem.trivial
    if failed.any():
        failed &= check_ray(problem, found.ray)[1] < RAY_RATIO
    if problem.N * problem.size[0] * problem.size[1] > POLISHED:
        return found
    for b in failed.nonzero()[:, 0].tolist():
        part = problem.take(slice(b, b + 1)).to("cpu")
        program = reference.candidates(part, norm, **CLARABEL)
        if program.W.isfinite().all():
            W = restoring(_held(part, program.W, program.multipliers))(program.W)
            found.W[b], found.multipliers[b] = W[0], program.multipliers[0]
    return found


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
    known = bool(cones(norm))
    if known:
        yield from _near_face(problem, W, a, norm)
    if norm.name == "nuclear" or norm.name.startswith("schatten"):
        return  # CVXPY narrows no bracket, or does not know the norm
    options = SIMPLEX if norm.name in ("max", "l1") else CLARABEL
    for one in (options,) if known else (CLARABEL, FIRST_ORDER):
        program = reference.candidates(problem, norm, **one)
        yield program.W, program.multipliers
    if known and program.W.isfinite().all():
        yield from _near_face(problem, program.W, program.multipliers, norm)


def _near_face(
    problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what `face` finds near W (1, d, d) and multipliers (1, N) of a single instance."""
    index = (problem.inequality | independent_equalities(problem))[0].nonzero()[:, 0]
    rows = _rows(problem, W, norm, index)
    w, y = rows.scaled(W, a[:, index])
    if w.numel() + len(index) > face.MOST_ENTRIES:
        return
    numbers = rows.matrices(), rows.h[..., 0], ~rows.inequality[..., 0]
    of_face = face.Rows(*(x[0].numpy() for x in numbers))
    for point, multipliers in face.polish(of_face, w[0].numpy(), y[0, :, 0].numpy(), norm):
        w, y = torch.from_numpy(point)[None], torch.from_numpy(multipliers)[None, :, None]
        W, found = rows.given(w, y)
        yield W, torch.zeros_like(problem.h).index_copy(1, index, found)


def _rows(problem: SvmProblem, W: Tensor, norm: Norm, index: Tensor) -> Rows:
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
    return rows_for(norm, part, index, size, P_d, P_z)


def _narrow(norm: Norm, problem: SvmProblem) -> bool:
    """Whether the span of the rows has bases P_d, P_z that the norm does not see."""
    return isinstance(norm, Schatten) and problem.shape is None


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
    instances = each("instance", range(problem.B))
    parts = [_alone(problem.take(slice(b, b + 1)), norm) for b in instances]
    return Candidate(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _alone(problem: SvmProblem, norm: Norm) -> Candidate:
    """Return the candidate of a single instance."""
    start = by_blocks(problem)
    separates = bool((problem.margins(start.W) > 0)[_clear(problem, start.W)].all())
    if norm.name == "frobenius" or not (separates and start.W.isfinite().all() and start.W.any()):
        return start
    index = problem.equality[0].nonzero()[:, 0]
    equality = torch.zeros_like(problem.equality[0])  # independent ones
    if len(index):
        equality[index] = independent_equalities(problem.restrict(index))[0]
    working = equality | (problem.inequality[0] & (start.multipliers[0] != 0))
    if not cones(norm) or problem.slight.any():
        return grown(partial(solve, norm=norm), problem, working)
    best = _generated(problem, start, norm, equality, working)
    return start._replace(W=best.W, multipliers=best.a)


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
    narrow = _narrow(norm, problem) and problem.n < problem.Z.shape[2]
    P_z = basis(problem.Z) if narrow else None
    rows = rows_for(norm, problem, index, power_of_two(W.norm()), None, P_z)
    W, a = rows.scaled(W, a[:, index])
    for stage in cones(norm):
        cone = stage.on(rows)
        x = cone.start(W, a)
        if stage.norm.name != norm.name:
            found, x = follow(cone, x, cone.ROUGH[0])
            W, a = found.W, found.a
    for gap in itertools.chain(cone.ROUGH, itertools.repeat(CONVERGED_GAP_LARGE)):
        rough, part = gap > CONVERGED_GAP_LARGE, problem.restrict(index)
        found, last = follow(cone, x, gap)
        if rough:
            x = last
        elif not found.met(gap):  # rows that enter may leave a point near the boundary
            found = _anew(norm, rows, start.W, start.multipliers[:, index], gap)
        W, of_part = rows.given(found.W, found.a)
        if not rough and not found.met(gap) and len(index) * found.W.numel() <= POLISHED:
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
            working = working | most_violated(relative, missed, max(ENTERING, len(index) // 2))
        index, before = working.nonzero()[:, 0], index
        rows = rows_for(norm, problem, index, cone.rows.size, None, P_z)
        cone, x = _with_rows(cone, x, rows, index, before, gap)
    return best


def _anew(norm: Norm, rows: Rows, W: Tensor, a: Tensor, gap: float) -> Best:
    """Return the best W and multipliers of these rows from the Frobenius solution."""
    W, a = rows.scaled(W, a)
    for stage in cones(norm):
        cone = stage.on(rows)
        found = follow(cone, cone.start(W, a), gap)[0]
        W, a = found.W, found.a
    return found


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
