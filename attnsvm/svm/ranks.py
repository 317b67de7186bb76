"""What is proved about the rank of a solution."""

import torch
from torch import Tensor

from attnsvm.norm import Norm
from attnsvm.svm import tolerances
from attnsvm.svm.problem import SvmProblem


def decided_rank(sigma: Tensor, tolerance: float, bound: Tensor | None) -> Tensor:
    """Return how many singular values are above tolerance * sigma_1, (B,); -1 where undecided.

    That is where one is near to this threshold, or where another W of the same norm may have more:
    the `bound` is larger, and the next one is not zero up to rounding.
    """
    below = max(tolerance / 10, tolerance - tolerances.NEAR)
    cuts = tolerance + tolerances.NEAR, tolerance, below, min(below, tolerances.ROUNDING)
    few, rank, many, nonzero = ((sigma > cut * sigma[:, :1]).sum(dim=1) for cut in cuts)
    undecided = few != many
    if bound is not None:
        undecided |= torch.minimum(bound, nonzero) > rank
    return torch.where(undecided, -1, rank)


def rank_bound(
    problem: SvmProblem,
    sigma_dual: Tensor,
    slack: Tensor,
    norm: Norm,
    trivial: Tensor,
    known: Tensor,
) -> Tensor:
    """Return an upper bound of the numerical rank of every optimal W, (B,); -1 where unknown.

    Nuclear: let c = rank_tolerance * sigma_1 of the W found, slack = (upper - lower) / c. Any
    feasible V with ||V||_* <= upper, be it W or an optimum, has at most
    #{i: sigma_i(M(a)) >= 1 - slack} singular values above c. Indeed, if there are r of them,

        upper - lower >= ||V||_* - <M(a), V> = sum_i sigma_i(V) (1 - u_i^T M(a) v_i)
                      >= c (r - sum_{i <= r} sigma_i(M(a)))  (Ky Fan),

    so that sigma_r(M(a)) >= 1 - slack. Frobenius: the row space of W lies in the span of the
    queries, rank <= min(n, d) (Lemma 1 of arXiv 2308.16898). Other norms: unknown.
    """
    least = min(problem.size) if problem.shape else min(problem.n, *problem.size)
    of_queries = least if norm.is_hilbert else -1
    bound = torch.full_like(trivial, of_queries, dtype=torch.int64)
    if norm.bounds_rank:
        bound = (sigma_dual >= 1 - slack[:, None]).sum(dim=1)
        known = known & (slack < 1)
    return torch.where(trivial, 0, torch.where(known, bound, -1))
