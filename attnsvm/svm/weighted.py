r"""SVMs whose rows require different margins: given ones, or ones that depend on norm(W).

With offsets gamma_i of the samples, e_k = gamma_i - min_j gamma_j >= 0 of the row k of sample i
(the least over samples that have a row), and a ratio r, the weighted SVM is

    max  min_k <A_k, W> + r gamma_i   s.t.  norm(W) <= 1,  <A_k, W> >= 0,      A_k = d_k z_k^T.

Its value c and solution are those of

    Wbar = argmin norm(W)  s.t.  <A_k, W> >= max(0, c - r gamma_i),   c such that norm(Wbar) = 1:

let F(c) be the least norm. F is convex, zero up to c = r min gamma, and hence increases beyond it;
a W with norm(W) <= 1 and value c exists exactly if F(c) <= 1. Scaled to margin one for the least
offset, W = Wbar / (c - r min gamma), the problem is

    min norm(W)  s.t.  <A_k, W> >= max(0, 1 - r e_k norm(W)),        relief_k = r e_k,

and 1 / norm(W) = c - r min gamma. So r = 0 is Att-SVM. As r -> inf, the right-hand sides become one
where e_k = 0, else zero: the relaxed SVM of arXiv 2306.13596. It is the law of joint training. If F
jumps from less than one to infinity, which needs rows that nothing separates, there is no such c.

Let N(L) be the least norm with the fixed right-hand sides max(0, 1 - r e_k L). It is convex and
decreasing, and the solution has N(L) = L. The multipliers of any N(L) prove a lower bound of it
(`certificate.lower_bound`), which is at least Newton's next iterate; from L = 0 these bounds
increase to the solution.
"""

from dataclasses import replace

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.norm import Norm
from attnsvm.svm.certificate import bounds
from attnsvm.svm.problem import SvmProblem, least
from attnsvm.svm.solution import Candidate, Method
from attnsvm.svm.tolerances import CONVERGED_GAP, TIGHT

ROUNDS = 60


def with_margins(problem: SvmProblem, margins: Tensor) -> SvmProblem:
    """Return Att-SVM with these right-hand sides, (B, N), instead of ones."""
    if len(wrong := margins[(margins != 0) & ~((margins >= 1e-100) & (margins <= 1e100))]):
        raise ConfigError(f"margins: {float(wrong[0])}; must be 0, or >= 1e-100 and <= 1e100")
    return replace(problem, h=torch.where(problem.inequality, margins, 0.0))


def with_offsets(problem: SvmProblem, offsets: Tensor, ratio: Tensor) -> SvmProblem:
    """Return the weighted SVM of Att-SVM with offsets (B, n) and ratios (B,)."""
    if ratio.shape not in ((), (1,), (problem.B,)):
        raise ConfigError(f"ratio: shape {tuple(ratio.shape)}; must be one number, or (B,)")
    if not (ratio >= 0).all():
        raise ConfigError(f"ratio={ratio.tolist()}: must be >= 0, inf allowed")
    ratio = ratio.expand(problem.B)[:, None]
    rows = problem.inequality.reshape(problem.B, problem.n, -1)
    above = (offsets - least(offsets, rows.any(dim=2))[:, None])[:, problem.sample]
    above = torch.where(problem.inequality, above, 0.0)
    infinite = ratio.isinf()
    h = torch.where(infinite & (above > 0), 0.0, problem.h)
    relief = torch.where(infinite | (above == 0), 0.0, ratio * above)
    return replace(problem, h=h, relief=relief if relief.any() else None)


def weighted(method: Method, norm: Norm, problem: SvmProblem) -> Candidate:
    """Return the candidate for right-hand sides other than one, or with relief, by `method`.

    `method` solves problems with fixed right-hand sides. Where Att-SVM is infeasible, the rounds
    start from the right-hand sides of norm(W) = inf, and only the ray of those is returned: it is
    one for every norm(W).
    """
    if problem.relief is None:
        candidate = method(problem)
        return candidate._replace(W=_lifted(method, problem, candidate.W))
    plain = method(problem.with_unit_rhs)
    W, a = plain.W.clone(), plain.multipliers.clone()
    ray = torch.full_like(a, torch.nan)
    upper, lower = bounds(problem, W, a, norm)
    level = torch.where(least(problem.margins(W), problem.inequality) > 0, lower, torch.inf)
    enough = TIGHT if norm.is_hilbert else CONVERGED_GAP
    at = torch.arange(problem.B, device=W.device)
    for _ in range(ROUNDS):
        at = at[~(upper[at] <= (1 + enough) * lower[at])]
        if not at.numel():
            break
        part = problem.take(at)
        fixed = part.at_norm(level[at])
        candidate = method(fixed)
        clipped, V = level[at].isinf(), _lifted(method, fixed, candidate.W)
        above, below = bounds(part, V, candidate.multipliers, norm)
        ray[at] = torch.where(clipped[:, None], candidate.ray, ray[at])
        nearer, higher = above < upper[at], below > lower[at]
        W[at[nearer]], upper[at[nearer]] = V[nearer], above[nearer]
        a[at[higher]], lower[at[higher]] = candidate.multipliers[higher], below[higher]
        at = at[higher]
        level[at] = lower[at]
    return Candidate(W, a, ray)


def _lifted(method: Method, problem: SvmProblem, W: Tensor) -> Tensor:
    """Return W with margins that are certain also in rows of small right-hand sides."""
    index = problem.blurred(W).any(dim=1).nonzero()[:, 0]
    if index.numel():
        part = problem.take(index)
        W[index] = part.with_clear_margins(W[index], method(part.with_unit_rhs).W)
    return W
