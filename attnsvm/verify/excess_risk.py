"""`probe=excess_risk`: log(L - L*) from stored weights, with an error bound."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.heads import HeadAndLoss
from attnsvm.verify.history import Curve
from attnsvm.verify.instances import Instance
from attnsvm.verify.tokens import Scores
from attnsvm.verify.weights import Attention, relative

UNDERFLOW = 1e-300
"""An attention that is less than this, relative to the largest of its sample, may count as zero."""


def excess_curve(
    found: Attention, instance: Instance, head: HeadAndLoss, selected: NDArray[np.int64]
) -> Curve:
    """Return log(L - L*), (S,), L* the risk of attending to `selected` alone; NaN where L <= L*.

    With u_i* the score of the selected token, L - L* = (1/n) sum_i l(u_i* - D_i) - l(u_i*),
    D_i = sum_t s_it (u_i* - gamma_it); the s_it are relative to the largest one of their sample.

    Parameters
    ----------
    found : Attention
        Attention at S snapshots.
    instance, head
        Tokens, labels and head.
    selected : int array (n,)
        The selected tokens.
    """
    count = len(found.log_softmax)
    if head.kind != "Linear":
        return np.full(count, np.nan), np.zeros(count)
    scores, at = Scores.of(instance, head), selected[:, None]
    best, best_error = (np.take_along_axis(x, at, -1) for x in (scores.gamma, scores.error))
    gap = np.where(instance.mask, best - scores.gamma, 0.0)
    others = instance.mask & (np.arange(gap.shape[-1]) != at)
    gap_error = np.where(others, scores.error + best_error + EPS * np.abs(gap), 0.0)
    logs = np.where(others & (gap != 0), found.log_softmax, -np.inf)
    shift = logs.max(-1)
    shift = np.where(np.isfinite(shift), shift, 0.0)
    logs = logs - shift[..., None]
    s = np.exp(logs)
    apart = relative(found.error + 4 * EPS * (1 + np.where(s > 0, np.abs(logs), 0.0)))
    D = (s * gap).sum(-1)
    D_error = s * (gap_error + np.abs(gap) * (apart + gap.shape[-1] * EPS))
    D_error = (D_error + UNDERFLOW * np.abs(gap)).sum(-1)
    size = np.exp(shift)
    slope, exponent, slope_error = head.excess_slope(
        best[:, 0], best_error[:, 0], size * D, size * D_error
    )  # fmt: skip
    exponent = exponent + shift
    slope_error = slope_error + 4 * EPS * np.abs(slope) * (1 + np.abs(shift) + np.abs(exponent))
    top = np.where(np.abs(D) + D_error > 0, exponent, -np.inf).max(-1)
    top = np.where(np.isfinite(top), top, 0.0)
    scale = np.exp(np.minimum(exponent - top[:, None], 0.0))
    slope, slope_error = scale * slope, scale * slope_error
    total = (slope * D).mean(-1)
    error = (np.abs(slope) * D_error + slope_error * (np.abs(D) + D_error)).mean(-1)
    error = error + D.shape[-1] * EPS * np.abs(slope * D).mean(-1)
    return _logarithm(total, error, top)


def _logarithm(total: Array, error: Array, shift: Array) -> Curve:
    """Return shift + log(total) with its error bound: NaN for total <= 0, inf if undecided."""
    positive, negative = total > error, total + error <= 0
    value = shift + np.log(np.where(positive, total, 1.0))
    ratio = np.where(positive, error / np.where(positive, total, 1.0), 0.0)
    apart = -np.log1p(-ratio) + 8 * EPS * (1 + np.abs(shift) + np.abs(value))
    return np.where(negative, np.nan, value), np.where(positive | negative, apart, np.inf)
