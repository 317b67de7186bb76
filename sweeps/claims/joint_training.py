"""arXiv 2306.13596: a trained prompt, and W trained together with a linear head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from ._claim import CARRIED_OVER, FAILS, HOLDS, Claim, Evidence, Rule, Truths, runs
from ._conditions import GAP_FAR, GAP_NEAR, LIMITS, LOCALLY, SELECTED

# --- a prompt -------------------------------------------------------------------------------------

OUTSIDE = 1e-7
"""Largest part of W that is no multiple of z^T, relative, in Frobenius norm."""


def outside(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return ||W - p z^T||_F / ||W||_F with p = W z / ||z||^2, z the query of all samples."""
    W, z = arrays["trained_W"], arrays["Z"][:, :1].transpose(0, 2, 1)
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    sizes = [np.linalg.norm(M, axis=(1, 2)) for M in (W - W @ z @ z.transpose(0, 2, 1), W)]
    parts: np.ndarray = sizes[0] / sizes[1]
    return parts


def prompt_near_svm(evidence: Evidence) -> list[Rule]:
    """Return whether W = p z^T, and p is near the SVM of the tokens selected."""
    part = evidence.from_arrays(outside)
    return [(part > OUTSIDE, FAILS), (part.isna(), "W not recorded"), *LOCALLY]


PROMPTS = Claim(
    name="prompt",
    paper="2306.13596",
    number="gradient descent on the prompt p, for normalised steps",
    reading=CARRIED_OVER,
    title="the trained prompt goes to the SVM of the tokens that it selects",
    statement="f = v^T X^T softmax(X p), p(0) = 0  =>  p(k) / ||p(k)|| -> p_mm(alpha) / "
    "||p_mm(alpha)||, p_mm of least norm with (x_i,alpha_i - x_it)^T p >= 1, alpha locally optimal",
    hypotheses=SELECTED,
    prediction=prompt_near_svm,
    runs=runs("prompt"),
    tolerance="as in limits, for W(k) = p(k) z^T with one query z of all samples: the part of W "
    f"that is no multiple of z^T is at most 1e-7; {LIMITS}",
)

# --- W and a linear head --------------------------------------------------------------------------


def risk_falls(evidence: Evidence) -> Truths:
    """Return whether the risk is smaller at the end than at the start.

    Steps of a fixed length in (W, v) can jump across a valley, farther with every step that grows.
    """
    risk = evidence.curve("risk")
    first, last = risk[risk.columns.min()], risk[risk.columns.max()]
    return evidence.truths(last < first, first.notna() & last.notna())


FALLING = SELECTED | {"the risk falls from start to end": risk_falls}

TOGETHER = Claim(
    name="joint",
    paper="2306.13596",
    reading=CARRIED_OVER,
    number="joint training of head and attention, without equal margins of the head",
    title="trained together with any linear head, W goes to the SVM of the selected tokens",
    statement="(W(k), v(k)) by gradient descent on both  =>  W(k) / ||W(k)||_F -> "
    "W_mm(alpha) / ||W_mm(alpha)||_F, alpha locally optimal by the trained head",
    hypotheses=FALLING,
    prediction=LOCALLY,
    runs=runs("joint"),
    tolerance=LIMITS,
)

# --- where all samples are support vectors of the head --------------------------------------------

EQUAL, UNEQUAL = 1.01, 1.1
"""Ratio of the largest to the least margin of v that counts as 1; the least one that does not."""


def _selected_rows(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return Y_i x_i,alpha_i of the selected tokens, (B, n, d)."""
    at = arrays["selected"][:, :, None, None]
    rows: np.ndarray = arrays["Y"][..., None] * np.take_along_axis(arrays["X"], at, 2)[:, :, 0]
    return rows


def _margins(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return Y_i v^T x_i,alpha_i of the trained v, (B, n)."""
    margins: np.ndarray = np.einsum("bnd,bd->bn", _selected_rows(arrays), arrays["trained_v"])
    return margins


def ratio_of_margins(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return max_i Y_i v^T x_i,alpha_i / min_i Y_i v^T x_i,alpha_i; inf where v errs."""
    margins = _margins(arrays)
    least, largest = margins.min(axis=1), margins.max(axis=1)
    ratios: np.ndarray = np.where(least > 0, largest / np.where(least > 0, least, 1.0), np.inf)
    return ratios


def all_support(evidence: Evidence) -> Truths:
    """Return whether v has the same margin in all samples; undecided where it may come to that."""
    ratio = evidence.from_arrays(ratio_of_margins)
    return evidence.truths(ratio <= EQUAL, (ratio <= EQUAL) | (ratio >= UNEQUAL))


SUPPORT = replace(
    TOGETHER,
    name="joint_support",
    number="joint training of head and attention, all samples support vectors, as we understand it",
    title="trained together with a linear head of equal margins, W goes to the SVM",
    statement=f"Y_i v_svm^T x_i,alpha_i = 1 for all i, {TOGETHER.statement}",
    hypotheses=FALLING | {"v has the same margin in all samples": all_support},
    runs=runs("joint_again"),
    tolerance="margins of v that differ by at most 1 % are the same, by 10 % or more they are "
    f"not (chosen on the seeds of joint, judged on others); {LIMITS}",
)

# --- the head -------------------------------------------------------------------------------------


def head_margin(evidence: Evidence) -> list[Rule]:
    """Return whether v separates the selected tokens by the largest margin."""
    gap = evidence.from_arrays(margin_gaps)
    return [
        (gap <= GAP_NEAR, HOLDS),
        (gap >= GAP_FAR, FAILS),
        (gap.notna(), "margin gap not far"),
        (True, "not separable"),
    ]


def separable(evidence: Evidence) -> Truths:
    """Return whether some v separates the selected tokens by their labels."""
    return evidence.truths(evidence.from_arrays(margin_gaps).notna())


def margin_gaps(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return 1 - ||v_svm|| min_i Y_i v^T x_i,alpha_i / ||v||; NaN where none separates them."""
    least = np.array([_least_norm(one) for one in _selected_rows(arrays)])
    margins = _margins(arrays).min(axis=1)
    gaps: np.ndarray = 1 - least * margins / np.linalg.norm(arrays["trained_v"], axis=1)
    return gaps


def _least_norm(rows: np.ndarray) -> float:
    """Return min ||v|| with rows v >= 1, by non-negative least squares; NaN if there is none.

    Lawson and Hanson (1974), chapter 23: the residual r of min ||E u - f||, u >= 0, with E the
    rows' transpose over a row of ones and f = (0, ..., 0, 1), has v = -r_1..d / r_d+1.
    """
    E = np.vstack([rows.T, np.ones(len(rows))])
    f = np.append(np.zeros(rows.shape[1]), 1.0)
    u, residual = nnls(E, f)
    if residual <= 1e-9:
        return np.nan
    r = E @ u - f
    return float(np.linalg.norm(r[:-1] / r[-1]))


HEAD = replace(
    TOGETHER,
    name="joint_head",
    number="joint training of head and attention, the head",
    title="trained together with W, a linear head goes to the SVM of the selected tokens",
    statement="(W(k), v(k)) by gradient descent on both  =>  v(k) / ||v(k)|| -> v_svm / ||v_svm||, "
    "v_svm of least norm with Y_i v^T x_i,alpha_i >= 1",
    hypotheses=FALLING | {"some v separates the selected tokens": separable},
    prediction=head_margin,
    tolerance="margin gap of v, 1 - ||v_svm|| min_i Y_i v^T x_i,alpha_i / ||v|| <= 2e-2, which is "
    "0 exactly at v_svm; a gap >= 0.1 refutes it",
)
