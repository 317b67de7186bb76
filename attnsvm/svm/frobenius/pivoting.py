r"""Least Frobenius norm with many rows: products that never form vec(d_k z_k^T).

Block principal pivoting (Portugal, Judice, Vicente 1994; Kim, Park 2011) on the dual K a = h: solve
on the support, drop negative multipliers at once where that raises the dual's value (else those
that vanish first, as Lawson and Hanson do), and add violated rows; the support grows by at most a
quarter. The value rises from support to support, so that none returns.
Only the margins d_k^T (W z_i) use all N rows; they cost O(N d). Memory is O(N d + |support|^2).
Equalities are always in the support.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnsvm.display.pace import each
from attnsvm.linalg import EPS
from attnsvm.svm.certificate import bounds, check_ray
from attnsvm.svm.frobenius import least_norm
from attnsvm.svm.problem import SvmProblem, power_of_two
from attnsvm.svm.solution import Candidate, Method
from attnsvm.svm.tolerances import CONVERGED_GAP, RAY_RATIO, VIOLATED

PATIENCE = 5  # supports without progress before the method for small instances is used
RESOLVED = 4 * EPS  # least relative rise of the dual's value that is no rounding error
SHARES = (1.0, 0.25, 0.0)  # of the way to the solution on a support
RIDGE = 1e-10
REFINEMENTS = 2
HOLDS = 1e-10  # largest relative residual of a singular K_PP whose rows do not contradict
OPPOSED = 1e-6  # least share of the largest multiplier at which one opposes a contradictory support
ENTERING = 100  # rows that enter a working set at once
GRAM_ROWS = 2000  # most rows of instances whose whole Gram matrices are formed


def by_size(problem: SvmProblem) -> Candidate:
    """Return the candidates from Gram matrices, or of instances with many rows one by one."""
    if problem.N <= GRAM_ROWS:
        return least_norm(problem)
    return by_instance(by_pivoting, problem)


def by_instance(method: Method, problem: SvmProblem) -> Candidate:
    """Return the candidates by `method` of one instance after the other."""
    instances = each("instance", range(problem.B))
    parts = [method(problem.take(slice(b, b + 1))) for b in instances]
    return Candidate(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def by_pivoting(problem: SvmProblem) -> Candidate:
    """Return the candidate of one instance by block principal pivoting.

    It ends with a solution or with a ray. What is neither, up to rounding, is left to the method
    for small instances on a growing working set, and so is a support after which neither the dual's
    value rises nor the largest violation falls.
    """
    unit = power_of_two(problem.scale)[0]
    rows, h = problem.inequality[0], problem.h[0] / unit
    support, a = problem.equality[0], torch.zeros_like(h)
    highest, least, patience = -math.inf, math.inf, PATIENCE
    while True:
        a, support, contradictory = _ascended(problem, unit, h, support, a)
        W = problem.combine((a / unit)[None])
        slack = problem.margins(W)[0] / unit - h
        size = max(W.norm().item(), 1e-300)
        violated = rows & ~support & (slack < -VIOLATED * size)
        if contradictory or not violated.any():
            break
        value, violation = (h @ a).item(), -slack[violated].amin().item() / size
        better = value > highest + RESOLVED * abs(highest) or violation < least
        patience = PATIENCE if better else patience - 1
        if not patience:
            break
        highest, least = max(value, highest), min(violation, least)
        support = support | most_violated(
            slack, violated, max(2 * ENTERING, int(support.sum()) // 4)
        )
    multipliers, none = (a / unit)[None], torch.full_like(problem.h, torch.nan)
    if contradictory:
        if check_ray(problem, multipliers)[1] >= RAY_RATIO:
            return Candidate(torch.full_like(W, torch.nan), none, multipliers)
        return _from_rows(problem, support)
    upper, lower = bounds(problem, W, multipliers, "frobenius")
    if upper <= (1 + CONVERGED_GAP) * lower:
        return Candidate(W, multipliers, none)
    exact = _from_rows(problem, support | violated)  # the Gram matrix loses digits here
    known = exact.W.isfinite().all() or exact.ray.isfinite().all()
    return exact if known else Candidate(W, multipliers, none)


def _from_rows(problem: SvmProblem, working: Tensor) -> Candidate:
    """Return the candidate of the rows themselves, from a working set (N,)."""
    return grown(lambda part, *_: least_norm(part), problem, working)


def _ascended(
    problem: SvmProblem, unit: Tensor, h: Tensor, support: Tensor, a: Tensor
) -> tuple[Tensor, Tensor, bool]:
    """Return multipliers that maximise the dual on their own support, and it, part of the given.

    And whether its rows contradict each other. A solution x on the support with negative
    multipliers is approached along max(0, a + t (x - a)), at the largest t of `SHARES` where the
    dual's value rises, at least until the first multiplier vanishes. So every step drops a row,
    and none lowers the value.
    """
    index = support.nonzero()[:, 0]
    K, a, right = _gram(problem, unit, index), a[index], h[index]
    free = problem.equality[0, index]
    while True:
        x, contradictory = _solved(K, right)
        opposed = ~free & (x < (-OPPOSED * x.abs().amax() if contradictory else 0.0))
        if not opposed.any():
            break
        vanishes = torch.where(opposed, a / (a - x), torch.inf)
        first, value = vanishes.amin().item(), _value(K, right, a)
        for share in SHARES:
            t = max(share, first)
            moved = a + t * (x - a)
            moved = torch.where(free, moved, moved.clamp(min=0.0))
            if t == first or _value(K, right, moved) > value:
                break
        keep = ~(vanishes <= t)
        K, a, right, free, index = (
            K[keep][:, keep],
            moved[keep],
            right[keep],
            free[keep],
            index[keep],
        )
    a, support = torch.zeros_like(h), torch.zeros_like(support)
    a[index], support[index] = x, True
    return a, support, contradictory


def _value(K: Tensor, h: Tensor, a: Tensor) -> float:
    """Return the dual's value h^T a - a^T K a / 2."""
    return float(h @ a - a @ (K @ a) / 2)


def _gram(problem: SvmProblem, unit: Tensor, index: Tensor) -> Tensor:
    """Return K of the unit rows at `index`."""
    D = problem.D[0, index] / unit[index, None]
    Q = problem.Z[0, problem.sample[index]]
    return (D @ D.T) * (Q @ Q.T)


def _solved(K: Tensor, h: Tensor) -> tuple[Tensor, bool]:
    """Return a with K a = h, refined, and whether these rows contradict each other.

    A singular K gets a ridge: equal rows then share one multiplier. Of contradictory rows a is the
    direction in which the dual rises for ever, K a = 0 and h^T a > 0: a ray, if a >= 0.
    """
    L, info = torch.linalg.cholesky_ex(K)
    if info:
        L = torch.linalg.cholesky(K + RIDGE * torch.eye(len(K)).to(K))  # rows are of unit size
    right = h[:, None]
    x = torch.cholesky_solve(right, L)
    for _ in range(REFINEMENTS):
        x = x + torch.cholesky_solve(right - K @ x, L)
    if not info or (right - K @ x).abs().sum() <= HOLDS * right.abs().sum():
        return x[:, 0], False
    for _ in range(REFINEMENTS):  # inverse iteration: of x, the part in the null space stays
        x = RIDGE * torch.cholesky_solve(x, L)
    return x[:, 0], True


def most_violated(slack: Tensor, violated: Tensor, count: int) -> Tensor:
    """Return which are the `count` most violated rows."""
    worst = torch.where(violated, slack, torch.inf).argsort()[:count]
    return violated & torch.zeros_like(violated).index_fill(0, worst, True)


def grown(
    method: Callable[[SvmProblem, Tensor, float], Candidate],
    problem: SvmProblem,
    working: Tensor,
    rough: Sequence[float] = (),
) -> Candidate:
    """Return the candidate of one instance by `method` on a working set of rows, (N,) bool.

    `method` takes the problem of the working set, the indices of its rows, and a duality gap. With
    the gaps `rough`, one after the other, idle rows leave and nearly active ones enter. With the
    gap 0 rows enter that W violates more than those of the set; those of zero multipliers leave
    while h^T a rises. NaN where the method finds nothing.
    """
    equality, inequality, highest = problem.equality[0], problem.inequality[0], -math.inf
    for gap in itertools.chain(rough, itertools.repeat(0.0)):
        index = working.nonzero()[:, 0]
        part = method(problem.restrict(index), index, gap)
        a, ray = torch.zeros_like(problem.h), torch.zeros_like(problem.h)
        a[:, index], ray[:, index] = part.multipliers, part.ray
        slack = ((problem.margins(part.W) - problem.h) / problem.rhs_scale)[0]
        inside = slack[working & inequality]
        if len(inside):
            slack = slack - (inside.amin() if gap else inside.amin().clamp(max=0.0))
        outside = inequality & ~working
        if gap:
            idle = slack > gap**0.5
            working = equality | (working & ~idle) | (outside & (slack < 0.1 * gap**0.25))
            continue
        violated = outside & (slack < 0)
        if part.ray.isfinite().all() or not violated.any():  # of NaN, none is
            break
        value = (problem.h * a).sum().item()
        if value > highest:
            working, highest = equality | (working & (a[0] != 0)), value
        working = working | most_violated(slack, violated, max(ENTERING, len(index) // 4))
    return Candidate(part.W, a, ray)
