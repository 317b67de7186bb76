"""The margin gap of Gen-SVM: how far the norm of W is above the least one with its softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnsvm.verify.constraints import StoredSvm
from attnsvm.verify.exact import EPS, Exact
from attnsvm.verify.norms import computed, upper_bound
from attnsvm.verify.svm_columns import Rows


def attained_gap(at: Mapping[str, Any], norm: str, one_token: StoredSvm) -> tuple[float, float]:
    """Return 1 - C h^T a / (dual_norm(M(a)) norm(W)) and its error bound; NaN without multipliers.

    With rows d_k, z_k of the most attended tokens alpha_i against the others, the trained W has
    margins d_k^T W z_k = C h_k at attended tokens and >= C h_k, h_k = 1, at the others, so that
    norm(W) is at least C h^T a / dual_norm(M(a)) for every a, a_k >= 0 at the others.

    Parameters
    ----------
    at : mapping
        The stored arrays of an instance of selection=multi.
    norm : str
        The norm.
    one_token : StoredSvm
        Has the same rows: the most attended tokens against the others.
    """
    a = at[f"{norm}_attained_multipliers"]
    log_s, attended, mask = at["log_softmax"], at["attended"], at["mask"]
    n, T = log_s.shape
    others = mask & (np.arange(T) != at["selected"][:, None])
    outside = others & ~attended
    if not (np.isfinite(a).all() and a.any() and outside.any()):
        return math.nan, 0.0
    rows = Rows(replace(one_token, multipliers=a))
    first = np.take_along_axis(log_s, at["selected"][:, None], 1)
    ratio = np.where(others, first - np.where(mask, log_s, 0.0), 0.0)
    C = ratio[outside].min()
    weights = np.zeros((n, T))
    weights[np.arange(T) != at["selected"][:, None]] = a
    if (weights[outside] < 0).any() or weights[~others].any():
        return math.nan, 0.0
    terms = weights * np.where(outside, C, ratio)
    size = float(upper_bound(Exact.of(rows.combined()), norm, dual=True)[0])
    W = at["trained_W"]
    sizes = size * computed(W, norm)
    if not sizes > 0:
        return math.nan, 0.0
    bound = float(terms.sum()) / sizes
    scaled = np.zeros((n, T))
    scaled[np.arange(T) != at["selected"][:, None]] = rows.multipliers
    reach = np.abs(scaled) * rows.scale
    lost = reach.sum() / size + np.abs(terms).sum() / max(abs(float(terms.sum())), 1e-300)
    return 1 - bound, 64 * (len(W) + T) * EPS * (abs(bound) * lost + 1)
