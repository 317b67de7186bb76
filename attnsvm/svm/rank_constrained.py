r"""Att-SVM with rank(W) <= m < d, the limit of training K, Q with m columns.

    min ||W||_*  s.t.  d_k^T W z_k >= 1,  rank(W) <= m     (equation (Att-SVM*) of arXiv 2308.16898)

is not convex. Its relaxation, without the rank, is the nuclear-norm SVM: where that has a solution
of rank <= m the constrained problem is solved as well. Elsewhere the relaxation bounds the norm
from below, and alternating minimisation over W = K Q^T gives the best point found:

    ||W||_* = min (||K||_F^2 + ||Q||_F^2) / 2,

and for fixed Q the least ||K||_F is a Frobenius SVM with queries Q^T z_k, for fixed K alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnsvm.svm.certificate import upper_bound
from attnsvm.svm.constraints import SvmProblem
from attnsvm.svm.frobenius import solve_frobenius
from attnsvm.svm.scaling import times_power, to_unit_size
from attnsvm.svm.solution import SvmSolution
from attnsvm.svm.threads import one_thread

ROUNDS = 40
STARTS = 4
STALLED = 1e-8


@dataclass(frozen=True)
class RankConstrainedSolution:
    """The best W of rank <= m found for each instance, and how far it is from the least norm.

    Attributes
    ----------
    W : (B, d, d)
        NaN where no feasible W of rank <= m was found (which proves nothing).
    objective : (B,)
        ||W||_*; inf where there is no W.
    lower_bound : (B,)
        That of the relaxation: no feasible W, whatever its rank, has a smaller norm.
    gap : (B,)
        objective / lower_bound - 1.
    exact : (B,) bool
        The certified solution of the relaxation has rank <= m: nothing is lost.
    relaxation : SvmSolution
        The nuclear-norm solution; its status says whether the instance is feasible at all.
    """

    W: Any
    objective: Any
    lower_bound: Any
    gap: Any
    exact: Any
    relaxation: SvmSolution


@one_thread()
def solve_rank_constrained(
    problem: SvmProblem, relaxation: SvmSolution, m: int, seed: int = 0
) -> RankConstrainedSolution:
    """Return the best points of rank <= m, from the solved `relaxation` of `problem` (batched).

    Starts are the relaxation's leading m singular directions and seeded perturbations of them.
    """
    if not 1 <= m <= problem.d:
        raise ValueError(f"m={m}: allowed is 1 <= m <= d = {problem.d}")
    solved = torch.tensor([status == "solved" for status in relaxation.status])
    solved = solved.to(problem.D.device)
    exact = solved & (relaxation.rank <= m) & (relaxation.rank >= 0)
    W = torch.where(exact[:, None, None], relaxation.W, torch.nan)
    objective = torch.where(exact, relaxation.objective, torch.inf)
    open_ = (solved & ~exact).nonzero()[:, 0]
    if open_.numel():
        scaled, exponent, _ = to_unit_size(problem.take(open_))
        relaxed = times_power(relaxation.W[open_], -exponent)
        found, value = _best_found(scaled, relaxed, m, seed)
        W[open_], objective[open_] = times_power(found, exponent), times_power(value, exponent)
    gap = objective / relaxation.lower_bound - 1
    return RankConstrainedSolution(W, objective, relaxation.lower_bound, gap, exact, relaxation)


def _best_found(problem: SvmProblem, relaxed: Tensor, m: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the best W of rank <= m over all starts, NaN where none, and ||W||_*, else inf."""
    W, objective = torch.full_like(relaxed, torch.nan), torch.full_like(relaxed[:, 0, 0], torch.inf)
    generator = torch.Generator().manual_seed(seed)
    for start in range(STARTS):
        noise = torch.randn(relaxed.shape, generator=generator, dtype=torch.float64).to(relaxed)
        found = _alternate(problem, _right_factor(relaxed, noise * (start / STARTS), m))
        value = upper_bound(problem, found, "nuclear")
        better = value < objective
        W[better], objective[better] = found[better], value[better]
    return W, objective


def _right_factor(W: Tensor, noise: Tensor, m: int) -> Tensor:
    """Return Q (B, d, m) of the leading m singular directions of the perturbed W."""
    scale = W.flatten(1).norm(dim=1)[:, None, None] / W.shape[1]
    _, sigma, Vh = torch.linalg.svd(W + scale * noise)
    Q: Tensor = Vh[:, :m].mT * sigma[:, None, :m].sqrt()
    return Q


def _alternate(problem: SvmProblem, Q: Tensor) -> Tensor:
    """Return W = K Q^T after minimising over K and Q in turn; NaN where a start fails."""
    W: Tensor = Q.new_full((problem.B, problem.d, problem.d), torch.nan)
    alive, last = torch.arange(problem.B, device=Q.device), Q.new_full((problem.B,), torch.inf)
    for _ in range(ROUNDS):
        part = problem.take(alive)
        K = _least_factor(part, part.D, part.queries @ Q)
        K, Q = _balanced(K, Q)
        Q = _least_factor(part, part.queries, part.D @ K)
        K, Q = _balanced(K, Q)
        W[alive] = K @ Q.mT
        value = (K.square().sum(dim=(1, 2)) + Q.square().sum(dim=(1, 2))) / 2
        moving = (last - value > STALLED * value).nonzero()[:, 0]  # a failed start is NaN
        if not moving.numel():
            break
        alive, last, Q = alive[moving], value[moving], Q[moving]
    return W


def _least_factor(problem: SvmProblem, left: Tensor, right: Tensor) -> Tensor:
    """Return argmin ||K||_F  s.t.  left_k^T K right_k >= h_k, (B, d, m); NaN where infeasible."""
    finite = right.isfinite().all(dim=(1, 2))
    right = torch.where(finite[:, None, None], right, 0.0)
    rows = SvmProblem(left, right, problem.h, problem.kind, problem.token)
    K: Tensor = solve_frobenius(rows).W
    margins = torch.where(rows.inequality, rows.margins(K), torch.inf)
    feasible = finite & (margins.amin(dim=1) > 0)
    K[~feasible] = torch.nan
    return K


def _balanced(K: Tensor, Q: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors of K Q^T of least ||K||_F^2 + ||Q||_F^2: singular values shared equally."""
    m = K.shape[2]
    known = (K.isfinite() & Q.isfinite()).all(dim=2).all(dim=1)[:, None, None]
    U, sigma, Vh = torch.linalg.svd(torch.where(known, K @ Q.mT, 0.0))
    root = sigma[:, None, :m].sqrt()
    return (
        torch.where(known, U[:, :, :m] * root, torch.nan),
        torch.where(known, Vh[:, :m].mT * root, torch.nan),
    )
