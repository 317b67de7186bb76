r"""Newton's method on the optimal face: the last digits of a solution, in every norm.

A pair (W, a) is optimal where X = W + tau M(a) has W = prox(X), the minimiser of tau norm(W) +
||W - X||_F^2 / 2 (of tau sum |w_i|^p / p for l_p and Schatten p), and the active rows hold. With
prox(X) = V and its derivative P at X, S the active rows and A_S W their margins, a Newton step is

    (I - P) dX - tau A_S^T da_S = V + tau M(a) - X,      A_S P dX = h_S - A_S V.

prox acts on the entries of X or on its singular values, so that the eigenvectors E of P are plain
in the basis of the entries, or in that of the singular vectors of X. Where P is zero (entries of W
that stay zero, l1; singular values that stay zero, nuclear; what stays at the bound, max and
spectral) dX is eliminated. Unlike an interior-point step this does not square the conditioning.
Multipliers of a degenerate vertex are not unique, so every step is the least-norm least-squares
solution.
"""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from attnsvm.norm import Entrywise, Norm, Schatten

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

STEPS = 15
SLACK = 1e-11
"""Tolerance of margins, relative to h_k, when rows enter or leave the active ones."""

CLOSE, SETTLED = 1e-3, 1e-12
"""Sizes of a step, relative to the point, after which it is proposed, and after which Newton's
method has converged."""

GUESSES = tuple(itertools.product((1.0, 1e-2, 1e2, 1e-4), (1e-13, 1e-8)))
"""tau: which rows and entries are active; where small singular values of the equations are cut
(nearly equal rows need a coarse cut, nearly contradictory rows a fine one)."""

MOST_ENTRIES = 1200
"""Most unknowns of the equations: with more they are too expensive."""

HALVINGS = 200


class Rows(NamedTuple):
    """Rows of one instance: A_k (N, p, q) of unit size, h (N,), and which are equalities."""

    A: Array
    h: Array
    free: Mask

    def margins(self, W: Array) -> Array:
        """Return <A_k, W>, (N,)."""
        return np.asarray(self.A.reshape(len(self.h), -1) @ W.ravel())

    def combine(self, a: Array) -> Array:
        """Return M(a), (p, q)."""
        return np.asarray(np.tensordot(a, self.A, 1))


def polish(rows: Rows, W: Array, a: Array, norm: Norm) -> Iterator[tuple[Array, Array]]:
    """Yield W (p, q) and a (N,) after each step, guess after guess, until the caller stops.

    The active rows are corrected as in an active-set method: violated rows enter; rows leave if
    their multiplier is negative, or if they contradict the others.
    """
    pairs = (norm, W), (norm.dual, rows.combine(a))
    size, dual = (float(of.value(torch.from_numpy(X))) for of, X in pairs)
    if not (0 < size < np.inf and 0 < dual < np.inf):
        return
    W, a, rows = W / size, a / dual, rows._replace(h=rows.h / size)
    unit = np.where(rows.h > 0, rows.h, rows.h.max())
    for tau, cut in GUESSES:
        y = a
        X = W + tau * rows.combine(y)
        active = rows.free | (tau * a > rows.margins(W) - rows.h)
        for _ in range(STEPS):
            if not active.any():
                break
            try:
                X_new, y = _step(rows, active, X, y, tau, cut, norm)
            except np.linalg.LinAlgError:  # an SVD that does not converge
                break
            if not (np.isfinite(X_new).all() and np.isfinite(y).all()):
                break
            moved, X = np.abs(X_new - X).max() / np.abs(X).max(), X_new
            V = proximal(X, tau, norm).V
            if not V.any():
                break
            settled = moved < SETTLED
            if moved < CLOSE:
                yield size * V, y
            missed = rows.margins(V) - rows.h
            enter = ~active & (missed < -SLACK * unit)
            leave = active & ~rows.free & ((y < 0) | (settled & (missed > SLACK * unit)))
            if settled and not enter.any() and not leave.any():
                break
            active = (active | enter) & ~leave


def _step(
    rows: Rows, active: Mask, X: Array, a: Array, tau: float, cut: float, norm: Norm
) -> tuple[Array, Array]:
    """Return X and a after a Newton step on the active rows."""
    V, E, slopes = proximal(X, tau, norm)
    y = np.where(active, a, 0.0)
    G = rows.A[active].reshape(int(active.sum()), -1)
    rest = (V + tau * rows.combine(y) - X).ravel()
    along, k = G @ E, E.shape[1]
    equations = np.block(
        [[np.diag(1 - slopes), -tau * along.T], [along * slopes, np.zeros((len(G), len(G)))]]
    )
    missing = rows.h[active] - G @ V.ravel()
    step = np.linalg.lstsq(equations, np.append(E.T @ rest, missing), rcond=cut)[0]
    y[active] += step[k:]
    outside = rest + tau * (step[k:] @ G)
    dX = E @ step[:k] + outside - E @ (E.T @ outside)
    return X + dX.reshape(X.shape), y


class Proximal(NamedTuple):
    """V = prox(X), and its derivative E diag(slopes) E^T with orthonormal E (p q, k)."""

    V: Array
    E: Array
    slopes: Array


def proximal(X: Array, tau: float, norm: Norm) -> Proximal:
    """Return the minimiser of tau norm(V) + ||V - X||_F^2 / 2 and its derivative."""
    if isinstance(norm, Entrywise):
        x = np.abs(X).ravel()
        v, slope, bound = _of_values(x, tau, norm.p)
        sign = np.where(X.ravel() < 0, -1.0, 1.0)
        kept = slope > 0
        E, slopes = np.eye(x.size)[:, kept], slope[kept]
        if bound.any():
            E = np.column_stack([E, np.where(bound, sign, 0.0) / math.sqrt(bound.sum())])
            slopes = np.append(slopes, 1.0)
        return Proximal((sign * v).reshape(X.shape), E, slopes)
    assert isinstance(norm, Schatten)
    return _of_singular_values(X, tau, norm.p)


def _of_singular_values(X: Array, tau: float, p: float) -> Proximal:
    """Return prox(X) = U diag(v) V^T: the parts (X_ij +- X_ji) / sqrt(2) are eigenvectors."""
    U, x, Vt = np.linalg.svd(X)
    v, slope, bound = _of_values(x, tau, p)
    r, shape = len(x), X.shape
    long_x, long_v, long_slope = (np.append(y, np.zeros(max(shape) - r)) for y in (x, v, slope))
    rows, columns = (np.arange(n) for n in shape)
    i, j = rows[:, None], columns[None, :]
    tiny = max(float(x[0]), 1e-300) * 1e-12
    plus = (long_v[i] + long_v[j]) / np.maximum(long_x[i] + long_x[j], tiny)
    apart = np.abs(long_x[i] - long_x[j])
    mean = 0.5 * (long_slope[i] + long_slope[j])
    minus = np.where(
        apart > 1e-9 * x[0],
        (long_v[i] - long_v[j]) / np.where(apart > 0, long_x[i] - long_x[j], 1.0),
        mean,
    )
    square = (i < r) & (j < r)
    values = np.where(square, np.where(i < j, minus, plus), plus)
    values[np.arange(r), np.arange(r)] = slope
    kept = np.argwhere(values > 1e-15)
    E = np.zeros((len(kept) + bool(bound.any()), *shape))
    for e, (k, l) in enumerate(kept):
        if k == l or k >= r or l >= r:
            E[e, k, l] = 1.0
        else:
            E[e, k, l], E[e, l, k] = math.sqrt(0.5), math.sqrt(0.5) * (1 if k < l else -1)
    slopes = values[kept[:, 0], kept[:, 1]]
    if bound.any():
        E[-1, np.arange(r), np.arange(r)] = bound / math.sqrt(bound.sum())
        slopes = np.append(slopes, 1.0)
    E = np.einsum("ab,ebc,cd->ead", U, E, Vt, optimize=True)
    return Proximal((U[:, :r] * v) @ Vt[:r], E.reshape(len(E), X.size).T, slopes)


def _of_values(x: Array, tau: float, p: float) -> tuple[Array, Array, Mask]:
    """Return prox of absolute values x, its slopes, and which are at the bound (p = inf).

    The slope of those at the bound is zero but along (1, ..., 1), where it is one.
    """
    nothing = np.zeros(len(x), dtype=bool)
    if p == 1:
        return np.maximum(x - tau, 0.0), (x > tau).astype(float), nothing
    if p == math.inf:
        ordered = np.sort(x)[::-1]
        levels = (np.cumsum(ordered) - tau) / np.arange(1, len(x) + 1)
        t = max(float(levels[np.flatnonzero(ordered >= levels)[-1]]), 0.0)
        bound = x > t
        return np.minimum(x, t), (~bound).astype(float), bound
    low, high = np.zeros(len(x)), x.copy()
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = middle + tau * middle ** (p - 1) > x
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    steepness = tau * (p - 1) * np.maximum(high, 1e-200) ** (p - 2)
    return high, 1 / (1 + steepness), nothing
