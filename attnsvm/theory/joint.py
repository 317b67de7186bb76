r"""The law of joint training: the direction of W where a linear head v is trained with it.

Let o_i be the token that sample i selects, A_it = (x_io - x_it) z_i^T, vbar the unit classifier of
the selected tokens of largest margin, gamma_i = Y_i vbar^T x_io, and r = lim ||v|| / norm(W). Then

    Wbar = argmin norm(W)  s.t.  <A_it, W> >= max(0, c - r gamma_i),   c such that norm(Wbar) = 1,

the weighted SVM of `solve_svm` with offsets gamma and ratio r. r = 0 is Att-SVM, r = inf the
relaxed SVM of arXiv 2306.13596. The ratio follows from the rule of the steps (`ratio_of_steps`,
`growing_ratio`).
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnsvm.data.problem import ProblemBatch
from attnsvm.optimizer import GD, FirstOrder, NormalizedGD, Optimizer
from attnsvm.parameterization import Parameterization, W
from attnsvm.svm import SvmSolution, SvmStatus, solve_svm

SAME_RATIO, ROUNDS = 1e-6, 40
"""Relative difference of a ratio and its image at a solution, and how often it is tried."""


def max_margin_head(batch: ProblemBatch, selected: Tensor, **options: Any) -> SvmSolution[Tensor]:
    """Return the SVM  min ||v||  s.t.  Y_i v^T x_{i,alpha_i} >= 1,  as matrices W = v e_1^T.

    It has two tokens, Y_i x_{i,alpha_i} and 0, and the query e_1. `options` are gap and
    rank_tolerance of `solve_svm`.
    """
    chosen = batch.X.take_along_dim(selected[..., None, None], 2)
    tokens = batch.Y[..., None, None] * chosen
    query = torch.zeros_like(batch.Z)
    query[..., 0] = 1.0
    both = torch.cat([tokens, torch.zeros_like(tokens)], 2)
    return solve_svm(both, query, torch.zeros_like(selected), **options)


def head_margins(head: SvmSolution[Tensor]) -> Tensor:
    """Return gamma_i = Y_i vbar^T x_{i,alpha_i}, (B, n), of `max_margin_head`; NaN without one.

    Those of the support vectors are equal in every bit.
    """
    least = 1 / head.objective[:, None]
    gamma = torch.where(head.support[..., 1], least, head.problem.margins(head.W) * least)
    solved = head.having(SvmStatus.solved).to(gamma.device)
    return torch.where(solved[:, None], gamma, torch.nan)


def law(
    batch: ProblemBatch, selected: Tensor, offsets: Tensor, ratio: Tensor, norm: str, **options: Any
) -> SvmSolution[Tensor]:
    """Return the law of offsets gamma (B, n) and ratios (B,) at the selected tokens (B, n)."""
    arguments = batch.X, batch.Z, selected, norm, batch.mask
    return solve_svm(*arguments, offsets=offsets, ratio=ratio, **options)


def weights(gamma: Tensor, ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Return offsets and ratio of the law; zeros, for Att-SVM, where gamma or ratio is NaN."""
    known = ~(gamma.isnan().any(1) | ratio.isnan())
    return torch.where(known[:, None], gamma, 0.0), torch.where(known, ratio, 0.0)


def boundary(
    batch: ProblemBatch, gamma: Tensor, ratio: Tensor, solution: SvmSolution[Tensor]
) -> Tensor:
    """Return min_i |c - r gamma_i| / (c - r min gamma) of the law at these ratios, (B,).

    A sample with r gamma_i > c needs no margin: its selected token may change for ever. Near zero
    it is not certain which samples these are. NaN where the law is not solved.
    """
    separated = batch.mask.sum(-1) > 1
    least = torch.where(separated, gamma, torch.inf).amin(1)
    taken = (ratio * solution.objective)[:, None] * (gamma - least[:, None])
    nearest = (1 - taken).abs().masked_fill(~separated, torch.inf).amin(1)
    return nearest.masked_fill(~nearest.isfinite(), torch.nan)


# --- the ratio r ----------------------------------------------------------------------------------


def ratio_of_steps(optimizer: Optimizer, rule: Parameterization, rate: float) -> float | None:
    """Return r by the step rule; NaN where it is not known, None for `growing_ratio`.

    `rate` is the size of the steps of v as a share of those of W (`Head.rate`). Normalised steps
    that do not grow: r = rate. Gradient descent: ||W|| grows like log ||v||, r = inf. Factors
    K, Q by normalised steps: ||K Q^T|| grows like ||v||^2, r = 0.
    """
    if not isinstance(optimizer, FirstOrder):
        return math.nan
    if optimizer.ridge or optimizer.weight_decay or optimizer.batch:
        return math.nan
    if type(optimizer) is GD:
        return math.inf if isinstance(rule, W) else math.nan
    growing = optimizer.schedule if optimizer.growth else ""
    if type(optimizer) is not NormalizedGD or growing == "geometric":
        return math.nan
    if not isinstance(rule, W):
        return 0.0
    return None if growing == "linear" else rate


def alignment(solution: SvmSolution[Tensor]) -> Tensor:
    """Return ||sum_k a_k d_k z_k^T||_F / sum_k a_k ||d_k|| ||z_k|| of the multipliers a, (B,).

    It is the length of a path of steps along the rows, from end to end as a share of all steps.
    """
    problem, a = solution.problem, solution.certificate.multipliers
    return problem.combine(a).norm(dim=(1, 2)) / (problem.scale * a).sum(1)


def growing_ratio(
    head: SvmSolution[Tensor], rate: float, law: Callable[..., SvmSolution[Tensor]], **options: Any
) -> Tensor:
    """Return the ratio r of normalised steps that grow linearly, (B,); NaN where none is found.

    Of these steps one row owns each. So ||v|| and ||W|| are the lengths of all steps times the
    `alignment` rho of the head and of the law, and r = rate rho_v / rho_W(r), solved by secants
    within a bracket. `head` is of `max_margin_head`, `rate` as in `ratio_of_steps`; `law` takes
    ratios (B,) and `options`.
    """

    def image_of(ratio: Tensor) -> Tensor:
        return rate * alignment(head) / alignment(law(ratio, **options))

    ratio = torch.full_like(head.objective, rate)
    after = image = image_of(ratio)
    low, high = torch.zeros_like(ratio), torch.full_like(ratio, torch.inf)
    for _ in range(ROUNDS):
        open_ = (image - ratio).abs() > SAME_RATIO * ratio
        if not (open_ & image.isfinite()).any():
            break
        low = torch.where(image > ratio, torch.maximum(low, ratio), low)
        high = torch.where(image < ratio, torch.minimum(high, ratio), high)
        after = torch.where((after > low) & (after < high), after, image)
        before = ratio, image
        ratio = torch.where(open_ & image.isfinite(), after, ratio)
        image = image_of(ratio)
        slope = (image - before[1]) / (ratio - before[0])
        after = ratio + (image - ratio) / (1 - slope)
    return torch.where((image - ratio).abs() <= SAME_RATIO * ratio, ratio, torch.nan)
