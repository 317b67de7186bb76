r"""Large instances: constraint generation, with products that never form vec(d_k z_k^T).

Few constraints are active, so both norms work on a support or a working set of rows, and look at
all N rows only through margins d_k^T (W z_i), which cost O(N d). Memory is O(N d + |support|^2).

Frobenius: block principal pivoting (Portugal, Judice, Vicente 1994; Kim, Park 2011) on the dual
K a = h: solve on the support, drop negative multipliers, add violated rows, all at once, growing
the support by a quarter at most; when the number of infeasibilities does not fall, one at a time.
Nuclear: the interior point on a working set, which grows by the rows that its solution violates.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.constraints import SvmProblem, power_of_two
from attnsvm.svm.frobenius import solve_frobenius
from attnsvm.svm.nuclear import solve_from
from attnsvm.svm.solution import Claim

LARGE = 1000  # rows from which on constraint generation pays
MAX_PIVOTS = 200
PATIENCE = 5
VIOLATED = 1e-11
DENSE_ROWS = 1500  # most rows that the method for small instances is given
ENTERING = 100
ROUNDS = 8
ROUGH = (1e-2, 1e-4)
GAP = 3e-10


def solve_large(problem: SvmProblem, norm: str) -> Claim:
    """Return W, multipliers and rays of large instances without equalities, one by one."""
    claims = []
    for b in range(problem.B):
        part = problem.take(slice(b, b + 1))
        claim = _frobenius(part)
        separates = (part.margins(claim.W) > 0)[part.inequality].all()
        if norm == "nuclear" and separates:
            claim = _nuclear(part, claim)
        claims.append(claim)
    return Claim(*(torch.cat(tensors) for tensors in zip(*claims, strict=True)))


def _frobenius(problem: SvmProblem) -> Claim:
    """Return the claim of one instance by block principal pivoting."""
    unit = power_of_two(problem.scale())[0]
    rows, h = problem.inequality[0], problem.h[0] / unit
    a = torch.zeros_like(h)
    support = torch.zeros_like(rows)
    fewest, patience = problem.N + 1, PATIENCE
    for _ in range(MAX_PIVOTS):
        W = problem.combine((a / unit)[None])
        slack = problem.margins(W)[0] / unit - h
        size = max(W.norm().item(), 1e-300)
        negative = support & (a < 0)
        violated = rows & ~support & (slack < -VIOLATED * size)
        wrong = int(negative.sum() + violated.sum())
        if not wrong:
            break
        if wrong < fewest:
            fewest, patience = wrong, PATIENCE
        else:
            patience -= 1
        support = _exchanged(support, negative, violated, slack, single=patience < 0)
        solved = _on_support(problem, unit, h, support)
        if solved is None:
            return _generated(problem, support)
        a = solved
    return Claim(W, (a / unit)[None], torch.full_like(a, torch.nan)[None])


def _generated(problem: SvmProblem, working: Tensor) -> Claim:
    """Return the claim of the method for small instances on a growing working set.

    For dependent rows and for infeasible instances, whose ray needs few rows.
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


def _on_support(problem: SvmProblem, unit: Tensor, h: Tensor, support: Tensor) -> Tensor | None:
    """Return a with K_PP a_P = h_P, refined once; None where K_PP is singular."""
    index = support.nonzero()[:, 0]
    D = problem.D[0, index] / unit[index, None]
    Q = problem.Z[0, index // (problem.N // problem.n)]
    K = (D @ D.T) * (Q @ Q.T)
    L, info = torch.linalg.cholesky_ex(K)
    if info:
        return None
    x = torch.cholesky_solve(h[index, None], L)
    x = x + torch.cholesky_solve(h[index, None] - K @ x, L)
    a = torch.zeros_like(h)
    a[index] = x[:, 0]
    return a


def _nuclear(problem: SvmProblem, start: Claim) -> Claim:
    """Return the claim of one instance: interior point on a growing working set of rows.

    W = W P P^T for the basis P of the queries' span. The first rounds, which only find the rows
    that matter, are solved roughly.
    """
    P = (
        torch.linalg.qr(problem.Z[0].T)[0]
        if problem.n < problem.d
        else torch.eye(problem.d).to(start.W)
    )
    narrow = replace(problem, Z=problem.Z @ P)
    W, a = start.W @ P, start.multipliers
    best_W, best_a = W, a
    upper, lower = upper_bound(narrow, W, "nuclear"), lower_bound(narrow, a, "nuclear")[1]
    working = a[0] > 0
    for gap in (*ROUGH, *[GAP] * ROUNDS):
        index = working.nonzero()[:, 0]
        new_W, part_a = solve_from(_restrict(narrow, index), W, a[:, index], gap)
        new_a = torch.zeros_like(a)
        new_a[:, index] = part_a
        new_upper = upper_bound(narrow, new_W, "nuclear")
        new_lower = lower_bound(narrow, new_a, "nuclear")[1]
        if new_upper < upper:
            best_W, upper = new_W, new_upper
        if new_lower > lower:
            best_a, lower = new_a, new_lower
        missed = problem.inequality[0] & (narrow.margins(new_W)[0] < problem.h[0] * (1 - 1e-10))
        grown = working | missed
        if gap == GAP and (upper <= (1 + 2 * GAP) * lower or torch.equal(grown, working)):
            break
        working = grown
    return Claim(best_W @ P.T, best_a, start.ray)


def _restrict(problem: SvmProblem, index: Tensor) -> SvmProblem:
    """Return the problem with the rows at `index`, each of them a sample of its own."""
    return SvmProblem(
        problem.D[:, index],
        problem.Z[:, index // (problem.N // problem.n)],
        problem.h[:, index],
        problem.kind[:, index],
        problem.token[:, index],
    )
