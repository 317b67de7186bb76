r"""Least Frobenius norm with many rows: products that never form vec(d_k z_k^T).

Block principal pivoting (Portugal, Judice, Vicente 1994; Kim, Park 2011) on the dual K a = h: solve
on the support, drop negative multipliers, add violated rows, all at once; the support grows by at
most a quarter. When the number of infeasibilities stops falling, one row is exchanged at a time.
Only the margins d_k^T (W z_i) use all N rows; they cost O(N d). Memory is O(N d + |support|^2).
Equalities are always in the support. Samples whose queries are orthogonal to all others are solved
alone: K is zero between them.
"""

import torch
from torch import Tensor

from attnsvm.svm.frobenius import least_norm
from attnsvm.svm.problem import PADDING, SvmProblem, power_of_two
from attnsvm.svm.solution import Candidate, Method
from attnsvm.svm.tolerances import VIOLATED

MAX_PIVOTS = 200
PATIENCE = 5  # pivots without progress before rows are exchanged one at a time
RIDGE = 1e-10
REFINEMENTS = 2
HOLDS = 1e-10  # largest relative residual of a singular K_PP whose rows do not contradict
OPPOSED = 1e-3  # least share of the largest multiplier at which one opposes a contradictory support
DENSE_ROWS = 1500  # most rows given to the method for small instances
ENTERING = 100  # rows that enter a working set at once
ORTHOGONAL = 1e-14  # largest cosine of queries that count as orthogonal


def by_blocks(problem: SvmProblem) -> Candidate:
    """Return the candidate of one instance from those of its groups of orthogonal queries.

    A ray of one group is a ray of the instance; the candidate is NaN unless all groups have one.
    """
    group = _orthogonal_groups(problem.Z[0]).repeat_interleave(problem.N // problem.n)
    if not group.any():
        return by_pivoting(problem)
    W, a = torch.zeros_like(problem.combine(problem.h)), torch.zeros_like(problem.h)
    rows = problem.kind[0] != PADDING
    for g in set(group[rows].tolist()):
        index = (rows & (group == g)).nonzero()[:, 0]
        part = problem.restrict(index)
        found = by_pivoting(part)
        if found.ray.isfinite().all():
            ray = torch.zeros_like(a).index_copy(1, index, found.ray)
            return Candidate(found.W, torch.full_like(a, torch.nan), ray)
        W += found.W
        a[:, index] = found.multipliers
    return Candidate(W, a, torch.full_like(a, torch.nan))


def _orthogonal_groups(Z: Tensor) -> Tensor:
    """Return the group of each query, (n,); queries of different groups are orthogonal."""
    from scipy.sparse.csgraph import connected_components  # imports are slow

    distinct, which = torch.unique(Z, dim=0, return_inverse=True)
    unit = distinct / distinct.norm(dim=1, keepdim=True).clamp(min=1e-300)
    together = ((unit @ unit.T).abs() > ORTHOGONAL).cpu().numpy()
    return torch.from_numpy(connected_components(together)[1]).to(which)[which]


def by_pivoting(problem: SvmProblem) -> Candidate:
    """Return the candidate of one instance by block principal pivoting.

    Of rows that contradict each other those leave whose multipliers, by far the largest then, are
    negative. Where there are none the instance is infeasible: it is left to the method for small
    instances on a growing working set, as are supports that go round.
    """
    unit = power_of_two(problem.scale)[0]
    rows, h = problem.inequality[0], problem.h[0] / unit
    support = problem.equality[0]  # equalities never leave it
    a, contradictory = _on_support(problem, unit, h, support)
    difficult = []
    fewest, patience = problem.N + 1, PATIENCE
    for _ in range(MAX_PIVOTS):
        W = problem.combine((a / unit)[None])
        slack = problem.margins(W)[0] / unit - h
        size = max(W.norm().item(), 1e-300)
        negative = support & rows & (a < (-OPPOSED * a.abs().amax() if contradictory else 0.0))
        violated = rows & ~support & (slack < -VIOLATED * size)
        wrong = int(negative.sum() + violated.sum())
        if contradictory:
            difficult.append(support)
            support = support & ~negative
            if not negative.any():
                break
        elif not wrong:
            break
        else:
            fewest, patience = (wrong, PATIENCE) if wrong < fewest else (fewest, patience - 1)
            support = _exchanged(support, negative, violated, slack, single=patience < 0)
        a, contradictory = _on_support(problem, unit, h, support)
    least = torch.where(h > 0, -h, -VIOLATED * size)
    separates = bool((slack > least)[rows].all())  # or K_PP was singular up to rounding
    if wrong or contradictory or not separates:
        return grown(least_norm, problem, difficult[0] if difficult else support | violated)
    return Candidate(W, (a / unit)[None], torch.full_like(a, torch.nan)[None])


def grown(method: Method, problem: SvmProblem, working: Tensor) -> Candidate:
    """Return the candidate of one instance by `method` on a working set of rows, (N,) bool.

    The set grows by the rows that W violates; NaN if it grows too large.
    """
    nothing = torch.full_like(problem.h, torch.nan)
    while working.sum() <= DENSE_ROWS:
        index = working.nonzero()[:, 0]
        part = method(problem.restrict(index))
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
