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
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from attnsvm.norm import Norm

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
            V = norm.prox(X, tau).V
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
    V, E, slopes = norm.prox(X, tau)
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
