r"""Att-SVM with rank(W) <= m < d, the limit of training K, Q with m columns.

    min ||W||_*  s.t.  d_k^T W z_k >= 1,  rank(W) <= m     (equation (Att-SVM*) of arXiv 2308.16898)

is not convex. Its relaxation, without the rank, is the nuclear-norm SVM. A solution of it with
rank <= m also solves the constrained problem. Otherwise the relaxation bounds the norm from below,
and alternating minimisation over W = K Q^T gives the best point found:

    ||W||_* = min (||K||_F^2 + ||Q||_F^2) / 2.

For fixed Q the least ||K||_F is a Frobenius SVM with queries Q^T z_k, and likewise for fixed K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from attnsvm.linalg import one_thread
from attnsvm.svm.certificate import upper_bound
from attnsvm.svm.frobenius import LeastDistance
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.scaling import times_power, to_unit_size
from attnsvm.svm.solution import ArrayT, Candidate, SvmSolution
from attnsvm.svm.solver import Solver

ROUNDS = 40
STARTS = 4
STALLED = 1e-8  # a start ends when a round lowers the value by less than this, relatively


@dataclass(frozen=True)
class RankConstrainedSolution(Generic[ArrayT]):
    """The best W of rank <= m found for each instance, and how far it is from the least norm.

    Attributes
    ----------
    W : (B, d, d)
        NaN where no feasible W of rank <= m was found (one may still exist).
    objective : (B,)
        ||W||_*; inf where there is no W.
    lower_bound : (B,)
        That of the relaxation: no feasible W of any rank has a smaller norm.
    gap : (B,)
        objective / lower_bound - 1.
    exact : (B,) bool
        The certified solution of the relaxation has rank <= m, so it is the solution.
    relaxation : SvmSolution
        The nuclear-norm solution; its status shows whether the instance is feasible.
    """

    W: ArrayT
    objective: ArrayT
    lower_bound: ArrayT
    gap: ArrayT
    exact: ArrayT
    relaxation: SvmSolution[ArrayT]


class AlternatingFactors(Solver):
    """The best of several alternating minimisations over W = K Q^T with K, Q of shape (d, m).

    Parameters
    ----------
    m : int
        Columns of K and Q.
    relaxed : Tensor (B, d, d)
        Solutions of the relaxation. Starts are its leading m singular directions, perturbed.
    seed : int
        Seed of the perturbations.
    """

    norm = "nuclear"

    def __init__(self, m: int, relaxed: Tensor, seed: int = 0) -> None:
        self.m, self.relaxed, self.seed = m, relaxed, seed

    def candidates(self, problem: SvmProblem) -> Candidate:
        """Return the best W of rank <= m over all starts; NaN where none. There is no bound."""
        W = torch.full_like(self.relaxed, torch.nan)
        value = torch.full_like(self.relaxed[:, 0, 0], torch.inf)
        generator = torch.Generator().manual_seed(self.seed)
        for start in range(STARTS):
            noise = torch.randn(W.shape, generator=generator, dtype=torch.float64).to(W)
            Q = _right_factor(self.relaxed, noise * (start / STARTS), self.m)
            found = _alternate(problem, Q)
            upper = upper_bound(problem, found, "nuclear")
            better = upper < value
            W[better], value[better] = found[better], upper[better]
        nothing = torch.full_like(problem.h, torch.nan)
        return Candidate(W, nothing, nothing)


def rank_constrained(
    problem: SvmProblem, relaxation: SvmSolution[Tensor], m: int, seed: int = 0
) -> RankConstrainedSolution[Tensor]:
    """Return the best points of rank <= m, from the solved `relaxation` of `problem` (batched)."""
    solved = torch.tensor([status == "solved" for status in relaxation.statuses])
    solved = solved.to(problem.D.device)
    exact = solved & (relaxation.rank <= m) & (relaxation.rank >= 0)
    W = torch.where(exact[:, None, None], relaxation.W, torch.nan)
    objective = torch.where(exact, relaxation.objective, torch.inf)
    open_ = (solved & ~exact).nonzero()[:, 0]
    if open_.numel():
        scaled, exponent, _ = to_unit_size(problem.take(open_))
        relaxed = times_power(relaxation.W[open_], -exponent)
        with one_thread():
            found = AlternatingFactors(m, relaxed, seed).candidates(scaled).W
            value = upper_bound(scaled, found, "nuclear")
        W[open_], objective[open_] = times_power(found, exponent), times_power(value, exponent)
    gap = objective / relaxation.lower_bound - 1
    return RankConstrainedSolution(W, objective, relaxation.lower_bound, gap, exact, relaxation)


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
    K: Tensor = LeastDistance().candidates(rows).W
    margins = torch.where(rows.inequality, rows.margins(K), torch.inf)
    feasible = finite & (margins.amin(dim=1) > 0)
    K[~feasible] = torch.nan
    return K


def _balanced(K: Tensor, Q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors of K Q^T of least ||K||_F^2 + ||Q||_F^2, with equal singular values."""
    m = K.shape[2]
    known = (K.isfinite() & Q.isfinite()).all(dim=2).all(dim=1)[:, None, None]
    U, sigma, Vh = torch.linalg.svd(torch.where(known, K @ Q.mT, 0.0))
    root = sigma[:, None, :m].sqrt()
    return (
        torch.where(known, U[:, :, :m] * root, torch.nan),
        torch.where(known, Vh[:, :m].mT * root, torch.nan),
    )
