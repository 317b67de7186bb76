r"""Large instances: constraint generation, with products that never form vec(d_k z_k^T).

Few constraints are active, so both norms work on a support or a working set of rows, and look at
all N rows only through margins d_k^T (W z_i), which cost O(N d). Memory is O(N d + |support|^2).
Equalities are always in the support.

Frobenius: block principal pivoting (Portugal, Judice, Vicente 1994; Kim, Park 2011) on the dual
K a = h: solve on the support, drop negative multipliers, add violated rows, all at once, growing
the support by a quarter at most; when the number of infeasibilities does not fall, one at a time.
Nuclear: one interior-point run whose rows change underway (`_nuclear`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.constraints import SvmProblem, power_of_two
from attnsvm.svm.frobenius import solve_frobenius
from attnsvm.svm.general import restore_equalities
from attnsvm.svm.lmi import Cone, basis, project_on
from attnsvm.svm.nuclear import State, begin, interior_point, mean_complementarity
from attnsvm.svm.solution import Claim

LARGE = 1000  # rows from which on constraint generation pays
MAX_PIVOTS = 200
PATIENCE = 5
VIOLATED = 1e-11
RIDGE = 1e-10
REFINEMENTS = 2
HOLDS = 1e-10  # rows of a singular K_PP that miss their right-hand sides by more contradict
MAX_CONTRADICTORY = 20  # supports, after which the instance counts as difficult
DENSE_ROWS = 1500  # most rows that the method for small instances is given
ENTERING = 100
ROUNDS = 8
ROUGH = (1e-2, 1e-4)
GAP = 3e-10
INSIDE = 0.99  # most that ||M(a)||_op may be after rows have changed


def solve_large(problem: SvmProblem, norm: str) -> Claim:
    """Return W, multipliers and rays of large instances, one by one."""
    claims = []
    for b in range(problem.B):
        part = problem.take(slice(b, b + 1))
        claim = _frobenius(part)
        separates = (part.margins(claim.W) > 0)[part.inequality].all()
        if norm == "nuclear" and claim.W.isfinite().all() and claim.W.any() and separates:
            claim = _nuclear(part, claim)
        claims.append(claim)
    return Claim(*(torch.cat(tensors) for tensors in zip(*claims, strict=True)))


def _frobenius(problem: SvmProblem) -> Claim:
    """Return the claim of one instance by block principal pivoting."""
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
    return Claim(W, (a / unit)[None], torch.full_like(a, torch.nan)[None])


def _generated(problem: SvmProblem, working: Tensor) -> Claim:
    """Return the claim of the method for small instances on a growing working set.

    For supports of rows that cannot hold together, and for infeasible instances, whose ray needs
    few rows.
    """
    nothing = torch.full_like(problem.h, torch.nan)
    while working.sum() <= DENSE_ROWS:
        index = working.nonzero()[:, 0]
        part = solve_frobenius(_restrict(problem, index))
        a, ray = torch.zeros_like(nothing), torch.zeros_like(nothing)
        a[:, index], ray[:, index] = part.multipliers, part.ray
        slack = (problem.margins(part.W) - problem.h)[0].nan_to_num(-torch.inf)
        violated = problem.inequality[0] & ~working & (slack < 0)
        if part.ray.isfinite().all() or not violated.any():
            return Claim(part.W, a, ray)
        worst = torch.where(violated, slack, torch.inf).argsort()[:ENTERING]
        working = working.clone()
        working[worst] |= violated[worst]
    return Claim(torch.full_like(problem.combine(nothing), torch.nan), nothing, nothing)


def _exchanged(
    support: Tensor, negative: Tensor, violated: Tensor, slack: Tensor, single: bool
) -> Tensor:
    """Return the next support: all exchanges (growing by a quarter at most), or the last alone."""
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
    """Return a with K_PP a_P = h_P, refined, and whether the rows of P cannot hold together.

    A singular K_PP gets a ridge: copies of a row then share its multiplier, and of rows that cannot
    hold together some multiplier turns negative.
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


def _nuclear(problem: SvmProblem, start: Claim) -> Claim:
    """Return the claim of one instance: one interior-point run on a changing working set of rows.

    Rough rounds leave idle rows out and take in those that are nearly active; the iterate is kept.
    Rows that the solution to full accuracy violates are added to the last rough iterate.
    """
    P_d, P_z = torch.eye(problem.d).to(start.W)[None], basis(problem.Z)
    best_W, best_a = start.W, start.multipliers
    upper = upper_bound(problem, best_W, "nuclear")
    lower = lower_bound(problem, best_a, "nuclear")[1]
    working = problem.equality[0] | (best_a[0] != 0)
    index = working.nonzero()[:, 0]
    part = _restrict(problem, index)
    cone = project_on(P_d, P_z, part, start.W)
    state = begin(cone, *cone.reproject(start.W, best_a[:, index]))
    for gap in (*ROUGH, *[GAP] * ROUNDS):
        W, a_part, _, last = interior_point(cone, state, gap)
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
        if gap == GAP:
            missed = problem.inequality[0] & ~working & (relative < -1e-10)
            if upper <= (1 + 2 * GAP) * lower or not missed.any():
                break
            changed = working | missed
        else:
            state, idle = last, relative > gap**0.5
            changed = (working & ~idle) | (problem.inequality[0] & (relative < gap))
            changed = changed | problem.equality[0]
        old, index = index, changed.nonzero()[:, 0]
        part = _restrict(problem, index)
        new_cone = project_on(P_d, P_z, part, start.W)
        state = _carried(cone, state, old, new_cone, index, problem.N, max(gap, ROUGH[-1]))
        cone, working = new_cone, changed
    return Claim(best_W, best_a, start.ray)


def _carried(
    cone: Cone, state: State, old: Tensor, new_cone: Cone, new: Tensor, N: int, gap: float
) -> State:
    """Return the state on the rows `new`: as it was on rows of `old`, the others on its path.

    A row that enters gets its slack, at least gap h_k, and the multiplier nu / s_k.
    """
    nu = mean_complementarity(cone, state)
    slack = new_cone.apply(state.Y[:, : cone.p, cone.p :]) - new_cone.h
    s = torch.maximum(slack, gap * new_cone.h)
    a = nu[:, None] / s
    place = torch.full((N,), -1, device=new.device)
    place[old] = torch.arange(len(old), device=new.device)
    stays = place[new] >= 0
    s[:, stays], a[:, stays] = state.s[:, place[new][stays]], state.a[:, place[new][stays]]
    top = torch.linalg.matrix_norm(new_cone.combine(a), ord=2)[:, None]
    return State(state.Y, s, a * (INSIDE / top).clamp(max=1.0))


def _restrict(problem: SvmProblem, index: Tensor) -> SvmProblem:
    """Return the problem with the rows at `index`, each of them a sample of its own."""
    return SvmProblem(
        problem.D[:, index],
        problem.Z[:, index // (problem.N // problem.n)],
        problem.h[:, index],
        problem.kind[:, index],
        problem.token[:, index],
    )
