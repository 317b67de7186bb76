"""The weights of `init=aligned`, which follow from the instance: against the gradient at W = 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.heads import HeadAndLoss
from attnsvm.verify.instances import Instance

TO_ROUNDING = 1e-13
"""Largest relative error of a gradient whose direction is known."""


def aligned_weights(config: Mapping[str, Any], instance: Instance, head: HeadAndLoss) -> Any:
    """Return W0 = -init_scale G / ||G||_F, or its nearest matrix of rank m; None: not decided.

    G = sum_i sum_t q_it x_it z_i^T with q_it = (x_it - o_i)^T r_i / T_i, where o_i is the mean of
    the T_i admissible tokens and r_i = dL/do_i.
    """
    X, Z, mask = instance.X, instance.Z, instance.mask
    count = mask.sum(-1, keepdims=True)
    s = mask / count
    o = np.einsum("nt,ntd->nd", s, X)
    value, _ = head.value(o, 0.0, instance.head)
    slope, of_head = head.slope(instance.Y * value), head.gradient(o, instance.head)
    if of_head is None:
        return None
    R = (slope * instance.Y / len(X))[:, None] * of_head
    q = s * np.einsum("ntd,nd->nt", X - o[:, None], R)
    G = np.einsum("nt,ntd,ne->de", q, X, Z)
    lengths = np.linalg.norm(X, axis=-1)
    terms = s * lengths.max(-1, keepdims=True) * np.linalg.norm(R, axis=-1)[:, None] * lengths
    error = 16 * X.shape[-1] * EPS * (terms.sum(-1) * np.linalg.norm(Z, axis=-1)).sum()
    size = np.linalg.norm(G)
    if not error <= TO_ROUNDING * size:
        return None
    return _of_rank(-config["optimizer"]["init_scale"] * G / size, config["parameterization"])


def _of_rank(W0: Array, parameterization: Mapping[str, Any]) -> Any:
    """Return the nearest matrix of the rank that (K, Q) allow; None where it is not unique."""
    m = parameterization.get("m") or len(W0)
    if m == len(W0):
        return W0
    U, sigma, Vh = np.linalg.svd(W0)
    if sigma[m] > 1e-12 * sigma[0] and sigma[m - 1] - sigma[m] < 1e-2 * sigma[0]:
        return None
    return U[:, :m] * sigma[:m] @ Vh[:m]
