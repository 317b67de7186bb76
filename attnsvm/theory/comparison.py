"""Trained weights against solutions of the SVM: margin gap, directions of Gen-SVM."""

from typing import Any

import torch
from torch import Tensor

from attnsvm.linalg import own_settings, real, summed, unit
from attnsvm.svm import SvmSolution, SvmStatus
from attnsvm.svm.problem import least


@own_settings()
def svmeq(W: Any, W_fin: Any, W_mm: Any) -> Any:
    """Return W_fin + C W_mm with the C in [0, inf] that maximises its correlation with W.

    The best direction in the span of (W_fin, W_mm) is the projection p W_fin + q W_mm of W, so
    C = q / p where p > 0 and q >= 0. Elsewhere the supremum is at W_fin (C = 0) or at W_mm
    (C -> inf), whichever correlates more; a part that is zero (one token attended, or all of them)
    is not considered. Section 6 of arXiv 2308.16898.

    Parameters
    ----------
    W, W_fin, W_mm : Tensor or ndarray (..., d, d)
        Trained weights and the two parts of Gen-SVM; leading axes broadcast.

    Returns
    -------
    (..., d, d)
        Array type as `W`; p W_fin + q W_mm, that is the result up to a positive factor.
    """
    if not isinstance(W, Tensor):
        return svmeq(real("W", W), W_fin, W_mm).numpy()
    W, W_fin, W_mm = (
        real(name, V, W.device) for name, V in (("W", W), ("W_fin", W_fin), ("W_mm", W_mm))
    )
    p, q = _shares(W, W_fin, W_mm)
    return p * W_fin + q * W_mm


def svmeq_factor(W: Tensor, W_fin: Tensor, W_mm: Tensor) -> Tensor:
    """Return the C in [0, inf] of `svmeq`, (...); inf where W_mm alone agrees best.

    NaN where a matrix is not finite.
    """
    p, q = _shares(W, W_fin, W_mm)
    known = (_inner(W, W_fin) + _inner(W, W_mm) + _inner(W_fin, W_mm)).isfinite()
    return torch.where(known, q / p, torch.nan)[..., 0, 0]


def _shares(W: Tensor, W_fin: Tensor, W_mm: Tensor) -> tuple[Tensor, Tensor]:
    """Return p, q >= 0 of the p W_fin + q W_mm that correlates most with W, (..., 1, 1)."""
    a, b = _inner(W, W_fin), _inner(W, W_mm)
    f, m, c = _inner(W_fin, W_fin), _inner(W_mm, W_mm), _inner(W_fin, W_mm)
    p, q = a * m - b * c, b * f - a * c
    inside = (p > 0) & (q >= 0)
    to_fin = ~inside & (f > 0) & ((m == 0) | (a * m.sqrt() > b * f.sqrt()))
    p = torch.where(inside, p, to_fin.to(p))
    return p, torch.where(inside, q, (~to_fin).to(q))


def svmeq_least_squares(W: Tensor, W_fin: Tensor, W_mm: Tensor) -> Tensor:
    """Return W_fin + C W_mm with the C that minimises its distance to W, as published."""
    m = _inner(W_mm, W_mm)
    c = summed(lambda W, W_fin, W_mm: (W - W_fin) * W_mm, W, W_fin, W_mm)[..., None, None]
    C = torch.where(m > 0, c / m, 0.0)
    return W_fin + C * W_mm


def _inner(A: Tensor, B: Tensor) -> Tensor:
    return summed(torch.mul, A, B)[..., None, None]


@own_settings()
def margin_gap(W: Any, solution: SvmSolution[Any]) -> Any:
    """Return 1 - rho(W), which is zero exactly at the directions of the SVM in its norm.

    rho(W) = ||W_mm|| min_k d_k^T W z_k / ||W|| <= 1, with the norm of the SVM and its rows k. It is
    scale-free. Where the SVM has several solutions, they have different correlations with W, but
    one margin. Of the weighted SVM, and with given margins, d_k^T W z_k becomes
    (d_k^T W z_k + relief_k ||W||) / h_k, and rho(W) is at most
    1 + ||W_mm|| min_k d_k^T W z_k / ||W||, since no margin may be negative.

    Parameters
    ----------
    W : (B, d, d), or (d, d) for a single instance
        Tensor or array, as the solution.
    solution : SvmSolution
        Of `solve_svm` or `solve_rank_constrained`.

    Returns
    -------
    (B,)
        Array type as `W`, to the duality gap; NaN where the SVM is not solved, or W is zero or
        not finite.

    Raises
    ------
    ValueError
        If the SVM has equalities (Gen-SVM), which say more of W than its margin, or W has not a
        matrix for every instance.
    """
    if not isinstance(W, Tensor):
        return margin_gap(real("W", W), solution).numpy()
    W, problem = real("W", W), solution.problem.to(W.device)
    expected = tuple(solution.W.shape)
    if tuple(W.shape) != expected:
        raise ValueError(f"W: shape {tuple(W.shape)}; must be that of the solution, {expected}")
    if problem.equality.any():
        raise ValueError("solution: has equalities; must be of solve_svm, not of Gen-SVM")
    matrices = unit(W.reshape(-1, *W.shape[-2:])).nan_to_num(0.0)  # then 0 / 0 is NaN
    size = solution.minimised.value(matrices)
    margins = problem.margins(matrices)
    norm = real("objective", solution.objective, W.device).reshape(-1)
    relieved = margins if problem.relief is None else margins + problem.relief * size[:, None]
    relative = least(relieved / problem.h, problem.separating)
    lowest = least(margins, problem.inequality)
    rho = torch.minimum(norm * relative / size, 1 + norm * lowest / size)
    solved = solution.having(SvmStatus.solved).to(W.device)
    gap = torch.where(solved, 1 - rho, torch.nan)
    return gap.reshape(W.shape[:-2])
