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

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from attnsvm.norm import Norm
from attnsvm.norm.rows import Rows

STEPS = 15
SLACK = 1e-11
"""Tolerance of margins, relative to h_k, when rows enter or leave the active ones."""

CLOSE, SETTLED = 1e-3, 1e-12
"""Sizes of a step, relative to the point, after which it is proposed, and after which Newton's
method has converged."""

GUESSES = tuple(itertools.product((1.0, 1e-2, 1e2, 1e-4), (1e-13, 1e-8)))
"""tau: which rows and entries are active; where small singular values of the equations are cut
(nearly equal rows need a coarse cut, nearly contradictory rows a fine one)."""

FLAT = 1e-14
"""Slopes of the proximal map below this count as zero."""

MOST_ENTRIES = 1200
"""Most unknowns of the equations: with more they are too expensive."""


def polish(rows: Rows, W: Tensor, a: Tensor, norm: Norm) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield W (1, p, q) and a (1, N, 1) after each step, guess after guess, until the caller stops.

    The rows are those of one instance, of about unit size. The active ones are corrected as in an
    active-set method: violated rows enter; rows leave if their multiplier is negative, or if they
    contradict the others.
    """
    size, dual = norm.value(W).item(), norm.dual.value(rows.combine(a)).item()
    if not (0 < size < torch.inf and 0 < dual < torch.inf):
        return
    W, a, h, free = W / size, a / dual, rows.h / size, ~rows.inequality
    unit = torch.where(h > 0, h, h.amax())
    for tau, cut in GUESSES:
        X, y = W + tau * rows.combine(a), a
        active = free | (tau * a > rows.margins(W) - h)
        for _ in range(STEPS):
            if not active.any():
                break
            try:
                X_new, y = _step(rows, h, active, X, y, tau, cut, norm)
                if not X_new.isfinite().all():
                    break
                V = norm.prox(X_new[0], tau)[0][None]
            except torch.linalg.LinAlgError:  # an SVD that does not converge
                break
            if not V.any():
                break
            moved, X = (X_new - X).abs().max() / X.abs().max(), X_new
            settled = bool(moved < SETTLED)
            if moved < CLOSE:
                yield size * V, y
            missed = rows.margins(V) - h
            enter = ~active & (missed < -SLACK * unit)
            leave = active & ~free & ((y < 0) | (settled & (missed > SLACK * unit)))
            if settled and not enter.any() and not leave.any():
                break
            active = (active | enter) & ~leave


def _step(
    rows: Rows, h: Tensor, active: Tensor, X: Tensor, a: Tensor, tau: float, cut: float, norm: Norm
) -> tuple[Tensor, Tensor]:
    """Return X and a after a Newton step on the active rows."""
    V, derivative = norm.prox(X[0], tau)
    if norm.separable:
        slopes = derivative(torch.ones_like(V)).flatten()
        E = one_hot((slopes > FLAT).nonzero()[:, 0], X.numel()).T.to(X)
    else:
        basis = torch.eye(X.numel(), dtype=X.dtype).reshape(-1, *X.shape[1:])
        slopes, E = torch.linalg.eigh(derivative(basis).flatten(1))
        E = E[:, slopes > FLAT]
    slopes = slopes[slopes > FLAT]
    y, at = torch.where(active, a, 0.0), active[0, :, 0]
    rest, k = (V + tau * rows.combine(y) - X).flatten(), E.shape[1]
    along = rows.margins(E.T.reshape(k, *X.shape[1:]))[:, at, 0].T
    upper = torch.cat([(1 - slopes).diag(), -tau * along.T], 1)
    equations = torch.cat(
        [upper, torch.cat([along * slopes, along.new_zeros(len(along), len(along))], 1)]
    )
    right = torch.cat([E.T @ rest, (h - rows.margins(V[None]))[0, at, 0]])
    step = torch.linalg.lstsq(equations, right[:, None], rcond=cut, driver="gelsd")[0][:, 0]
    da = torch.zeros_like(a)
    da[0, at, 0] = step[k:]
    outside = rest + tau * rows.combine(da).flatten()
    dX = E @ step[:k] + outside - E @ (E.T @ outside)
    return X + dX.reshape(X.shape), y + da
