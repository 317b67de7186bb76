"""From tokens to rows: Att-SVM, and the parts of Gen-SVM."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.linalg import check_array
from attnsvm.svm.problem import EQUALITY, INEQUALITY, PADDING, SvmProblem, least

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def single_token(X: Tensor, Z: Tensor, selected: Tensor, mask: Tensor | None = None) -> SvmProblem:
    """Return Att-SVM:  (x_{i,alpha_i} - x_it)^T W z_i >= 1  for every admissible t != alpha_i.

    The problem (Att-SVM) of arXiv 2308.16898, equation (4), of tokens X (B, n, T, d) and queries Z
    (B, n, d), with the `selected` token alpha_i of each sample, (B, n), int64. The admissible
    tokens are `mask` (B, n, T), bool; all by default.
    """
    mask = checked_mask(X, Z, mask)
    if selected.dtype not in INTEGERS:
        raise ConfigError(f"selected: {selected.dtype}; must be integers")
    check_array("selected", selected, X.shape[:2], selected.dtype)
    if ((selected < 0) | (selected >= X.shape[2])).any():
        raise ConfigError(f"selected: must be >= 0 and < T = {X.shape[2]}")
    selected = selected.to(X.device).long()
    if not mask.gather(2, selected[..., None]).all():
        raise ConfigError("selected: every selected token must be admissible under mask")
    token, D, admissible = _differences(X, selected, mask)
    kind = torch.where(admissible, INEQUALITY, PADDING)
    return _problem(D, Z, kind.to(X), kind, token)


def multi_token(X: Tensor, Z: Tensor, attended: Tensor, mask: Tensor | None = None) -> SvmProblem:
    """Return the margin part of Gen-SVM: equal logits inside O_i, margin >= 1 to its complement.

    (x_it - x_iu)^T W z_i = 0 for t, u in O_i;  >= 1 for t in O_i, u outside. One reference token
    r_i in O_i suffices: by the equalities all of O_i has the same margins. The sets O_i are
    `attended` (B, n, T), bool, none of them empty. Section 6 of arXiv 2308.16898.
    """
    mask, attended = checked_mask(X, Z, mask), attended.to(X.device)
    check_array("attended", attended, X.shape[:3], torch.bool)
    if (attended & ~mask).any():
        raise ConfigError("attended: every attended token must be admissible under mask")
    if not attended.any(dim=2).all():
        raise ConfigError("attended: every sample must attend to a token")
    token, D, admissible = _differences(X, attended.to(torch.int8).argmax(dim=2), mask)
    inside = attended.gather(2, token) & admissible
    kind = torch.where(inside, EQUALITY, torch.where(admissible, INEQUALITY, PADDING))
    return _problem(D, Z, (kind == INEQUALITY).to(X), kind, token)


def finite_part(
    X: Tensor, Z: Tensor, attended: Tensor, log_softmax: Tensor, mask: Tensor | None = None
) -> SvmProblem:
    """Return the finite part of Gen-SVM:  (x_it - x_iu)^T W z_i = log(s_it / s_iu)  inside O_i.

    The sets O_i are `attended` (B, n, T), bool, none of them empty; log s_it is `log_softmax`
    (B, n, T), of which only the entries inside O_i are read.
    """
    rows = multi_token(X, Z, attended, mask)
    if log_softmax.shape != attended.shape or not log_softmax[attended].isfinite().all():
        raise ConfigError("log_softmax: must have the shape of attended, and finite numbers there")
    ratio = _log_ratios(log_softmax.to(X), attended.to(torch.int8).argmax(dim=2), rows)
    return replace(rows, h=ratio).keeping(rows.equality)


def attained(
    X: Tensor,
    Z: Tensor,
    selected: Tensor,
    attended: Tensor,
    log_softmax: Tensor,
    mask: Tensor | None = None,
) -> tuple[SvmProblem, Tensor]:
    """Return both parts of Gen-SVM as one problem, with the scale C of its right-hand sides.

    (x_{i,alpha_i} - x_it)^T W z_i = log(s_{i,alpha_i} / s_it) / C for t in O_i, >= 1 outside, where
    C = min over i and t outside O_i of log(s_{i,alpha_i} / s_it) > 0, (B,). A W with this softmax
    is C times a feasible point. The token of largest softmax alpha_i is `selected` (B, n), in O_i;
    for some sample of each instance O_i, `attended` (B, n, T), lacks an admissible token;
    `log_softmax` (B, n, T) is log s_it. Rows are in the order of `single_token`.
    """
    problem = single_token(X, Z, selected, mask)
    ratio = _log_ratios(log_softmax, selected, problem)
    inside = attended.gather(2, problem.token.reshape(*selected.shape, -1)).flatten(1)
    inside = inside & problem.inequality
    outside = problem.inequality & ~inside
    C = least(ratio, outside)
    h = torch.where(inside, ratio / C[:, None], outside.to(ratio))
    kind = torch.where(inside, EQUALITY, problem.kind).to(torch.int8)
    return replace(problem, h=h, kind=kind), C


def checked_mask(X: Tensor, Z: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask, all by default; ValueError for X, Z or mask that cannot be used."""
    if X.ndim != 4 or 0 in X.shape:
        raise ConfigError(f"X: shape {tuple(X.shape)}; must be (B, n, T, d), none of them zero")
    B, n, T, d = X.shape
    check_array("X", X, (B, n, T, d), torch.float64)
    check_array("Z", Z, (B, n, d), torch.float64)
    if mask is None:
        return torch.ones((B, n, T), dtype=torch.bool, device=X.device)
    check_array("mask", mask, (B, n, T), torch.bool)
    if not mask.any(dim=2).all():
        raise ConfigError("mask: every sample must have an admissible token")
    return mask.to(X.device)


def _log_ratios(log_softmax: Tensor, reference: Tensor, rows: SvmProblem) -> Tensor:
    """Return log(s_reference / s_other) of every row, (B, N)."""
    others = log_softmax.gather(2, rows.token.reshape(*reference.shape, -1))
    return (log_softmax.gather(2, reference[..., None]) - others).flatten(1)


def _differences(X: Tensor, reference: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the other tokens (B, n, T-1), x_reference - x_other, and which are admissible."""
    others = torch.arange(max(X.shape[2] - 1, 1), device=X.device)
    token = (others + (others >= reference[..., None])).clamp(max=X.shape[2] - 1)
    x_reference = X.gather(2, reference[..., None, None].expand(-1, -1, 1, X.shape[3]))
    x_other = X.gather(2, token[..., None].expand(-1, -1, -1, X.shape[3]))
    return token, x_reference - x_other, mask.gather(2, token) & (token != reference[..., None])


def _problem(D: Tensor, Z: Tensor, h: Tensor, kind: Tensor, token: Tensor) -> SvmProblem:
    D = torch.where((kind == PADDING)[..., None], 0.0, D)
    D, h, kind, token = (x.flatten(1, 2) for x in (D, h, kind.to(torch.int8), token))
    return SvmProblem(D, Z, h, kind, token)
