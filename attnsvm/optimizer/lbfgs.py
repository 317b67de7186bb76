"""Batched limited-memory BFGS: an unconstrained minimisation per instance, all at once."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]

ARMIJO = 1e-4
ROUNDING = 1e-15
"""An instance stops when its value decreases by less than this, relatively (rounding noise)."""


def minimise(
    objective: Objective,
    x: Tensor,
    iterations: int,
    tolerance: float,
    memory: int = 20,
    radius: float = math.inf,
    lengths: int = 30,
) -> tuple[Tensor, Tensor]:
    """Return local minimisers x (B, N) of B functions of N variables, and their gradients' norms.

    `objective` maps x (B, N) to the values (B,) and the gradients (B, N). An instance stops where
    its gradient's norm is at most `tolerance`, where no step of at most so many trial `lengths`
    decreases the value, where its value is not finite, or farther than `radius` from its start.
    The number of curvature pairs kept is `memory`.
    """
    start = x
    f, g = objective(x)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    stuck = ~f.isfinite()
    for _ in range(iterations):
        active = (g.norm(dim=1) > tolerance) & ~stuck
        if not active.any():
            break
        p = _direction(g, pairs)
        slope = (g * p).sum(1)
        uphill = ~(slope < 0)
        p = torch.where(uphill[:, None], -g, p)
        slope = torch.where(uphill, -(g * g).sum(1), slope)
        x_new, f_new, g_new, moved = _search(objective, x, f, g, p, slope, active, lengths)
        stuck |= active & (~moved | (f - f_new <= ROUNDING * f.abs()))
        s, y = x_new - x, g_new - g
        pairs = [*pairs, (s, y, _inverse((s * y).sum(1), s, y))][-memory:]
        x, f, g = x_new, f_new, g_new
        stuck |= (x - start).norm(dim=1) > radius
    return x, g.norm(dim=1)


def _direction(g: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Return -H g by the two-loop recursion; a pair with rho = 0 is skipped."""
    p, alphas = -g, []
    for s, y, rho in reversed(pairs):
        alpha = rho * (s * p).sum(1)
        p = p - alpha[:, None] * y
        alphas.append(alpha)
    scale = torch.ones_like(g[:, 0])
    for s, y, rho in pairs:
        scale = torch.where(rho > 0, (s * y).sum(1) / (y * y).sum(1).clamp(min=1e-300), scale)
    if not pairs:
        scale = 1 / g.norm(dim=1).clamp(min=1e-300)
    p = p * scale[:, None]
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        beta = rho * (y * p).sum(1)
        p = p + (alpha - beta)[:, None] * s
    return p


def _inverse(sy: Tensor, s: Tensor, y: Tensor) -> Tensor:
    """Return 1 / s^T y where the pair has positive curvature, else 0."""
    good = sy > 1e-10 * s.norm(dim=1) * y.norm(dim=1)
    return torch.where(good, 1 / torch.where(good, sy, 1.0), 0.0)


def _search(
    objective: Objective,
    x: Tensor,
    f: Tensor,
    g: Tensor,
    p: Tensor,
    slope: Tensor,
    active: Tensor,
    lengths: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the point of a weak Wolfe line search by bisection, and which instances moved."""
    t = active.to(x.dtype)
    low, high = torch.zeros_like(t), torch.full_like(t, torch.inf)
    best_x, best_f, best_g = x, f, g
    moved, open_ = torch.zeros_like(active), active.clone()
    for _ in range(lengths):
        trial = x + t[:, None] * p
        f_t, g_t = objective(trial)
        down = f_t <= f + ARMIJO * t * slope
        flat = (g_t * p).sum(1) >= 0.9 * slope
        take = (open_ & down)[:, None]
        best_x, best_g = torch.where(take, trial, best_x), torch.where(take, g_t, best_g)
        best_f = torch.where(take[:, 0], f_t, best_f)
        moved |= take[:, 0]
        open_ = open_ & ~(down & flat)
        if not open_.any():
            break
        high = torch.where(open_ & ~down, t, high)
        low = torch.where(open_ & down, t, low)
        t = torch.where(open_, torch.where(high.isinf(), 2 * low, (low + high) / 2), t)
    return best_x, best_f, best_g, moved
