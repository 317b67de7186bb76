r"""Large instances: constraint generation, with products that never form vec(d_k z_k^T).

Few constraints are active, so both norms work on a support or a working set of rows. Only the
margins d_k^T (W z_i) use all N rows; they cost O(N d). Memory is O(N d + |support|^2). Equalities
are always in the support.

Frobenius: block principal pivoting (Portugal, Judice, Vicente 1994; Kim, Park 2011) on the dual
K a = h: solve on the support, drop negative multipliers, add violated rows, all at once; the
support grows by at most a quarter. When the number of infeasibilities stops falling, one row is
exchanged at a time. Nuclear: one interior-point run with a changing set of rows (`_nuclear`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.equalities import restore_equalities
from attnsvm.svm.frobenius.least_distance import LeastDistance
from attnsvm.svm.nuclear.cone import Cone, basis, project_on
from attnsvm.svm.nuclear.interior_point import Iterate, begin, interior_point, mean_complementarity
from attnsvm.svm.problem import SvmProblem, power_of_two
from attnsvm.svm.solution import Candidate
from attnsvm.svm.solver import Solver
from attnsvm.svm.tolerances import CONVERGED_GAP_LARGE, VIOLATED

LARGE = 1000  # least number of rows for which constraint generation is faster
MAX_PIVOTS = 200
PATIENCE = 5  # pivots without progress before rows are exchanged one at a time
RIDGE = 1e-10
REFINEMENTS = 2
HOLDS = 1e-10  # largest relative residual of a singular K_PP whose rows do not contradict
MAX_CONTRADICTORY = 20  # contradictory supports after which pivoting stops
DENSE_ROWS = 1500  # most rows given to the method for small instances
ENTERING = 100  # rows that enter a working set at once
ROUNDS = 8
ROUGH = (1e-2, 1e-4)  # duality gaps of the rough rounds
INSIDE = 0.99  # largest ||M(a)||_op of an iterate after rows have changed


class ConstraintGeneration(Solver):
    """Either norm on a working set of rows, one instance after the other."""

    def __init__(self, norm: str) -> None:
        self.norm = norm

    def candidates(self, problem: SvmProblem) -> Candidate:
        """Return W, multipliers and rays of large instances; NaN where none."""
        parts = []
        for b in range(problem.B):
            part = problem.take(slice(b, b + 1))
            found = _frobenius(part)
            separates = (part.margins(found.W) > 0)[part.inequality].all()
            if self.norm == "nuclear" and found.W.isfinite().all() and found.W.any() and separates:
                found = _nuclear(part, found)
            parts.append(found)
        return Candidate(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _frobenius(problem: SvmProblem) -> Candidate:
    """Return the candidate of one instance by block principal pivoting."""
    unit = power_of_two(problem.scale())[0]
    rows, h = problem.inequality[0], problem.h[0] / unit
    support = problem.equality[0]  # equalities never leave it
    a, contradictory = _on_support(problem, unit, h, support)
    difficult = [support] if contradictory else []
    fewest, patience = problem.N + 1, PATIENCE
    for _ in range(MAX_PIVOTS):
        W = problem.combine((a / unit)[None])
        slack = problem.margins(W)[0] / unit - h
        size = max(W.norm().item(), 1e-300)
        negative = support & rows & (a < 0)
        violated = rows & ~support & (slack < -VIOLATED * size)
        wrong = int(negative.sum() + violated.sum())
        if not wrong:
            break
        if wrong < fewest:
            fewest, patience = wrong, PATIENCE
        else:
            patience -= 1
        support = _exchanged(support, negative, violated, slack, single=patience < 0)
        a, contradictory = _on_support(problem, unit, h, support)
        difficult += [support] if contradictory else []
        if len(difficult) > MAX_CONTRADICTORY:
            break
    if difficult and (wrong or contradictory):
        return _generated(problem, difficult[0])
    return Candidate(W, (a / unit)[None], torch.full_like(a, torch.nan)[None])


def _generated(problem: SvmProblem, working: Tensor) -> Candidate:
    """Return the candidate of the method for small instances on a growing working set.

    For contradictory supports, and for infeasible instances, whose ray needs few rows.
    """
    nothing = torch.full_like(problem.h, torch.nan)
    while working.sum() <= DENSE_ROWS:
        index = working.nonzero()[:, 0]
        part = LeastDistance().candidates(_restrict(problem, index))
        a, ray = torch.zeros_like(nothing), torch.zeros_like(nothing)
        a[:, index], ray[:, index] = part.multipliers, part.ray
        slack = (problem.margins(part.W) - problem.h)[0].nan_to_num(-torch.inf)
        violated = problem.inequality[0] & ~working & (slack < 0)
        if part.ray.isfinite().all() or not violated.any():
            return Candidate(part.W, a, ray)
        worst = torch.where(violated, slack, torch.inf).argsort()[:ENTERING]
        working = working.clone()
        working[worst] |= violated[worst]
    return Candidate(torch.full_like(problem.combine(nothing), torch.nan), nothing, nothing)


def _exchanged(
    support: Tensor, negative: Tensor, violated: Tensor, slack: Tensor, single: bool
) -> Tensor:
    """Return the next support: all exchanges (growth at most a quarter), or only the last one."""
    if single:
        last = (negative | violated).nonzero()[-1]
        support = support.clone()
        support[last] = ~support[last]
        return support
    limit = max(2 * ENTERING, int(support.sum()) // 4)
    worst = torch.where(violated, slack, torch.inf).argsort()[:limit]
    entering = torch.zeros_like(violated)
    entering[worst] = violated[worst]
    return (support & ~negative) | entering


def _on_support(
    problem: SvmProblem, unit: Tensor, h: Tensor, support: Tensor
) -> tuple[Tensor, bool]:
    """Return a with K_PP a_P = h_P, refined, and whether the rows of P contradict each other.

    A singular K_PP gets a ridge: equal rows then share one multiplier, and of contradictory rows
    one gets a negative multiplier.
    """
    index = support.nonzero()[:, 0]
    D = problem.D[0, index] / unit[index, None]
    Q = problem.Z[0, index // (problem.N // problem.n)]
    K = (D @ D.T) * (Q @ Q.T)
    L, info = torch.linalg.cholesky_ex(K)
    if info:
        L = torch.linalg.cholesky(K + RIDGE * torch.eye(len(K)).to(K))  # rows are of unit size
    right = h[index, None]
    x = torch.cholesky_solve(right, L)
    for _ in range(REFINEMENTS):
        x = x + torch.cholesky_solve(right - K @ x, L)
    missed = (right - K @ x).abs().sum() > HOLDS * right.abs().sum() if info else False
    a = torch.zeros_like(h)
    a[index] = x[:, 0]
    return a, bool(missed)


def _nuclear(problem: SvmProblem, start: Candidate) -> Candidate:
    """Return the candidate of one interior-point run on a changing working set of rows.

    Rough rounds drop idle rows and add nearly active ones; they keep the iterate. Rows violated by
    the solution of full accuracy are added to the last rough iterate.
    """
    P_d, P_z = torch.eye(problem.d).to(start.W)[None], basis(problem.Z)
    best_W, best_a = start.W, start.multipliers
    upper = upper_bound(problem, best_W, "nuclear")
    lower = lower_bound(problem, best_a, "nuclear")[1]
    working = problem.equality[0] | (best_a[0] != 0)
    index = working.nonzero()[:, 0]
    part = _restrict(problem, index)
    cone = project_on(P_d, P_z, part, start.W)
    iterate = begin(cone, *cone.reproject(start.W, best_a[:, index]))
    for gap in (*ROUGH, *[CONVERGED_GAP_LARGE] * ROUNDS):
        W, a_part, _, last = interior_point(cone, iterate, gap)
        W, a_part = cone.unproject(W, a_part)
        W = restore_equalities(part, W)
        a = torch.zeros_like(best_a)
        a[:, index] = a_part
        new_upper = upper_bound(problem, W, "nuclear")
        new_lower = lower_bound(problem, a, "nuclear")[1]
        if new_upper < upper:
            best_W, upper = W, new_upper
        if new_lower > lower:
            best_a, lower = a, new_lower
        relative = ((problem.margins(W) - problem.h) / problem.h)[0]
        if gap == CONVERGED_GAP_LARGE:
            missed = problem.inequality[0] & ~working & (relative < -1e-10)
            if upper <= (1 + 2 * CONVERGED_GAP_LARGE) * lower or not missed.any():
                break
            changed = working | missed
        else:
            iterate, idle = last, relative > gap**0.5
            changed = (working & ~idle) | (problem.inequality[0] & (relative < gap))
            changed = changed | problem.equality[0]
        old, index = index, changed.nonzero()[:, 0]
        part = _restrict(problem, index)
        new_cone = project_on(P_d, P_z, part, start.W)
        iterate = _carried(cone, iterate, old, new_cone, index, problem.N, max(gap, ROUGH[-1]))
        cone, working = new_cone, changed
    return Candidate(best_W, best_a, start.ray)


def _carried(
    cone: Cone, iterate: Iterate, old: Tensor, new_cone: Cone, new: Tensor, N: int, gap: float
) -> Iterate:
    """Return the iterate on the rows `new`: unchanged on `old`, other rows near the central path.

    A row that enters gets its slack, at least gap h_k, and the multiplier nu / s_k.
    """
    nu = mean_complementarity(cone, iterate)
    slack = new_cone.apply(iterate.Y[:, : cone.p, cone.p :]) - new_cone.h
    s = torch.maximum(slack, gap * new_cone.h)
    a = nu[:, None] / s
    place = torch.full((N,), -1, device=new.device)
    place[old] = torch.arange(len(old), device=new.device)
    stays = place[new] >= 0
    s[:, stays], a[:, stays] = iterate.s[:, place[new][stays]], iterate.a[:, place[new][stays]]
    top = torch.linalg.matrix_norm(new_cone.combine(a), ord=2)[:, None]
    return Iterate(iterate.Y, s, a * (INSIDE / top).clamp(max=1.0))


def _restrict(problem: SvmProblem, index: Tensor) -> SvmProblem:
    """Return the problem with the rows at `index`, each of them as one sample."""
    return SvmProblem(
        problem.D[:, index],
        problem.Z[:, index // (problem.N // problem.n)],
        problem.h[:, index],
        problem.kind[:, index],
        problem.token[:, index],
    )
