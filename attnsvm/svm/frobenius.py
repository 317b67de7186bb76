r"""Least Frobenius norm: least-distance programming by one non-negative least-squares call.

With w = vec(W) and rows g_k = vec(d_k z_k^T) the problem is  min ||w||  s.t.  G w >= h. Lawson and
Hanson (Solving Least Squares Problems, chapter 23) solve it by

    min_{u >= 0} || [G^T; h^T] u - e_last ||,      residual r = [G^T; h^T] u - e_last:

r = 0 means infeasible and u is the Farkas ray (G^T u = 0, h^T u = 1); otherwise
w = - r_{1..p} / r_last and the multipliers are a = - u / r_last.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls

from attnsvm.svm.constraints import EQUALITY, SvmProblem
from attnsvm.svm.general import eliminate
from attnsvm.svm.solution import Claim

Array = NDArray[np.float64]


def solve_frobenius(problem: SvmProblem) -> Claim:
    """Return W, multipliers and rays of the least-Frobenius-norm problems; NaN where none."""
    cpu = problem.to("cpu")
    W = np.full((problem.B, problem.d, problem.d), np.nan)
    a = np.full((problem.B, problem.N), np.nan)
    ray = np.full((problem.B, problem.N), np.nan)
    D, queries, h, kind = (t.numpy() for t in (cpu.D, cpu.queries, cpu.h, cpu.kind))
    for b in range(problem.B):
        W[b], a[b], ray[b] = _solve_one(D[b], queries[b], h[b], kind[b])
    device = problem.D.device
    return Claim(*(torch.from_numpy(array).to(device) for array in (W, a, ray)))


def _solve_one(
    D: Array, queries: Array, h: Array, kind: NDArray[np.int8]
) -> tuple[Array, Array, Array]:
    """Return W (d, d), multipliers (N,) and ray (N,) of one instance."""
    (N, d), rows = D.shape, np.flatnonzero(kind)
    a, ray = np.full(N, np.nan), np.full(N, np.nan)
    G = (D[rows, :, None] * queries[rows, None, :]).reshape(rows.size, d * d)
    unit = power_of_two(np.linalg.norm(G, axis=1))
    G, h = G / unit[:, None], h[rows] / unit
    is_equal = kind[rows] == EQUALITY
    E, G = G[is_equal], G[~is_equal]
    elimination = eliminate(E, h[is_equal])
    if elimination.contradiction is not None:
        ray[:] = 0.0
        ray[rows[is_equal]] = elimination.contradiction / unit[is_equal]
        return np.full((d, d), np.nan), a, ray
    projected = elimination.project(G) if E.size else G
    v, u, direction = least_distance(projected, h[~is_equal] - G @ elimination.origin)
    w = elimination.origin + v
    for multipliers, combination, target in ((u, w, a), (direction, np.zeros(d * d), ray)):
        if not np.isnan(multipliers).any():
            rest = elimination.multipliers(combination - multipliers @ G)
            target[:] = 0.0
            target[rows[~is_equal]] = multipliers / unit[~is_equal]
            target[rows[is_equal]] = rest / unit[is_equal]
    return w.reshape(d, d), a, ray


def least_distance(G: Array, h: Array) -> tuple[Array, Array, Array]:
    """Return w, multipliers, ray of  min ||w|| s.t. G w >= h, each NaN where there is none.

    The right-hand side is scaled by a power of two until ||w|| is about one: then neither block of
    the least-squares problem drowns the other.
    """
    N, p = G.shape
    w, a, ray = np.full(p, np.nan), np.full(N, np.nan), np.full(N, np.nan)
    if N == 0 or (h <= 0).all():
        return np.zeros(p), np.zeros(N), ray
    R = np.linalg.qr(G.T, mode="r") if N < p else G.T  # same Gram matrix, fewer rows
    size = power_of_two(np.abs(h).max()).item()
    for _ in range(4):
        answer = _nonnegative_least_squares(np.vstack([R, h / size]))
        if answer is None:
            return w, a, ray
        u = answer
        residual = R @ u
        last = 1.0 - (h / size) @ u
        length = np.linalg.norm(residual) / last if last > 0 else np.inf
        if length < 8.0 or not np.isfinite(length) or size * length > 1e18:
            break
        size *= power_of_two(np.array(length)).item()
    support = np.asarray(u > 0)
    a[:], w = _polish(G, h, support, u * size / last if last > 0 else u)
    ray[:] = _polish_ray(G, h, support, u)
    return w, a, ray


def power_of_two(x: Array) -> Array:
    """Return the power of two nearest to x, exactly; 1 where x is 0."""
    return np.asarray(np.exp2(np.round(np.log2(np.where(x > 0, x, 1.0)))))


def _nonnegative_least_squares(A: Array) -> Array | None:
    """Return argmin_{u >= 0} ||A u - e_last||, or None if the solver gives up."""
    target = np.zeros(A.shape[0])
    target[-1] = 1.0
    try:
        return np.asarray(nnls(A, target, maxiter=10 * A.shape[1] + 100)[0])
    except RuntimeError:
        return None


def _polish(G: Array, h: Array, support: NDArray[np.bool_], a: Array) -> tuple[Array, Array]:
    """Return multipliers and w with all margins of the support equal to h.

    w is the least-norm solution of G_P w = h_P, from G_P^T = Q R:  w = Q R^{-T} h_P, a_P = R^{-1}
    R^{-T} h_P. Kept as it was where the rows are dependent or a multiplier turns negative.
    """
    w = a @ G
    if not support.any() or support.sum() > G.shape[1]:
        return a, w
    Q, R = np.linalg.qr(G[support].T)
    diagonal = np.abs(np.diag(R))
    if diagonal.min() <= 1e-14 * diagonal.max():
        return a, w
    y = np.linalg.solve(R.T, h[support])
    polished = np.zeros_like(a)
    polished[support] = np.linalg.solve(R, y)
    return (polished, Q @ y) if polished.min() >= 0 else (a, w)


def _polish_ray(G: Array, h: Array, support: NDArray[np.bool_], u: Array) -> Array:
    """Return u moved, on its support, to the null space of G^T: the least singular direction."""
    if not support.any():
        return u
    rows = G[support] * u[support, None]  # scaled, the sought combination is near (1, ..., 1)
    left = np.linalg.svd(rows.T, full_matrices=True)[2][-1] if rows.size else np.ones(0)
    left = left * np.sign(left.sum())
    polished = np.zeros_like(u)
    polished[support] = left * u[support]
    return polished if polished.min() >= 0 and h @ polished > 0 else u
