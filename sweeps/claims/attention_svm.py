"""arXiv 2308.16898, the SVM and regularisation paths: Lemma 1, Theorems 1 and 2."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ._claim import FAILS, HOLDS, Claim, Evidence, Rule, Truths, runs
from ._conditions import (
    APART,
    FEASIBLE,
    KQ_TRAINED,
    NEAR,
    ONE_OPTIMUM,
    OVERPARAMETERISED,
    W_TRAINED,
    feasible,
)

# --- Theorem 1 ------------------------------------------------------------------------------------

FEASIBILITY = Claim(
    name="feasibility",
    paper="2308.16898",
    number="Theorem 1",
    title="d >= max(T - 1, n) makes the SVM feasible",
    statement="d >= max(T - 1, n)  =>  for almost all (X_i, z_i), also with z_i = x_i1, some W has "
    "(x_i,opt - x_it)^T W z_i >= 1 for all i and t != opt_i",
    hypotheses=OVERPARAMETERISED | ONE_OPTIMUM,
    prediction=[
        ("frobenius_status == 'solved'", HOLDS),
        ("frobenius_status == 'infeasible'", FAILS),
        (True, "SVM undecided"),
    ],
    runs=runs("svms"),
    tolerance="none: a solution or a Farkas ray proves it",
)

# --- Lemma 1 --------------------------------------------------------------------------------------

OUTSIDE = 1e-7
"""Largest part of a solution outside the span of the queries, relative, in Frobenius norm."""


def outside(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the larger ||W (I - P)||_F / ||W||_F of both SVMs, P the projection on span(z_i)."""
    parts = []
    for norm in ("frobenius", "nuclear"):
        W, Z = arrays[f"{norm}_W"], arrays["Z"]
        P = np.linalg.pinv(Z) @ Z
        sizes = [np.linalg.norm(M, axis=(1, 2)) for M in (W - W @ P, W)]
        parts.append(sizes[0] / sizes[1])
    largest: np.ndarray = np.max(parts, axis=0)
    return largest


def low_rank(evidence: Evidence) -> list[Rule]:
    """Return whether rank <= min(n, d), for every optimum, and the row space is in span(z_i)."""
    largest = evidence.trials[["n", "d"]].min(axis=1)
    ranks = evidence.trials[["frobenius_rank", "nuclear_rank"]].max(axis=1, skipna=False)
    parts = evidence.from_arrays(outside)
    return [
        ((ranks > largest) | (parts > OUTSIDE), FAILS),
        ((ranks <= largest) & (parts <= OUTSIDE), HOLDS),
        (True, "rank not known"),
    ]


RANK = Claim(
    name="svm_rank",
    paper="2308.16898",
    number="Lemma 1",
    title="solutions of the SVM have rank <= min(n, d)",
    statement="rank W_mm <= min(n, d) and rank W_star_mm <= min(n, d): "
    "their row spaces lie in span{z_1, ..., z_n}",
    hypotheses=FEASIBLE | feasible("Att-SVM* is solved", "nuclear"),
    prediction=low_rank,
    runs=runs("svms"),
    tolerance="rank: singular values above 1e-6 of the largest; part outside of the span <= 1e-7, "
    "as the solutions are certified to a gap of 1e-9",
)

# --- Theorem 2 ------------------------------------------------------------------------------------

EXCESS = 1e-6
"""Largest log (L - L*)(W) - log (L - L*)(SVM) of a minimiser."""


def minimises(evidence: Evidence, norm: str) -> Truths:
    """Return whether the end of a regularisation path is a global minimiser, as far as is known.

    Not if it selects other tokens than the optimal ones, nor if the SVM solution of the same norm
    has a smaller excess risk L - L*: then it is another local minimum, or a saddle.
    """
    worse = evidence.from_arrays(partial(_excess_above_svm, norm=norm))
    kind = evidence["convergence"]
    other = kind.isin(("local", "not_local", "unsettled", "unsaturated"))
    return evidence.truths((kind == "global") & (worse <= EXCESS), other | worse.notna())


def _excess_above_svm(arrays: Mapping[str, np.ndarray], norm: str) -> np.ndarray:
    """Return log of the ratio of L - L* at the trained W and at the SVM scaled to its norm."""
    W, W_svm = arrays["trained_W"], arrays[f"{norm}_W"]
    order = 2 if norm == "frobenius" else 1
    sizes = [np.linalg.norm(np.linalg.svd(M, compute_uv=False), order, axis=1) for M in (W, W_svm)]
    scaled = W_svm * (sizes[0] / sizes[1])[:, None, None]
    above: np.ndarray = _log_excess(arrays, W) - _log_excess(arrays, scaled)
    return above


def _log_excess(arrays: Mapping[str, np.ndarray], W: np.ndarray) -> np.ndarray:
    """Return log of sum_i |loss'(gamma_opt)| sum_t s_it (gamma_opt - gamma_it), logistic loss.

    It is n (L - L*) of a linear head to first order in the softmax of the other tokens.
    """
    gamma, mask = arrays["scores"], arrays["mask"]
    logits = np.where(mask, np.einsum("bntd,bde,bne->bnt", arrays["X"], W, arrays["Z"]), -np.inf)
    log_s = logits - logsumexp(logits, axis=2, keepdims=True)
    best = gamma.max(axis=2)
    with np.errstate(divide="ignore"):
        lost = np.log(np.where(mask, best[:, :, None] - gamma, 0.0))
    each = logsumexp(log_s + lost, axis=2) - np.logaddexp(0.0, best)
    total: np.ndarray = logsumexp(each, axis=1)
    return total


def _path(kq: bool, **parts: Any) -> Claim:
    """Return the claim that the regularisation path of W, or of (K, Q), ends near the SVM.

    W_R at the largest R is W_mm, or K_R Q_R^T has the largest nuclear margin.
    """
    W, norm = ("(K_R, Q_R)", "nuclear") if kq else ("W_R", "frobenius")
    minimiser = {f"{W} is a global minimiser, as far as is known": partial(minimises, norm=norm)}
    apart = "nuclear_margin_gap" if kq else APART
    return Claim(
        paper="2308.16898",
        hypotheses=parts.pop("hypotheses") | minimiser,
        prediction=[
            (f"{apart} <= {NEAR}", HOLDS),
            (f"{apart} > {NEAR}", FAILS),
            (True, "SVM undecided"),
        ],
        **parts,
    )


PATH_W = _path(
    kq=False,
    name="path_w",
    number="Theorem 2, W",
    title="the regularisation path of W goes to the SVM of least Frobenius norm",
    statement="W_R = argmin { L(W) : ||W||_F <= R }  =>  W_R / R -> W_mm / ||W_mm||_F as R -> inf",
    hypotheses=W_TRAINED | ONE_OPTIMUM | FEASIBLE,
    runs=runs("path"),
    tolerance="1 - correlation <= 1e-3 at R = 30 000: it falls like 1 / R^2. W_R is no global "
    "minimiser if it selects other tokens, or if W_mm scaled to its norm has a lower risk. "
    "Its risk bounds 1 - correlation by a multiple of ||W_mm|| / R, about 1e-3 here: this confirms "
    "the theorem, and could hardly refute it",
)

PATH_KQ = _path(
    kq=True,
    name="path_kq",
    number="Theorem 2, (K, Q)",
    title="the regularisation path of (K, Q) goes to an SVM of least nuclear norm",
    statement="(K_R, Q_R) = argmin { L(K Q^T) : ||K||_F^2 + ||Q||_F^2 <= 2R }  =>  "
    "dist(K_R Q_R^T / R, SVM solutions of nuclear norm 1) -> 0 as R -> inf",
    hypotheses=KQ_TRAINED | ONE_OPTIMUM | feasible("Att-SVM is feasible", "nuclear"),
    runs=runs("path"),
    tolerance="margin gap 1 - rho <= 1e-3 at R = 30 000, which is 0 exactly at the solutions, of "
    "which there may be several. (K_R, Q_R) is no global minimiser if it selects other tokens, or "
    "if W_star_mm scaled to its norm has a lower risk, as at saddles of rank < rank W_star_mm. "
    "Its risk bounds the gap by a multiple of ||W_star_mm||_* / R, about 1e-3 here: this confirms "
    "the theorem, and could hardly refute it",
)

PATH_KQ_M = _path(
    kq=True,
    name="path_kq_m",
    number="Theorem 2, (K, Q) with m < d",
    title="with m < d columns it goes to an SVM of least nuclear norm and rank <= m",
    statement="K, Q in R^(d x m), (K_R, Q_R) as in path_kq  =>  dist(K_R Q_R^T / R, solutions of "
    "min ||W||_* with margins >= 1 and rank W <= m, scaled to nuclear norm 1) -> 0",
    hypotheses=ONE_OPTIMUM | feasible("Att-SVM* of rank <= m is solved", "nuclear"),
    runs=runs("path_m"),
    tolerance="as in path_kq; the SVM of rank <= m is not convex: it is undecided, and so is the "
    "hypothesis, where the convex one has a larger rank",
)
