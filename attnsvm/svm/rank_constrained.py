r"""Att-SVM with rank(W) <= m < d, the limit of training K, Q with m columns.

    min ||W||_*  s.t.  d_k^T W z_k >= 1,  rank(W) <= m     (equation (Att-SVM*) of arXiv 2308.16898)

is not convex. Its relaxation, without the rank, is the nuclear-norm SVM. A solution of it with
rank <= m also solves the constrained problem. Otherwise the relaxation bounds the norm from below,
and alternating minimisation over W = K Q^T gives the best point found:

    ||W||_* = min (||K||_F^2 + ||Q||_F^2) / 2.

For fixed Q the least ||K||_F is a Frobenius SVM with queries Q^T z_k, and likewise for fixed K.
"""

import torch
from torch import Tensor

from attnsvm.linalg.decompositions import thin_svd
from attnsvm.svm.certificate import bounds
from attnsvm.svm.frobenius.pivoting import by_size
from attnsvm.svm.problem import SvmProblem, frobenius, least
from attnsvm.svm.solution import Candidate, Judge, Method
from attnsvm.svm.tolerances import ROUND_DECREASE

ROUNDS = 40
STARTS = 4
SEED = 0
"""Of the perturbations; every instance gets the same, so its result does not depend on others."""


def of_rank(problem: SvmProblem, m: int, relaxation: Method, judge: Judge) -> Candidate:
    """Return the relaxation's solution where its rank is at most m, else the best W of rank m.

    W is NaN where none is found. `judge` certifies the nuclear-norm solution of `relaxation`.
    Multipliers and rays are those of the relaxation: no W of any rank has a smaller norm than their
    bound, and where no W of any rank is feasible, none of rank m is.
    """
    relaxed = relaxation(problem)
    verdict = judge(problem, relaxed)
    solved = torch.tensor([status in ("solved", "unconstrained") for status in verdict.statuses])
    solved = solved.to(problem.D.device)
    exact = solved & (verdict.rank <= m) & (verdict.rank >= 0)
    W = torch.where(exact[:, None, None], verdict.W, torch.nan)
    rest = (solved & ~exact).nonzero()[:, 0]
    if rest.numel():
        a = relaxed.multipliers[rest]
        W[rest] = _best_of_rank(problem.take(rest), m, verdict.W[rest], a)
    return Candidate(W, relaxed.multipliers, relaxed.ray)


def _best_of_rank(problem: SvmProblem, m: int, relaxed: Tensor, a: Tensor) -> Tensor:
    """Return the best W = K Q^T of several alternating minimisations, (B, p, q); NaN where none.

    The starts are the leading m singular directions of `relaxed`, of multipliers a, perturbed.
    """
    W = torch.full_like(relaxed, torch.nan)
    value = torch.full_like(relaxed[:, 0, 0], torch.inf)
    generator = torch.Generator().manual_seed(SEED)
    scale = frobenius(relaxed)[:, None, None] / problem.d
    for start in range(STARTS):
        noise = torch.randn(W.shape[1:], generator=generator, dtype=torch.float64).to(W)
        _, sigma, directions = thin_svd(relaxed + scale * (noise * (start / STARTS)))
        V = _alternate(problem, directions[:, :, :m] * sigma[:, None, :m].sqrt())
        upper, _ = bounds(problem, V, a, "nuclear")
        better = upper < value
        W[better], value[better] = V[better], upper[better]
    return W


def _alternate(problem: SvmProblem, Q: Tensor) -> Tensor:
    """Return W = K Q^T after minimising over K and Q in turn; NaN where a start fails."""
    W: Tensor = Q.new_full((problem.B, *problem.size), torch.nan)
    alive, last = torch.arange(problem.B, device=Q.device), Q.new_full((problem.B,), torch.inf)
    for _ in range(ROUNDS):
        part = problem.take(alive)
        K = _least_factor(part, part.D, part.queries @ Q)
        K, Q = _balanced(K, Q)
        Q = _least_factor(part, part.queries, part.D @ K)
        K, Q = _balanced(K, Q)
        W[alive] = K @ Q.mT
        value = (K.square().sum(dim=(1, 2)) + Q.square().sum(dim=(1, 2))) / 2
        moving = (last - value > ROUND_DECREASE * value).nonzero()[:, 0]  # a failed start is NaN
        if not moving.numel():
            break
        alive, last, Q = alive[moving], value[moving], Q[moving]
    return W


def _least_factor(problem: SvmProblem, left: Tensor, right: Tensor) -> Tensor:
    """Return argmin ||K||_F  s.t.  left_k^T K right_k >= h_k, (B, p, m); NaN where infeasible."""
    finite = right.isfinite().all(dim=(1, 2))
    right = torch.where(finite[:, None, None], right, 0.0)
    rows = SvmProblem(left, right, problem.h, problem.kind, problem.token)
    K: Tensor = by_size(rows).W
    K[~(finite & (least(rows.margins(K), rows.inequality) > 0))] = torch.nan
    return K


def _balanced(K: Tensor, Q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors of K Q^T of least ||K||_F^2 + ||Q||_F^2, with equal singular values.

    NaN where K or Q is not finite.
    """
    m = K.shape[2]
    U, sigma, V = thin_svd(K @ Q.mT)
    root = sigma[:, None, :m].sqrt()
    return U[:, :, :m] * root, V[:, :, :m] * root
