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
from importlib.util import find_spec

import torch
from torch import Tensor

from attnsvm.display.pace import each
from attnsvm.norm import Norm, norm_of
from attnsvm.norm.cone import follow
from attnsvm.norm.rows import DenseRows, FactoredRows, Rows
from attnsvm.svm import reference
from attnsvm.svm.certificate import bounds, check_ray
from attnsvm.svm.equalities import independent_equalities, restoring
from attnsvm.svm.frobenius import least_norm
from attnsvm.svm.frobenius.pivoting import by_instance, by_pivoting, grown
from attnsvm.svm.interior_point import face
from attnsvm.svm.problem import (
    EQUALITY,
    INEQUALITY,
    PADDING,
    SvmProblem,
    frobenius,
    least,
    power_of_two,
)
from attnsvm.svm.solution import Candidate, Method
from attnsvm.svm.tolerances import CONVERGED_GAP, CONVERGED_GAP_LARGE, RAY_RATIO, VIOLATED


def solve(
    problem: SvmProblem, norm: Norm, start: Candidate | None = None, gap: float | None = None
) -> Candidate:
    """Return W and multipliers, NaN where no W is feasible, and the rays of those.

    From the Frobenius solution, or the candidate `start`. With a `gap` the method ends there, and
    what it leaves open stays so.
    """
    start = start or least_norm(problem)
    W, a = torch.full_like(start.W, torch.nan), torch.full_like(start.multipliers, torch.nan)
    index = _usable(problem, start).nonzero()[:, 0]
    if index.numel():
        part, rows = problem.take(index).without_padding()
        y = start.multipliers[index].gather(1, rows)
        near = followed(part, start.W[index], y, norm, gap or CONVERGED_GAP)
        W[index], of_part = near if gap else improved(part, *near, norm)
        a[index] = torch.zeros_like(a[index]).scatter(1, rows, of_part)
    return Candidate(W, a, start.ray)


def _usable(problem: SvmProblem, start: Candidate) -> Tensor:
    """Return where the method can start: where W is not zero and separates, without a ray, (B,).

    Margins that are rounding error do not count.
    """
    clear = problem.separating & ~problem.faint(start.W)
    margin = least(problem.margins(start.W), clear)
    known = start.W.isfinite().all(dim=(1, 2)) & start.W.any(-1).any(-1) & (margin > 0)
    return known & (check_ray(problem, start.ray)[1] < RAY_RATIO)


PART = 2**21
"""Entries of the normal equations of a part of the batch: they fit the cache."""


def followed(
    problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm, gap: float
) -> tuple[Tensor, Tensor]:
    """Return W and multipliers of the method from Frobenius solutions, a part at a time."""
    count = max(1, PART // problem.N**2)
    parts = [slice(k, k + count) for k in range(0, problem.B, count)]
    pairs = [_followed(problem.take(part), W[part], a[part], norm, gap) for part in parts]
    return torch.cat([W for W, _ in pairs]), torch.cat([a for _, a in pairs])


def _followed(
    problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm, gap: float
) -> tuple[Tensor, Tensor]:
    size = power_of_two(frobenius(W))[:, None, None]
    part = replace(problem, h=problem.h / size[:, 0])
    part = part.keeping(part.inequality | independent_equalities(part))
    rows, W, a = rows_of(part), W / size, a[..., None]
    for stage in norm.path():  # each starts the next
        cone = stage.cone(rows)
        W, a = follow(cone, cone.start(W, a), gap)
    W, a = W * size, a[..., 0]
    return _restored(problem, W, a), a


def rows_of(problem: SvmProblem) -> Rows:
    """Return the rows of a problem as the cones take them."""
    kind = problem.kind[..., None]
    columns = {
        "h": problem.h[..., None],
        "inequality": kind == INEQUALITY,
        "real": kind != PADDING,
    }
    if problem.shape is not None:
        A = (problem.D * problem.Z).reshape(*problem.h.shape, *problem.shape)
        return DenseRows(A=A, **columns)
    if problem.n == problem.N:  # rows of a working set, which may share their queries
        Z, sample = torch.unique_consecutive(problem.Z, dim=1, return_inverse=True)
    else:
        Z, sample = problem.Z, problem.sample
    return FactoredRows(D=problem.D, Z=Z, sample=sample, **columns)


APART = 1e-6
"""Active rows nearer to the span of others, as a sine, are not held."""


def _restored(problem: SvmProblem, W: Tensor, a: Tensor) -> Tensor:
    """Return the W nearby where equalities, and active rows that do not scale W, hold.

    Of rows that are nearly parallel, some are left out: all together would move W far. Where these
    are then missed by more than before, only the equalities hold.
    """
    held, restored = _held(problem, W, a), restoring(problem)(W)
    if held is problem:
        return restored
    V = restoring(held, APART)(W)
    near = _missed(problem, V) <= _missed(problem, restored).clamp(min=VIOLATED)
    return torch.where(near[:, None, None], V, restored)


def _missed(problem: SvmProblem, W: Tensor) -> Tensor:
    """Return by how much W misses a row that does not scale it, (B,).

    Relative to ||d_k|| ||z_k|| ||W||_F.
    """
    missed = problem.h - problem.margins(W)
    missed = torch.where(problem.equality, missed.abs(), missed) / problem.scale
    rows = problem.equality | _without_scale(problem)
    return torch.where(rows, missed, 0.0).amax(dim=1) / frobenius(W)


def _without_scale(problem: SvmProblem) -> Tensor:
    """Return the inequalities that do not scale W, (B, N): of small right-hand sides, or all.

    All where problems are not homogeneous.
    """
    return problem.inequality & (problem.small_rhs | ~problem.homogeneous[:, None])


def _held(problem: SvmProblem, W: Tensor, a: Tensor) -> SvmProblem:
    """Return the problem with equalities for active rows that do not scale W.

    The slack of an active row is less than the square of its multiplier, both relative: of two
    sides of a narrow slab both would have a larger multiplier than slack.
    """
    rows = _without_scale(problem)
    if not rows.any():
        return problem
    weight = a * problem.scale
    weight = weight / weight.abs().amax(dim=1, keepdim=True)
    slack = (problem.margins(W) - problem.h) / problem.scale
    active = rows & (weight > 0) & (weight.square() * frobenius(W)[:, None] > slack)
    return replace(problem, kind=torch.where(active, EQUALITY, problem.kind).to(problem.kind))


def decided(method: Method, problem: SvmProblem) -> Candidate:
    """Return the candidate of a method for the Frobenius norm, CVXPY's where it has nothing.

    Active-set methods may go round where many constraints are degenerate. An interior point is not
    a vertex, and tells which of them are active.
    """
    candidate, norm = method(problem), norm_of("frobenius")
    W, a, ray = candidate
    index = (~problem.separated_by(W) & ~problem.trivial).nonzero()[:, 0]
    if index.numel():
        part = problem.take(index)
        failed = bounds(part, W[index], a[index], norm)[0].isinf()
        index = index[failed & (check_ray(part, ray[index])[1] < RAY_RATIO)]
    if index.numel():
        W[index], a[index] = improved(problem.take(index), W[index], a[index], norm)
    return candidate


def improved(problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """Return the best W and multipliers; others are tried where the bracket is open."""
    if problem.N * W[0].numel() > POLISHED:
        return W, a
    upper, lower = bounds(problem, W, a, norm)
    left = (~(upper <= (1 + CONVERGED_GAP) * lower)).nonzero()[:, 0].tolist()
    for b in each("instance", left):
        part = problem.take(slice(b, b + 1)).to("cpu")
        for V, y in others(part, W[b, None].cpu(), a[b, None].cpu(), norm):
            above, below = bounds(part, V, y, norm)
            if above < upper[b]:
                W[b], upper[b] = V[0], above
            if below > lower[b]:
                a[b], lower[b] = y[0], below
            if upper[b] <= (1 + CONVERGED_GAP) * lower[b]:
                break
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
        (program,) = reference.solutions(problem, norm, **options)
        W, a = (torch.from_numpy(x)[None] for x in (program.W, program.multipliers))
        if W.isfinite().all():
            yield _restored(problem, W, a), a
            if norm.path():
                yield from _near_face(problem, W, a, norm)


def _near_face(
    problem: SvmProblem, W: Tensor, a: Tensor, norm: Norm
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what `face` finds near W (1, d, d) and multipliers (1, N) of a single instance."""
    index = (problem.inequality | independent_equalities(problem))[0].nonzero()[:, 0]
    if W.numel() + len(index) > face.MOST_ENTRIES:
        return
    rows = rows_of(problem.restrict(index))
    for V, y in face.polish(rows, W, a[:, index, None], norm):
        yield V, torch.zeros_like(problem.h).index_copy(1, index, y[..., 0])


LARGE = 401
"""Least number of rows for which constraint generation is faster."""

POLISHED = 2**20
"""Most entries of all vec(d_k z_k^T) of an instance whose bracket is narrowed."""

ROUGH = (1e-2, 1e-4)
"""Duality gaps at which rows are exchanged while a large instance is solved."""


def constraint_generation(problem: SvmProblem, norm: Norm) -> Candidate:
    """Return W, multipliers and rays of large instances, one after the other; NaN where none."""
    return by_instance(partial(_alone, norm=norm), problem)


def _alone(problem: SvmProblem, norm: Norm) -> Candidate:
    """Return the candidate of a single instance."""
    start = by_pivoting(problem)
    if norm.is_hilbert or not _usable(problem, start):
        return start

    def method(part: SvmProblem, index: Tensor, gap: float) -> Candidate:
        of_part = Candidate(start.W, start.multipliers[:, index], start.ray[:, index])
        return solve(part, norm, of_part, (gap or CONVERGED_GAP_LARGE) if norm.path() else None)

    working = problem.equality[0] | (problem.inequality[0] & (start.multipliers[0] != 0))
    rough = () if not norm.path() or problem.small_rhs.any() else ROUGH
    W, a, _ = grown(method, problem, working, rough)
    index = (a[0] != 0).nonzero()[:, 0]
    W, a[:, index] = improved(problem.restrict(index), W, a[:, index], norm)
    return Candidate(W, a, start.ray)
