r"""Least nuclear norm: a batched primal-dual interior-point method on the projected dual LMI.

    primal  min (tr W_1 + tr W_2) / 2   s.t.  Y = [[W_1, W], [W^T, W_2]] >= 0,
                                              d_k^T W z_k - s_k = h_k,  s_k >= 0 (0 on equalities)
    dual    max h^T a   s.t.  S = [[I, -M], [-M^T, I]] / 2 >= 0,  M = sum_k a_k d_k z_k^T,
                              a_k >= 0 (free on equalities)

Optimality: Y S = nu I, a_k s_k = nu, nu -> 0. The search direction is HKM's (Helmberg et al. 1996;
Kojima et al. 1997; Monteiro 1997) with Mehrotra's second-order correction. Eliminating dY and ds
leaves the N x N Schur complement

    H_kl + (s_k / a_k) delta_kl,   H_kl = tr(A_k Y A_l S^{-1}),   A_k = sym(d_k z_k^T block),

and since every A_k has rank two, H is a sum of Hadamard products (`Cone.schur`). All instances
advance together; converged ones leave the batch. Where rounding stops the method early, Newton's
method on the optimal face continues (`attnsvm.svm.nuclear.face`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.equalities import restore_equalities
from attnsvm.svm.frobenius.least_distance import LeastDistance
from attnsvm.svm.nuclear.cone import Cone, project, slack_matrix, symmetric, times_off_diagonal
from attnsvm.svm.nuclear.face import polish
from attnsvm.svm.nuclear.small import solve_small
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.solution import Candidate
from attnsvm.svm.solver import Solver
from attnsvm.svm.tolerances import CONVERGED_GAP

MAX_STEPS = 60
BOUNDARY = 0.98
CENTRING = 0.1  # fixed: about 10 % more steps than Mehrotra's rule, but two spectra a step less
RIDGE = 1e-13  # relative, on the Schur complement: dependent rows leave it singular
REFINE_BELOW = 1e-6  # relative complementarity below which directions are refined
PATIENCE = 3  # steps without a narrower bracket before an instance stops
SMALL_ROWS = 400  # most rows for which eight instances at a time are faster
POLISHED_ROWS = 400  # with more rows a dense Newton system on the face is too expensive
CACHE_BYTES = 2**20  # bytes of N x N matrices in one chunk; chunks that fit the cache are faster


class InteriorPoint(Solver):
    """Least nuclear norm, started from the Frobenius solution.

    The Frobenius solver also gives the ray of infeasible instances, the same for every norm.
    """

    norm = "nuclear"

    def candidates(self, problem: SvmProblem) -> Candidate:
        """Return W, multipliers and rays of the least-nuclear-norm problems; NaN where none."""
        start = LeastDistance().candidates(problem)
        W, a = torch.full_like(start.W, torch.nan), torch.full_like(start.multipliers, torch.nan)
        margins = torch.where(problem.inequality, problem.margins(start.W), torch.inf)
        found = start.W.isfinite().all(dim=(1, 2))
        feasible = (found & (margins.amin(dim=1) > 0)).nonzero()[:, 0]
        most = problem.most_rows()[feasible]
        for count in sorted(set(most.tolist())):  # each by itself: no bit depends on its batch
            alike = feasible[most == count]
            kept, rows = problem.take(alike).first_rows(count)
            given = kept, start.W[alike], start.multipliers[alike].gather(1, rows)
            for part, (part_W, part_a) in _in_parts(*given):
                W[alike[part]] = part_W
                a[alike[part]] = a.new_zeros(len(part), problem.N).scatter(1, rows[part], part_a)
        return Candidate(W, a, start.ray)


def _in_parts(
    problem: SvmProblem, W: Tensor, a: Tensor
) -> Iterator[tuple[Tensor, tuple[Tensor, Tensor]]]:
    """Yield indices and their solutions: on the CPU in chunks that fit the cache, one per core."""
    everything = torch.arange(problem.B, device=W.device)
    if problem.D.device.type != "cpu" or _small(problem):
        yield everything, solve_from(problem, W, a)
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    chunk = min(max(4, CACHE_BYTES // (8 * problem.N**2)), -(-problem.B // cores))
    parts = torch.split(everything, chunk)
    workers = min(cores, len(parts))
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        arguments = ((problem.take(p), W[p], a[p]) for p in parts)
        yield from zip(parts, pool.map(lambda given: solve_from(*given), arguments), strict=True)


def _small(problem: SvmProblem) -> bool:
    """Whether the compiled method is the faster one."""
    return problem.D.device.type == "cpu" and problem.N <= SMALL_ROWS


def solve_from(problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return W and multipliers of feasible instances, from their Frobenius solutions."""
    cone, small = project(problem, W), _small(problem)
    start = cone.reproject(W, a)
    W, a, converged = (solve_small if small else solve_batch)(cone, *start)
    W, a = cone.unproject(W, a)
    for b in (~converged).nonzero()[:, 0].tolist() if problem.N <= POLISHED_ROWS else ():
        index = slice(b, b + 1)
        bracket = _Bracket(problem.take(index), W[index], a[index])
        if not _polish(bracket) and small:
            part = cone.take(torch.tensor([b]))
            again_W, again_a, _ = solve_batch(part, start[0][index], start[1][index])
            if not bracket.narrow(*part.unproject(again_W, again_a)):
                _polish(bracket)
        W[b], a[b] = bracket.W[0], bracket.a[0]
    return restore_equalities(problem, W), a


def solve_batch(cone: Cone, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return W, multipliers and which instances converged, from their Frobenius solutions."""
    return interior_point(cone, begin(cone, W, a), CONVERGED_GAP)[:3]


class _Bracket:
    """The best W and multipliers of one instance, and their bounds."""

    def __init__(self, problem: SvmProblem, W: Tensor, a: Tensor) -> None:
        self.problem, self.W = problem, W
        self.upper = upper_bound(problem, W, "nuclear")
        self.a, self.lower, _ = lower_bound(problem, a, "nuclear")

    def narrow(self, W: Tensor, a: Tensor) -> bool:
        """Keep W and a, each if it is better; return whether the bounds meet."""
        upper = upper_bound(self.problem, W, "nuclear")
        lower = lower_bound(self.problem, a, "nuclear")[1]
        if upper < self.upper:
            self.W, self.upper = W, upper
        if lower > self.lower:
            self.a, self.lower = a, lower
        return bool(self.upper <= (1 + CONVERGED_GAP) * self.lower)


def _polish(bracket: _Bracket) -> bool:
    """Narrow the bracket by Newton steps on the optimal face; return whether the bounds meet."""
    problem, W = bracket.problem, bracket.W
    cone = project(problem, W)
    rows = (cone.D, cone.Q.repeat_interleave(problem.N // problem.n, dim=1), cone.h)
    equality = ~cone.inequality & ~cone.padding
    arrays = (t[0].cpu().numpy() for t in (*rows, equality, *cone.reproject(W, bracket.a)))
    for point in polish(*arrays):
        if bracket.narrow(*cone.unproject(*(torch.from_numpy(x).to(W)[None] for x in point))):
            return True
    return False


@dataclass(frozen=True)
class Iterate:
    """The iterate: Y = [[W_1, W], [W^T, W_2]] (B, P, P), slack s, dual a (B, N), 1 on padding."""

    Y: Tensor
    s: Tensor
    a: Tensor

    def take(self, index: Tensor) -> Iterate:
        """Return the iterates of the instances at `index`."""
        return Iterate(self.Y[index], self.s[index], self.a[index])


@dataclass(frozen=True)
class _System:
    """What one step needs, factored: H with its Cholesky factor, S^{-1}, L_Y^{-1}, L_S^{-1}."""

    H: Tensor
    L_H: Tensor
    S: Tensor
    S_inverse: Tensor
    Y_root: Tensor
    S_root: Tensor
    sound: Tensor

    def solve(self, rhs: Tensor) -> Tensor:
        """Return H^{-1} rhs, (B, N)."""
        return torch.cholesky_solve(rhs[..., None], self.L_H)[..., 0]


def interior_point(
    cone: Cone, iterate: Iterate, gap: float
) -> tuple[Tensor, Tensor, Tensor, Iterate]:
    """Return the best W, the best multipliers, which instances converged, and the last iterate.

    The best have the least upper and the greatest lower bound. An instance stops when the bounds
    meet, when no step is possible, or when PATIENCE steps did not narrow its bracket (rounding
    dominates). The last iterate is that of the instances with the most steps.
    """
    best_W, best_a = iterate.Y[:, : cone.p, cone.p :].clone(), iterate.a.clone()
    upper, lower = torch.full_like(cone.size, torch.inf), torch.zeros_like(cone.size)
    alive, idle = torch.arange(len(upper), device=upper.device), torch.zeros_like(upper)
    for _ in range(MAX_STEPS):
        iterate, moved = _step(cone, iterate)
        new_upper, new_lower = _bracket(cone, iterate)
        below, above = new_upper < upper[alive], new_lower > lower[alive]
        W_now = iterate.Y[:, : cone.p, cone.p :]
        best_W[alive[below]], upper[alive[below]] = W_now[below], new_upper[below]
        best_a[alive[above]], lower[alive[above]] = iterate.a[above], new_lower[above]
        idle = torch.where(below | above, 0, idle + 1)
        going = moved & (upper[alive] > (1 + gap) * lower[alive]) & (idle < PATIENCE)
        if not going.any():
            break
        if not going.all():
            index = going.nonzero()[:, 0]
            alive, idle = alive[index], idle[index]
            cone, iterate = cone.take(index), iterate.take(index)
    return best_W, best_a, upper <= (1 + gap) * lower, iterate


def begin(cone: Cone, W: Tensor, a: Tensor) -> Iterate:
    """Return a strictly feasible start from the Frobenius solution: W enlarged, a reduced.

    The constants were tuned for few steps: 11 to 13 to a gap of 5e-10.
    """
    W = torch.where(cone.inhomogeneous[:, None, None], W, 1.1 * W)
    U, sigma, Vh = torch.linalg.svd(W, full_matrices=False)
    lift = 0.1 * sigma.sum(dim=1)[:, None, None] / min(W.shape[1:])
    W_1 = (U * sigma[:, None, :]) @ U.mT + lift * torch.eye(W.shape[1]).to(W)
    W_2 = (Vh.mT * sigma[:, None, :]) @ Vh + lift * torch.eye(W.shape[2]).to(W)
    Y = torch.cat([torch.cat([W_1, W], dim=2), torch.cat([W.mT, W_2], dim=2)], dim=1)
    floor = 0.1 * cone.h.abs().amax(dim=1, keepdim=True)
    s = torch.where(cone.inequality, (cone.apply(W) - cone.h).clamp(min=floor), 1.0)
    share = 0.3 * a.abs().sum(dim=1, keepdim=True) / cone.inequality.sum(1, keepdim=True).clamp(1)
    a = torch.where(cone.inequality, a.clamp(min=0.0) + share, a)
    a = torch.where(cone.padding, 0.0, a)
    top = torch.linalg.matrix_norm(cone.combine(a), ord=2)[:, None]
    a = 0.95 * a / torch.where(top > 0, top, 1.0)
    return Iterate(Y, s, torch.where(cone.padding, 1.0, a))


def _step(cone: Cone, iterate: Iterate) -> tuple[Iterate, Tensor]:
    """Return the next iterate, and which instances moved."""
    system = _system(cone, iterate)
    now = _complementarity(cone, iterate, system.S)
    nu = CENTRING * now / _order(cone)
    refine = now < REFINE_BELOW * iterate.Y.diagonal(dim1=1, dim2=2).sum(dim=1)
    predictor = _direction(cone, iterate, system, torch.zeros_like(now), None, refine)
    corrector = _direction(cone, iterate, system, nu, predictor, refine)
    alpha, beta = _lengths(cone, iterate, system, corrector)
    new = _advance(iterate, corrector, alpha, beta)
    sound = system.sound & new.Y.isfinite().all(dim=(1, 2)) & new.a.isfinite().all(dim=1)
    new = Iterate(
        torch.where(sound[:, None, None], new.Y, iterate.Y),
        torch.where(sound[:, None], new.s, iterate.s),
        torch.where(sound[:, None], new.a, iterate.a),
    )
    return new, sound & (torch.maximum(alpha, beta) > 1e-8)


def _bracket(cone: Cone, iterate: Iterate) -> tuple[Tensor, Tensor]:
    """Return the bounds that the iterate proves: ||W||_* <= tr Y / 2, S >= 0 makes a feasible."""
    margins = cone.apply(iterate.Y[:, : cone.p, cone.p :])
    mu = torch.where(cone.inequality, margins / cone.h, torch.inf).amin(dim=1)
    mu = torch.where(cone.inhomogeneous | mu.isinf(), 1.0, mu)
    trace = iterate.Y.diagonal(dim1=1, dim2=2).sum(dim=1) / 2
    dual = (cone.h * torch.where(cone.padding, 0.0, iterate.a)).sum(dim=1)
    return torch.where(mu > 0, trace / mu, torch.inf), dual


def _system(cone: Cone, iterate: Iterate) -> _System:
    """Return S^{-1} and the factored Schur complement H + diag(s / a)."""
    S = slack_matrix(cone.combine(iterate.a))
    eye = torch.eye(S.shape[1]).to(S)
    roots = []
    for matrix in (iterate.Y, S):
        L, _ = torch.linalg.cholesky_ex(matrix)
        roots.append(torch.linalg.solve_triangular(L, eye, upper=False))
    S_inverse = roots[1].mT @ roots[1]
    H = cone.schur(iterate.Y, S_inverse)
    diagonal = H.diagonal(dim1=1, dim2=2)
    diagonal += torch.where(cone.inequality, iterate.s / iterate.a, 0.0)
    diagonal += torch.where(cone.padding, 1.0, 0.0)
    L_H, info = torch.linalg.cholesky_ex(H + torch.diag_embed(RIDGE * diagonal))
    return _System(H, L_H, S, S_inverse, roots[0], roots[1], info == 0)


def _direction(
    cone: Cone,
    iterate: Iterate,
    system: _System,
    nu: Tensor,
    predictor: Iterate | None,
    refine: Tensor,
) -> Iterate:
    """Solve the linearised optimality conditions for target nu, to second order with a predictor.

    dY = nu S^{-1} - Y - sym(Y dS S^{-1}) - sym(dY_p dS_p S^{-1}),  ds = nu / a - s - s da / a - ...
    """
    Y, s, a, p = iterate.Y, iterate.s, iterate.a, cone.p
    target = nu[:, None, None] * system.S_inverse
    complement = nu[:, None] / a
    if predictor is not None:
        curve = times_off_diagonal(predictor.Y, cone.combine(predictor.a)) @ system.S_inverse
        target = target + symmetric(curve)
        complement = complement - predictor.a * predictor.s / a
    rhs = cone.h - cone.apply(target[:, :p, p:]) + torch.where(cone.inequality, complement, 0.0)
    rhs = torch.where(cone.padding, 0.0, rhs)
    da = system.solve(rhs)
    change = symmetric(times_off_diagonal(Y, cone.combine(da)) @ system.S_inverse)
    for _ in range(2 if refine.any() else 0):  # residual of the KKT system, not of the rounded H
        left = cone.apply(change[:, :p, p:]) + torch.where(cone.inequality, s / a * da, 0.0)
        again = refine[:, None] & ~cone.padding
        da = da + system.solve(torch.where(again, rhs - left, 0.0))
        change = symmetric(times_off_diagonal(Y, cone.combine(da)) @ system.S_inverse)
    ds = torch.where(cone.inequality, complement - s - s / a * da, 0.0)
    return Iterate(target - Y + change, ds, da)


def _lengths(
    cone: Cone, iterate: Iterate, system: _System, direction: Iterate
) -> tuple[Tensor, Tensor]:
    """Return the primal and dual step lengths that stay inside the cone, at most 1."""
    M = cone.combine(direction.a)
    primal = _to_boundary(system.Y_root @ direction.Y @ system.Y_root.mT)
    dual = _to_boundary(-times_off_diagonal(system.S_root, M) @ system.S_root.mT)
    primal = torch.minimum(primal, _ratio(cone, iterate.s, direction.s))
    dual = torch.minimum(dual, _ratio(cone, iterate.a, direction.a))
    return (BOUNDARY * primal).clamp(max=1.0), (BOUNDARY * dual).clamp(max=1.0)


def _to_boundary(scaled: Tensor) -> Tensor:
    """Return the largest t with I + t L^{-1} dY L^{-T} >= 0, that is Y + t dY >= 0."""
    scaled = symmetric(scaled).nan_to_num(0.0, 0.0, 0.0)
    least = torch.linalg.eigvalsh(scaled)[:, 0]
    return torch.where(least < 0, -1.0 / least, 1e10)


def _ratio(cone: Cone, x: Tensor, dx: Tensor) -> Tensor:
    """Return the largest t with x + t dx >= 0 on the inequalities."""
    return torch.where(cone.inequality & (dx < 0), -x / dx, 1e10).amin(dim=1)


def _advance(iterate: Iterate, direction: Iterate, alpha: Tensor, beta: Tensor) -> Iterate:
    return Iterate(
        iterate.Y + alpha[:, None, None] * direction.Y,
        iterate.s + alpha[:, None] * direction.s,
        iterate.a + beta[:, None] * direction.a,
    )


def _complementarity(cone: Cone, iterate: Iterate, S: Tensor) -> Tensor:
    """Return <Y, S> + a^T s, (B,)."""
    products = torch.where(cone.inequality, iterate.a * iterate.s, 0.0).sum(dim=1)
    return (iterate.Y * S).sum(dim=(1, 2)) + products


def mean_complementarity(cone: Cone, iterate: Iterate) -> Tensor:
    """Return nu of the point of the central path that is nearest in <Y, S> + a^T s, (B,)."""
    S = slack_matrix(cone.combine(iterate.a))
    return _complementarity(cone, iterate, S) / _order(cone)


def _order(cone: Cone) -> Tensor:
    """Return the order p + q + |inequalities| of the cone, (B,)."""
    return (cone.inequality.sum(dim=1) + cone.p + cone.Q.shape[2]).to(cone.h)
