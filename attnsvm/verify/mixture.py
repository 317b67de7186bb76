"""`probe=mixture`: the mixture of tokens that scores best, proved by its optimality conditions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.heads import HeadAndLoss
from attnsvm.verify.history import Curve
from attnsvm.verify.instances import Instance
from attnsvm.verify.tokens import Scores
from attnsvm.verify.weights import Attention

CLEAR = 1e-6
"""Attention, slack, log-ratio or relative singular value at which a record takes a mixture for
known, and relative eigenvalue of a Gram matrix for its W_fin."""

UNCLEAR = 10.0
"""Factor around it within which rounding may have decided."""

ERROR = 1e-7
"""Largest error of both quantities, relative to one and to the condition of the equations."""


def mixture_curves(
    W: Array, found: Attention, instance: Instance, head: HeadAndLoss, trained: bool
) -> dict[str, Curve]:
    """Return the distances of attention and W_fin from the prediction, with error bounds.

    Empty where it depends on rounding whether the mixture is known.

    Parameters
    ----------
    W, found : Array (S, d, d), Attention
        The weights and their attention.
    instance, head
        Tokens, labels and head.
    trained : bool
        Whether the head is trained, so that no mixture is known before; nor is one with a vector
        for every sample.
    """
    by_sample = np.ndim(instance.head.get("v", 0.0)) == 2
    if trained or by_sample or head.kind not in ("Linear", "Relu", "Quadratic"):
        return {"apart": _nothing(W), "fin": _nothing(W)}
    gamma = np.where(instance.mask, Scores.of(instance, head).gamma, -np.inf)
    rows = [_mixture(instance, head, i, row) for i, row in enumerate(gamma)]
    if any(known is False for _, known in rows):
        return {"apart": _nothing(W), "fin": _nothing(W)}
    if any(known is None for _, known in rows):
        return {}
    s = np.stack([row for row, _ in rows])
    softmax = np.where(instance.mask, np.exp(found.log_softmax), 0.0)
    error = np.expm1(np.minimum(found.error, 700.0)).max((-2, -1))
    apart = 0.5 * np.abs(softmax - s).sum(-1).max(-1)
    curves = {"apart": (apart, ERROR + error)}
    fin = _fin(W, instance, s)
    return curves if fin is None else {**curves, "fin": fin}


def _nothing(W: Array) -> Curve:
    return np.full(len(W), np.nan), np.zeros(len(W))


def _mixture(
    instance: Instance, head: HeadAndLoss, i: int, gamma: Array
) -> tuple[Array, bool | None]:
    """Return the best mixture of sample i of scores gamma (T,), and whether a record knows it.

    None: rounding may have decided.
    """
    X, mask, Y = instance.X[i], instance.mask[i], instance.Y[i]
    concave = Y < 0 if head.kind == "Relu" else Y > 0
    if head.kind == "Relu" and concave:
        return gamma, False
    if head.kind == "Quadratic" and concave and head.lam > 0:
        return _best(X, instance.head["v"], head.lam, mask)
    least = -np.sort(-gamma)[:2]
    gap = np.inf if len(least) < 2 else least[0] - least[1]
    return (gamma == least[0]).astype(float), _clear(gap)


def _clear(value: float) -> bool | None:
    """Return whether a value is above CLEAR; None where rounding may have decided it."""
    if value > UNCLEAR * CLEAR:
        return True
    return False if value < CLEAR / UNCLEAR else None


def _best(X: Array, v: Array, lam: float, mask: NDArray[np.bool_]) -> tuple[Array, bool | None]:
    """Return the mixture of tokens X (T, d) of largest v^T o - lam ||o||^2, o = X^T s.

    s is proved by g_t = s^T g where s_t > 0 and g_t < s^T g elsewhere, g_t = x_t^T (v - 2 lam o).
    """
    from scipy.optimize import nnls

    size = np.linalg.norm(X[mask], axis=1).max()
    unit = size * (np.linalg.norm(v) + 2 * lam * size)

    def slack(s: Array) -> Array:
        g = X @ (v - 2 * lam * (s @ X))
        return np.asarray((s @ g - g) / unit)

    one = np.zeros(len(X))
    one[np.where(mask, X @ v - lam * np.square(X).sum(1), -np.inf).argmax()] = 1.0
    known = _clear(float(slack(one)[mask & (one == 0)].min(initial=np.inf)))
    if known is not False:
        return one, known
    A = 2 * lam * X[mask] - v
    A = A / (np.abs(A).max() or 1.0)
    u, _ = nnls(np.vstack([A.T, np.ones(len(A))]), np.append(np.zeros(A.shape[1]), 1.0))
    on = np.zeros(len(X), dtype=bool)
    on[mask] = u > 0
    D = X[on][1:] - X[on][0]
    sigma = np.linalg.svd(D, compute_uv=False)
    independent = float(sigma[-1] / sigma[0]) if 0 < len(D) == len(sigma) else float(not len(D))
    if (known := _clear(independent)) is not True:
        return one, known
    w = np.linalg.solve(D @ D.T, D @ v / (2 * lam) - D @ X[on][0])
    s = np.zeros(len(X))
    s[on] = [1 - w.sum(), *w]
    left = slack(s)
    if (np.abs(left[on]) > 1e-13).any() or (left[mask & ~on] < -1e-13).any():
        return s, None
    clear = [_clear(value) for value in (*s[on].tolist(), *left[mask & ~on].tolist())]
    return s, False if False in clear else None if None in clear else True


def _fin(W: Array, instance: Instance, s: Array) -> Curve | None:
    """Return ||P W - W_fin||_F / ||W_fin||_F by the pseudo-inverse of the equations."""
    rows, ratios = [], []
    for X, z, mixture in zip(instance.X, instance.Z, s, strict=True):
        first = int(mixture.argmax())
        for t in np.flatnonzero(mixture):
            if t != first:
                rows.append(np.outer(X[first] - X[t], z).ravel())
                ratios.append(np.log(mixture[first] / mixture[t]))
    b = np.array(ratios)
    known = _clear(float(np.abs(b).max(initial=0.0)))
    if known is not True:
        return _nothing(W) if known is False else None
    E = np.array(rows)
    sigma = np.linalg.svd(E, compute_uv=False)
    least = sigma[-1] ** 2 / np.square(sigma).sum() if len(sigma) == len(E) else 0.0
    known = _clear(float(least))
    if known is not True:
        return _nothing(W) if known is False else None
    inverse = np.linalg.pinv(E)
    W_fin = inverse @ b
    projected = np.array([inverse @ (E @ V.ravel()) for V in W])
    size = np.linalg.norm(W_fin)
    value = np.linalg.norm(projected - W_fin, axis=1) / size
    reach = np.linalg.norm(W.reshape(len(W), -1), axis=1) / size
    condition = float(sigma[0] / sigma[-1])
    return value, ERROR * condition * (1 + value) + 64 * E.size * EPS * condition**2 * reach
