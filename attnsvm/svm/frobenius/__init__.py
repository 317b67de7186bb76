r"""Least Frobenius norm: least-distance programming by non-negative least squares.

With w = vec(W) and rows g_k = vec(d_k z_k^T) the problem is  min ||w||  s.t.  G w >= h. Lawson and
Hanson (Solving Least Squares Problems, chapter 23) solve it by

    min_{u >= 0} || [G^T; h^T] u - e_last ||,      residual r = [G^T; h^T] u - e_last:

r = 0 means infeasible and u is the Farkas ray (G^T u = 0, h^T u = 1); otherwise
w = - r_{1..p} / r_last and the multipliers are a = - u / r_last.

Well-conditioned instances are solved together from their Gram matrices (`active_set`), the others
one by one from their rows; on the CPU, whatever the device of the problem.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.display.pace import each
from attnsvm.linalg.jit import in_parts
from attnsvm.svm.equalities import contradiction, eliminate
from attnsvm.svm.frobenius import active_set
from attnsvm.svm.problem import EQUALITY, SvmProblem, power_of_two
from attnsvm.svm.solution import Candidate

Array = NDArray[np.float64]

SHARED = 2**21
"""Instances times N^3 of a part of the batch: with less, another core costs more than it saves."""

NOISE = 1e-15
"""Multipliers of unit rows below this, relative to the largest, are rounding noise."""


def least_norm(problem: SvmProblem) -> Candidate:
    """Return W, multipliers and rays: from Gram matrices where those are accurate, else from rows.

    NaN where there is none.
    """
    device, problem = problem.D.device, problem.to("cpu")
    a, optimal = _from_gram(problem)
    W, ray = problem.combine(a), torch.full_like(a, torch.nan)
    if not optimal.all():
        W[~optimal], a[~optimal] = torch.nan, torch.nan
        left = (~optimal & (problem.h != 0).any(dim=1)).nonzero()[:, 0]
        rows = problem.take(left)
        arrays = zip(*(x.numpy() for x in (rows.D, rows.queries, rows.h, rows.kind)), strict=True)
        for b, of_instance in zip(each("instance", left.tolist()), arrays, strict=True):
            w, a[b], ray[b] = map(torch.from_numpy, _from_rows(*of_instance))
            W[b] = w.reshape(W.shape[1:])
    return Candidate(W.to(device), a.to(device), ray.to(device))


def _from_gram(problem: SvmProblem) -> tuple[Tensor, Tensor]:
    """Return multipliers (B, N) and whether they are optimal (B,), from Gram matrices."""
    (B, N), D, Z = problem.h.shape, problem.D, problem.Z
    arrays = [x.numpy() for x in (D @ D.mT, Z @ Z.mT, problem.h, problem.kind)]

    def part(first: int, end: int) -> tuple[Array, NDArray[np.bool_]]:
        return active_set.solve_each(*(x[first:end] for x in arrays))

    a, optimal = map(np.concatenate, zip(*in_parts(part, B, B * N**3 // SHARED), strict=True))
    return torch.from_numpy(a), torch.from_numpy(optimal)


def _from_rows(
    D: Array, queries: Array, h: Array, kind: NDArray[np.int8]
) -> tuple[Array, Array, Array]:
    """Return W (d e,), multipliers (N,) and ray (N,) of one instance, D (N, d), queries (N, e)."""
    (N, d), e, rows = D.shape, queries.shape[1], np.flatnonzero(kind)
    a, ray = np.full(N, np.nan), np.full(N, np.nan)
    G = (D[rows, :, None] * queries[rows, None, :]).reshape(rows.size, d * e)
    unit = _power_of_two(np.linalg.norm(G, axis=1))
    G, h = G / unit[:, None], h[rows] / unit
    is_equal = kind[rows] == EQUALITY
    E, G, h_E, h = G[is_equal], G[~is_equal], h[is_equal], h[~is_equal]
    known = eliminate(E, h_E)

    def set_rows(target: Array, of_inequalities: Array | float, of_equalities: Array) -> None:
        target[:] = 0.0
        target[rows[~is_equal]] = of_inequalities / unit[~is_equal]
        target[rows[is_equal]] = of_equalities / unit[is_equal]

    contrary = contradiction(E, h_E, known.origin)
    if contrary is not None:
        set_rows(ray, 0.0, contrary)
        return np.full(d * e, np.nan), a, ray
    v, u, direction = least_distance(known.project(G), h - G @ known.origin)
    w = known.origin + v
    for multipliers, combination, target in ((u, w, a), (direction, np.zeros(d * e), ray)):
        if not np.isnan(multipliers).any():
            rest = np.zeros(len(E))  # E^T rest = combination - G^T multipliers
            missing, independent = combination - multipliers @ G, known.independent
            if independent.size:
                rest[independent] = np.linalg.lstsq(E[independent].T, missing, rcond=None)[0]
            set_rows(target, multipliers, rest)
    return w, a, ray


def least_distance(G: Array, h: Array) -> tuple[Array, Array, Array]:
    """Return w, multipliers, ray of  min ||w|| s.t. G w >= h, each NaN where there is none.

    The right-hand side is scaled by a power of two until ||w|| is about one: then both blocks of
    the least-squares problem have similar sizes.
    """
    from scipy.optimize import nnls  # its import is slow, and few instances need it

    N, p = G.shape
    w, a, ray = np.full(p, np.nan), np.full(N, np.nan), np.full(N, np.nan)
    if N == 0 or (h <= 0).all():
        return np.zeros(p), np.zeros(N), ray
    R = np.asarray(np.linalg.qr(G.T, mode="r")) if N < p else G.T  # same Gram matrix, fewer rows
    size, target = _power_of_two(np.abs(h).max()).item(), np.append(np.zeros(len(R)), 1.0)
    for _ in range(4):
        try:
            u = np.asarray(nnls(np.vstack([R, h / size]), target, maxiter=10 * N + 100)[0])
        except RuntimeError:
            return w, a, ray
        last = 1.0 - (h / size) @ u
        length = np.linalg.norm(R @ u) / last if last > 0 else np.inf
        if length < 8.0 or not np.isfinite(length) or size * length > 1e18:
            break
        size *= _power_of_two(np.array(length)).item()
    a[:], w = _polish(G, h, u > 0, u * size / last if last > 0 else u)
    if last < 1e-3:  # last = 1 / (1 + ||w||^2), which is above 1 / 65 for a solution ||w|| < 8
        # a multiplier that is rounding noise has a column near zero, which would be the null vector
        ray[:] = _polish_ray(R, h, u > NOISE * u.max(), u)
    return w, a, ray


def _power_of_two(x: Array) -> Array:
    """Return the power of two nearest to x; 1 where x is 0."""
    return power_of_two(torch.as_tensor(x)).numpy()


def _polish(G: Array, h: Array, support: NDArray[np.bool_], a: Array) -> tuple[Array, Array]:
    """Return multipliers and w with all margins of the support equal to h.

    w is the least-norm solution of G_P w = h_P, from G_P^T = Q R:  w = Q R^{-T} h_P, a_P = R^{-1}
    R^{-T} h_P. Unchanged where the rows are dependent or a multiplier becomes negative.
    """
    w = a @ G
    if not support.any() or support.sum() > G.shape[1]:
        return a, w
    Q, R = np.linalg.qr(G[support].T)
    diagonal = np.abs(np.diag(R))
    if diagonal.min() <= 1e-14 * diagonal.max():
        return a, w
    from scipy.linalg import solve_triangular  # its import is slow, and few instances need it

    y = solve_triangular(R, h[support], trans="T")
    polished = np.zeros_like(a)
    polished[support] = solve_triangular(R, y)
    return (polished, Q @ y) if polished.min() >= 0 else (a, w)


def _polish_ray(R: Array, h: Array, support: NDArray[np.bool_], u: Array) -> Array:
    """Return u moved, on its support, to the null space of R (R^T R = G G^T)."""
    if not support.any():
        return u
    columns = R[:, support] * u[support]  # so scaled, the null vector is near (1, ..., 1)
    null = np.linalg.svd(columns)[2][-1]
    polished = np.zeros_like(u)
    polished[support] = null * np.sign(null.sum()) * u[support]
    return polished if polished.min() >= 0 and h @ polished > 0 else u
