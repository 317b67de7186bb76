r"""Least nuclear norm: a batched primal-dual interior-point method on the projected dual LMI.

    primal  min (tr W_1 + tr W_2) / 2   s.t.  Y = [[W_1, W], [W^T, W_2]] >= 0,
                                              d_k^T W z_k - s_k = h_k,  s_k >= 0 (0 on equalities)
    dual    max h^T a   s.t.  S = [[I, -M], [-M^T, I]] / 2 >= 0,  M = sum_k a_k d_k z_k^T,
                              a_k >= 0 (free on equalities)

Optimality: Y S = nu I, a_k s_k = nu, nu -> 0. The search direction is HKM's (Helmberg et al. 1996;
Kojima et al. 1997; Monteiro 1997) with Mehrotra's predictor and corrector. Eliminating dY and ds
leaves the N x N Schur complement

    H_kl + (s_k / a_k) delta_kl,   H_kl = tr(A_k Y A_l S^{-1}),   A_k = sym(d_k z_k^T block),

and since every A_k has rank two, H is a sum of four Hadamard products of N x N matrices. All
instances advance together; those that have converged leave the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.constraints import SvmProblem
from attnsvm.svm.frobenius import solve_frobenius
from attnsvm.svm.general import independent_equalities, restore_equalities
from attnsvm.svm.polish import polish
from attnsvm.svm.solution import Claim

GAP = 1e-10
MAX_STEPS = 60
BOUNDARY = 0.99
RIDGE = 1e-13  # relative, on the Schur complement: dependent rows leave it singular
REFINEMENTS = 2
PATIENCE = 3


def solve_nuclear(problem: SvmProblem) -> Claim:
    """Return W, multipliers and rays of the least-nuclear-norm problems; NaN where none.

    The Frobenius solution is the start, and decides infeasibility: the ray is the same for every
    norm.
    """
    start = solve_frobenius(problem)
    W, a = torch.full_like(start.W, torch.nan), torch.full_like(start.multipliers, torch.nan)
    margins = torch.where(problem.inequality, problem.margins(start.W), torch.inf)
    claimed = start.W.isfinite().all(dim=(1, 2))
    feasible = (claimed & (margins.amin(dim=1) > 0)).nonzero()[:, 0]
    if feasible.numel():
        part = problem.take(feasible)
        W[feasible], a[feasible] = _interior_point(
            part, start.W[feasible], start.multipliers[feasible]
        )
    return Claim(W, a, start.ray)


@dataclass(frozen=True)
class _Cone:
    """The projected, scaled problem: D (B, N, p), Q = z_k (B, N, q), h and the kinds (B, N).

    P_d (B, d, p), P_z (B, d, q) are the orthonormal bases; `unit` (B, N) and `size` (B,) the
    powers of two that rows and W are divided by.
    """

    D: Tensor
    Q: Tensor
    h: Tensor
    inequality: Tensor
    padding: Tensor
    unit: Tensor
    size: Tensor
    P_d: Tensor
    P_z: Tensor

    @property
    def inhomogeneous(self) -> Tensor:
        """Where an equality has h_k != 0, so that W has no free scale, (B,)."""
        return (~self.padding & ~self.inequality & (self.h != 0)).any(dim=1)


@dataclass(frozen=True)
class _Schur:
    """The Schur complement H and its Cholesky factor L, both (B, N, N)."""

    H: Tensor
    L: Tensor

    def solve(self, rhs: Tensor) -> Tensor:
        """Return H^{-1} rhs, (B, N)."""
        return torch.cholesky_solve(rhs[..., None], self.L)[..., 0]


@dataclass(frozen=True)
class _State:
    """The iterate: Y = [[W_1, W], [W^T, W_2]], slack s, dual a (one on padding, like s)."""

    Y: Tensor
    s: Tensor
    a: Tensor


def _interior_point(problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the W of least upper bound and the multipliers of greatest lower bound seen.

    An instance stops where they meet, where no step is possible, or where PATIENCE steps did not
    narrow its bracket (rounding has taken over).
    """
    cone = _project(problem, W)
    state = _start(cone, cone.P_d.mT @ W @ cone.P_z / cone.size[:, None, None], a)
    best_W, best_a = W.clone(), a.clone()
    upper, lower = torch.full_like(W[:, 0, 0], torch.inf), torch.zeros_like(W[:, 0, 0])
    idle = torch.zeros_like(upper)
    alive = torch.arange(problem.B, device=W.device)
    for _ in range(MAX_STEPS):
        state, moved = _step(cone, state)
        new_upper, new_lower = _bracket(cone, state)
        W_now, a_now = _unproject(cone, state)
        below, above = new_upper < upper[alive], new_lower > lower[alive]
        best_W[alive[below]], upper[alive[below]] = W_now[below], new_upper[below]
        best_a[alive[above]], lower[alive[above]] = a_now[above], new_lower[above]
        idle = torch.where(below | above, 0, idle + 1)
        going = moved & (upper[alive] > (1 + GAP) * lower[alive]) & (idle < PATIENCE)
        if not going.any():
            break
        if not going.all():
            index = going.nonzero()[:, 0]
            alive, idle = alive[index], idle[index]
            cone, state = _take(cone, index), _take(state, index)
    for b in (upper > (1 + 3 * GAP) * lower).nonzero()[:, 0].tolist():
        best_W[b], best_a[b] = _polished(problem, b, best_W[b], best_a[b])
    return restore_equalities(problem, best_W), best_a


def _polished(problem: SvmProblem, b: int, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return W and a of instance b after Newton steps on their face, each where it is better."""
    part = problem.take(torch.tensor([b]))
    cone = _project(part, W[None])
    rows = (cone.D[0], cone.Q[0], cone.h[0], (~cone.inequality & ~cone.padding)[0])
    a_old, lower, _ = lower_bound(part, a[None], "nuclear")
    W_cone = (cone.P_d.mT @ W @ cone.P_z / cone.size[:, None, None])[0]
    a_cone = (a_old * cone.unit)[0]
    upper = upper_bound(part, W[None], "nuclear")
    for W_new, a_new in polish(*(t.cpu().numpy() for t in (*rows, W_cone, a_cone))):
        new_W = cone.P_d[0] @ torch.from_numpy(W_new).to(W) @ cone.P_z[0].mT * cone.size[0]
        new_a = torch.from_numpy(a_new).to(a) / cone.unit[0]
        new_upper = upper_bound(part, new_W[None], "nuclear")
        new_lower = lower_bound(part, new_a[None], "nuclear")[1]
        if new_upper < upper:
            W, upper = new_W, new_upper
        if new_lower > lower:
            a, lower = new_a, new_lower
        if upper <= (1 + 3 * GAP) * lower:
            break
    return W, a


def _project(problem: SvmProblem, W: Tensor) -> _Cone:
    """Return the problem on span(d_k) x span(z_i), rows of unit size, ||W|| about one."""
    P_d, P_z = _basis(problem.D), _basis(problem.Z)
    keep = problem.inequality | independent_equalities(problem)
    D = torch.where(keep[..., None], problem.D, 0.0) @ P_d
    Q = problem.queries @ P_z
    unit = _power_of_two(D.norm(dim=2) * Q.norm(dim=2))
    size = _power_of_two(W.flatten(1).norm(dim=1))
    h = torch.where(keep, problem.h, 0.0) / unit / size[:, None]
    return _Cone(D / unit[..., None], Q, h, problem.inequality, ~keep, unit, size, P_d, P_z)


def _basis(rows: Tensor) -> Tensor:
    """Return an orthonormal basis (B, d, p) that spans the rows (B, r, d), p = min(d, r)."""
    if rows.shape[1] >= rows.shape[2]:
        return torch.eye(rows.shape[2], dtype=rows.dtype, device=rows.device).expand(
            rows.shape[0], -1, -1
        )
    basis: Tensor = torch.linalg.qr(rows.mT)[0]
    return basis


def _start(cone: _Cone, W: Tensor, a: Tensor) -> _State:
    """Return a strictly feasible start from the Frobenius solution: W grown, a shrunk."""
    W = torch.where(
        (~cone.padding & ~cone.inequality & (cone.h != 0)).any(dim=1)[:, None, None], W, 2.0 * W
    )
    U, sigma, Vh = torch.linalg.svd(W, full_matrices=False)
    lift = sigma.sum(dim=1)[:, None, None] / min(W.shape[1:])
    W_1 = (U * sigma[:, None, :]) @ U.mT + lift * torch.eye(W.shape[1]).to(W)
    W_2 = (Vh.mT * sigma[:, None, :]) @ Vh + lift * torch.eye(W.shape[2]).to(W)
    Y = torch.cat([torch.cat([W_1, W], dim=2), torch.cat([W.mT, W_2], dim=2)], dim=1)
    s = _apply(cone, W) - cone.h
    floor = cone.h.abs().amax(dim=1, keepdim=True)
    s = torch.where(cone.inequality, s.clamp(min=0.1 * floor), 1.0)
    a = a * cone.unit
    count = cone.inequality.sum(dim=1, keepdim=True).clamp(min=1)
    a = torch.where(
        cone.inequality, a.clamp(min=0.0) + 0.1 * a.abs().sum(1, keepdim=True) / count, a
    )
    a = torch.where(cone.padding, 0.0, a)
    top = torch.linalg.matrix_norm(_combine(cone, a), ord=2)[:, None]
    a = 0.5 * a / torch.where(top > 0, top, 1.0)
    return _State(Y, s, torch.where(cone.padding, 1.0, a))


def _step(cone: _Cone, state: _State) -> tuple[_State, Tensor]:
    """Return the next iterate, and which instances moved at all."""
    Y, s, a = state.Y, state.s, state.a
    S, inverse = _dual_slack(cone, a)
    order = (cone.inequality.sum(dim=1) + Y.shape[1]).to(Y.dtype)
    nu = _complementarity(cone, Y, S, s, a) / order
    schur, failed = _schur(cone, state, inverse)
    predictor = _direction(cone, state, inverse, schur, torch.zeros_like(nu), None)
    alpha, beta = _lengths(cone, state, S, predictor, 1.0)
    ahead = _advance(cone, state, predictor, alpha, beta)
    ahead_nu = (
        _complementarity(cone, ahead.Y, _slack_matrix(_combine(cone, ahead.a)), ahead.s, ahead.a)
        / order
    )
    centering = (ahead_nu / nu).clamp(0.0, 1.0) ** 3
    corrector = _direction(cone, state, inverse, schur, centering * nu, predictor)
    alpha, beta = _lengths(cone, state, S, corrector, BOUNDARY)
    new = _advance(cone, state, corrector, alpha, beta)
    sound = ~failed & new.Y.isfinite().all(dim=(1, 2)) & new.a.isfinite().all(dim=1)
    moved = sound & (torch.maximum(alpha, beta) > 1e-8)
    new = _State(
        *(_where(sound, x, y) for x, y in zip((new.Y, new.s, new.a), (Y, s, a), strict=True))
    )
    return new, moved


def _bracket(cone: _Cone, state: _State) -> tuple[Tensor, Tensor]:
    """Return the bounds that the iterate proves: ||W||_* <= tr Y / 2, S >= 0 makes a feasible."""
    p = cone.D.shape[2]
    margins = _apply(cone, state.Y[:, :p, p:])
    mu = torch.where(cone.inequality, margins / cone.h, torch.inf).amin(dim=1)
    mu = torch.where(cone.inhomogeneous | mu.isinf(), 1.0, mu)
    trace = state.Y.diagonal(dim1=1, dim2=2).sum(dim=1) / 2
    dual = (cone.h * torch.where(cone.padding, 0.0, state.a)).sum(dim=1)
    return torch.where(mu > 0, trace / mu, torch.inf), dual


def _dual_slack(cone: _Cone, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return S and S^{-1} = 2 [[I + M C M^T, M C], [C M^T, C]],  C = (I - M^T M)^{-1}."""
    M = _combine(cone, a)
    p, q = M.shape[1:]
    L, _ = torch.linalg.cholesky_ex(torch.eye(q).to(M) - M.mT @ M)
    half = torch.linalg.solve_triangular(
        L, torch.cat([M.mT, torch.eye(q).to(M).expand(len(M), -1, -1)], dim=2), upper=False
    )
    inverse = half.mT @ half
    inverse[:, :p, :p] += torch.eye(p).to(M)
    return _slack_matrix(M), 2 * inverse


def _schur(cone: _Cone, state: _State, inverse: Tensor) -> tuple[_Schur, Tensor]:
    """Return the factored Schur complement, and where it could not be factored."""
    p = cone.D.shape[2]
    Y_dd, Y_dz, Y_zz = _congruence(cone, state.Y, p)
    V_dd, V_dz, V_zz = _congruence(cone, inverse, p)
    H = (Y_dz.mT * V_dz + Y_dz * V_dz.mT + Y_zz * V_dd + Y_dd * V_zz) / 4
    extra = torch.where(cone.inequality, state.s / state.a, 0.0)
    H = H + torch.diag_embed(torch.where(cone.padding, 1.0, extra))
    ridge = torch.diag_embed(RIDGE * H.diagonal(dim1=1, dim2=2))
    L, info = torch.linalg.cholesky_ex(H + ridge)
    return _Schur(H, L), info > 0


def _congruence(cone: _Cone, Y: Tensor, p: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return D Y_11 D^T, D Y_12 Q^T, Q Y_22 Q^T, each (B, N, N)."""
    D, Q = cone.D, cone.Q
    return D @ Y[:, :p, :p] @ D.mT, D @ Y[:, :p, p:] @ Q.mT, Q @ Y[:, p:, p:] @ Q.mT


def _direction(
    cone: _Cone,
    state: _State,
    inverse: Tensor,
    schur: _Schur,
    nu: Tensor,
    predictor: _State | None,
) -> _State:
    """Solve the linearised optimality conditions for target nu, second order if predicted.

    dY = nu S^{-1} - Y - sym(Y dS S^{-1}) - sym(dY_p dS_p S^{-1}),  ds = nu / a - s - s da / a - ...
    """
    Y, s, a = state.Y, state.s, state.a
    p = cone.D.shape[2]
    target = nu[:, None, None] * inverse
    complement = nu[:, None] / a
    if predictor is not None:
        target = target - _sym(predictor.Y @ -_slack_change(cone, predictor.a) @ inverse)
        complement = complement - predictor.a * predictor.s / a
    rhs = cone.h - _apply(cone, target[:, :p, p:]) + torch.where(cone.inequality, complement, 0.0)
    rhs = torch.where(cone.padding, 0.0, rhs)
    da = schur.solve(rhs)
    for _ in range(REFINEMENTS):  # against the KKT system itself, not the rounded H
        change = _sym(Y @ _slack_change(cone, da) @ inverse)
        left = _apply(cone, change[:, :p, p:]) + torch.where(cone.inequality, s / a * da, 0.0)
        da = da + schur.solve(torch.where(cone.padding, 0.0, rhs - left))
    dY = target - Y + _sym(Y @ _slack_change(cone, da) @ inverse)
    ds = torch.where(cone.inequality, complement - s - s / a * da, 0.0)
    return _State(dY, ds, da)


def _lengths(
    cone: _Cone, state: _State, S: Tensor, direction: _State, boundary: float
) -> tuple[Tensor, Tensor]:
    """Return the primal and dual step lengths that stay inside the cone, at most 1."""
    primal = torch.minimum(_to_boundary(state.Y, direction.Y), _ratio(cone, state.s, direction.s))
    dual = torch.minimum(
        _to_boundary(S, -_slack_change(cone, direction.a)), _ratio(cone, state.a, direction.a)
    )
    return (boundary * primal).clamp(max=1.0), (boundary * dual).clamp(max=1.0)


def _to_boundary(Y: Tensor, dY: Tensor) -> Tensor:
    """Return the largest t with Y + t dY >= 0 from the least eigenvalue of L^{-1} dY L^{-T}."""
    L, _ = torch.linalg.cholesky_ex(Y)
    half = torch.linalg.solve_triangular(L, dY, upper=False)
    both = torch.linalg.solve_triangular(L, half.mT, upper=False)
    least = torch.linalg.eigvalsh(_sym(both.nan_to_num(0.0, 0.0, 0.0)))[:, 0]
    return torch.where(least < 0, -1.0 / least, 1e10)


def _ratio(cone: _Cone, x: Tensor, dx: Tensor) -> Tensor:
    """Return the largest t with x + t dx >= 0 on the inequalities."""
    t = torch.where(cone.inequality & (dx < 0), -x / dx, 1e10)
    return t.amin(dim=1)


def _advance(cone: _Cone, state: _State, direction: _State, alpha: Tensor, beta: Tensor) -> _State:
    return _State(
        state.Y + alpha[:, None, None] * direction.Y,
        state.s + alpha[:, None] * direction.s,
        state.a + beta[:, None] * direction.a,
    )


def _complementarity(cone: _Cone, Y: Tensor, S: Tensor, s: Tensor, a: Tensor) -> Tensor:
    """Return <Y, S> + a^T s, (B,)."""
    return (Y * S).sum(dim=(1, 2)) + torch.where(cone.inequality, a * s, 0.0).sum(dim=1)


def _combine(cone: _Cone, a: Tensor) -> Tensor:
    """Return M(a) (B, p, q); the rows of padding are zero."""
    return (cone.D * a[..., None]).mT @ cone.Q


def _apply(cone: _Cone, W: Tensor) -> Tensor:
    """Return d_k^T W z_k, (B, N)."""
    return ((cone.D @ W) * cone.Q).sum(dim=2)


def _slack_matrix(M: Tensor) -> Tensor:
    """Return S = [[I, -M], [-M^T, I]] / 2."""
    p, q = M.shape[1:]
    eye = torch.eye(p + q).to(M).expand(M.shape[0], -1, -1)
    return eye / 2 - _off_diagonal(M)


def _slack_change(cone: _Cone, da: Tensor) -> Tensor:
    """Return -dS = sum_k da_k A_k."""
    return _off_diagonal(_combine(cone, da))


def _off_diagonal(M: Tensor) -> Tensor:
    p, q = M.shape[1:]
    out = M.new_zeros((M.shape[0], p + q, p + q))
    out[:, :p, p:] = M / 2
    out[:, p:, :p] = M.mT / 2
    return out


def _sym(Y: Tensor) -> Tensor:
    return (Y + Y.mT) / 2


def _unproject(cone: _Cone, state: _State) -> tuple[Tensor, Tensor]:
    """Return W (B, d, d) and multipliers (B, N) of the unscaled, unprojected problem."""
    p = cone.D.shape[2]
    W = cone.P_d @ state.Y[:, :p, p:] @ cone.P_z.mT * cone.size[:, None, None]
    return W, torch.where(cone.padding, 0.0, state.a) / cone.unit


def _power_of_two(x: Tensor) -> Tensor:
    return torch.exp2(torch.round(torch.log2(torch.where(x > 0, x, 1.0))))


def _where(which: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(which.reshape(-1, *[1] * (new.ndim - 1)), new, old)


Batch = TypeVar("Batch", _Cone, _State)


def _take(batch: Batch, index: Tensor) -> Batch:
    return replace(batch, **{f.name: getattr(batch, f.name)[index] for f in fields(batch)})
