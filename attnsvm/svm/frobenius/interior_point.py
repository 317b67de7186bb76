r"""Frobenius duals of a whole batch at once, on the device of its tensors (made for GPUs).

The non-negative least-squares problem of `least_distance`, by its normal equations,

    min_u u^T A u / 2 - h^T u,   u_k >= 0 on inequalities, free on equalities,   A = K + h h^T,

is bounded and strictly feasible whether or not the SVM is feasible. Mehrotra's predictor-corrector
method (SIAM J. Optim. 2, 1992) follows A u - h = s, u_k s_k = nu -> 0 with one batched Cholesky
factor of A + diag(s / u) a step, and gives the support {k : u_k > s_k}; block principal pivoting
then solves K_PP a_P = h_P to the last digit. The host waits for the device only at a test every few
steps. As in `active_set`, an instance whose bracket is not tight is solved again from its rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.svm.problem import EQUALITY, INEQUALITY, PADDING
from attnsvm.svm.tolerances import MAX_GRAM_NORM, TIGHT

MAX_STEPS = 48
TEST_EVERY = 6
CONVERGED = 1e-14  # mean of u_k s_k at which the method stops; h^T u is at most one
BOUNDARY = 0.99
PIVOTS = 6
RIDGE = 1e-12  # equal rows leave K_PP singular; refinement removes the ridge's error
REFINEMENTS = 2


def solve_batch(K: Tensor, h: Tensor, kind: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same as `active_set.solve_batch`, on the tensors' device; h of size about one."""
    return _pivoted(K, h, kind, _likely_support(K, h, kind))


def _likely_support(K: Tensor, h: Tensor, kind: Tensor) -> Tensor:
    """Return where u_k > s_k at the end of the central path, (B, N); equalities always."""
    inequality = kind == INEQUALITY
    count = inequality.sum(dim=1).clamp(min=1)
    A = K + h[:, :, None] * h[:, None, :] + torch.diag_embed((kind == PADDING).to(K))
    total = torch.where(inequality, h, 0.0).sum(dim=1, keepdim=True)
    u = torch.where(inequality, 0.5 / torch.where(total > 0, total, 1.0), 0.0)
    s = torch.where(inequality, _times(A, u) - h, 0.0)
    s = torch.where(inequality, s.clamp(min=0.1), 0.0)
    for step in range(MAX_STEPS):
        u, s = _step(A, h, inequality, count, u, s)
        if step % TEST_EVERY == TEST_EVERY - 1 and ((u * s).sum(dim=1) <= CONVERGED * count).all():
            break
    return (inequality & (u > s)) | (kind == EQUALITY)


def _step(
    A: Tensor, h: Tensor, inequality: Tensor, count: Tensor, u: Tensor, s: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the next u, s; unchanged for an instance whose system cannot be factored.

    A du - ds = h - A u + s and s du + u ds = nu - u s - du_p ds_p, where _p is the predictor
    (nu = 0), and nu = (mu_p / mu)^3 mu afterwards, mu the mean of u_k s_k.
    """
    safe_u = torch.where(inequality, u, 1.0)
    L, info = torch.linalg.cholesky_ex(A + torch.diag_embed(s / safe_u + RIDGE))
    residual = h - _times(A, u) + s
    mu = (u * s).sum(dim=1) / count
    product = -u * s
    du, ds = _direction(L, residual, product, safe_u, s, inequality)
    alpha, beta = _length(u, du, inequality), _length(s, ds, inequality)
    ahead = ((u + alpha * du) * (s + beta * ds)).sum(dim=1) / count
    nu = (ahead / mu).clamp(0.0, 1.0) ** 3 * mu
    product = torch.where(inequality, product + nu[:, None] - du * ds, 0.0)
    du, ds = _direction(L, residual, product, safe_u, s, inequality)
    t = torch.minimum(_length(u, du, inequality), _length(s, ds, inequality))  # A u - h = s: one t
    new_u, new_s = u + BOUNDARY * t * du, s + BOUNDARY * t * ds
    sound = (info == 0) & (mu > 0) & (new_u + new_s).isfinite().all(dim=1)
    return torch.where(sound[:, None], new_u, u), torch.where(sound[:, None], new_s, s)


def _direction(
    L: Tensor, residual: Tensor, product: Tensor, u: Tensor, s: Tensor, inequality: Tensor
) -> tuple[Tensor, Tensor]:
    """Return du, ds with  A du - ds = residual,  s du + u ds = product."""
    du = torch.cholesky_solve((residual + product / u)[..., None], L)[..., 0]
    return du, torch.where(inequality, (product - s * du) / u, 0.0)


def _length(x: Tensor, dx: Tensor, inequality: Tensor) -> Tensor:
    """Return the largest t <= 1 with x + t dx >= 0 on the inequalities, (B, 1)."""
    ratio = torch.where(inequality & (dx < 0), -x / dx, 1.0)
    return ratio.amin(dim=1, keepdim=True).clamp(max=1.0)


def _pivoted(K: Tensor, h: Tensor, kind: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """Return a with K_PP a_P = h_P and whether its bracket is tight, correcting P until it is.

    Rows with a negative multiplier leave the support and violated rows enter it, all at once.
    """
    inequality = kind == INEQUALITY
    a, optimal = torch.zeros_like(h), torch.zeros_like(inequality[:, 0])
    for _ in range(PIVOTS):
        new_a = _on_support(K, h, support)
        margins = _times(K, new_a)
        tight = _is_tight(margins, new_a, h, kind)
        a = torch.where((tight & ~optimal)[:, None], new_a, a)
        optimal = optimal | tight
        negative = inequality & (new_a < 0)
        violated = inequality & ~support & (margins < h * (1 - TIGHT))
        support = (support & ~negative) | violated
    return a, optimal


def _on_support(K: Tensor, h: Tensor, support: Tensor) -> Tensor:
    """Return a with K_PP a_P = h_P, zero elsewhere, refined."""
    both = support[:, :, None] & support[:, None, :]
    outside = torch.diag_embed((~support).to(K))
    K, h = torch.where(both, K, outside), torch.where(support, h, 0.0)
    L, _ = torch.linalg.cholesky_ex(K + torch.diag_embed(torch.full_like(h, RIDGE)))
    a = torch.cholesky_solve(h[..., None], L)[..., 0]
    for _ in range(REFINEMENTS):
        a = a + torch.cholesky_solve((h - _times(K, a))[..., None], L)[..., 0]
    return a


def _is_tight(margins: Tensor, a: Tensor, h: Tensor, kind: Tensor) -> Tensor:
    """Whether ||W||^2 <= (1 + TIGHT) min_k (margin_k / h_k) h^T a, with a in the dual domain."""
    inequality, equality = kind == INEQUALITY, kind == EQUALITY
    value, squared = (h * a).sum(dim=1), (a * margins).sum(dim=1)
    least = torch.where(inequality, margins / h, 1.0).amin(dim=1).clamp(max=1.0)
    missed = torch.where(equality, (margins - h).abs(), 0.0).amax(dim=1)
    allowed = ~(inequality & (a < 0)).any(dim=1) & (missed <= TIGHT * squared.clamp(min=0.0).sqrt())
    tight = squared <= (1 + TIGHT) * least * value
    return allowed & tight & (squared > 0) & (squared < MAX_GRAM_NORM**2)


def _times(K: Tensor, a: Tensor) -> Tensor:
    return (K @ a[..., None])[..., 0]
