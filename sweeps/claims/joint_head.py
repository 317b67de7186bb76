"""Joint training of W and a linear head: the head goes to an SVM of its own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import nnls

from ._claim import CARRIED_OVER, Claim, Evidence, Truths, Words
from ._conditions import margin_words, risk_falls, saturated
from ._runs import JOINT


def prediction(evidence: Evidence) -> Words:
    """Return whether v separates the selected tokens by the largest margin."""
    return margin_words(evidence, evidence.from_arrays(_margin_gaps))


def separable(evidence: Evidence) -> Truths:
    """Return whether some v separates the selected tokens by their labels."""
    return evidence.truths(evidence.from_arrays(_margin_gaps).notna())


def _margin_gaps(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return 1 - ||v_svm|| min_i Y_i v^T x_i,alpha_i / ||v||; NaN where none separates them."""
    at = arrays["selected"][:, :, None, None]
    rows = arrays["Y"][..., None] * np.take_along_axis(arrays["X"], at, 2)[:, :, 0]
    v = arrays["trained_v"]
    least = np.array([_least_norm(one) for one in rows])
    margins = np.einsum("bnd,bd->bn", rows, v).min(axis=1)
    gaps: np.ndarray = 1 - least * margins / np.linalg.norm(v, axis=1)
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


CLAIM = Claim(
    name="joint_head",
    paper="2306.13596",
    reading=CARRIED_OVER,
    number="joint training of head and attention, the head",
    title="trained together with W, a linear head goes to the SVM of the selected tokens",
    statement="(W(k), v(k)) by gradient descent on both  =>  v(k) / ||v(k)|| -> v_svm / ||v_svm||, "
    "v_svm of least norm with Y_i v^T x_i,alpha_i >= 1",
    hypotheses={
        "one token selected in each sample": saturated,
        "the risk falls from start to end": risk_falls,
        "some v separates the selected tokens": separable,
    },
    prediction=prediction,
    runs=(JOINT,),
    tolerance="margin gap of v, 1 - ||v_svm|| min_i Y_i v^T x_i,alpha_i / ||v|| <= 2e-2, which is "
    "0 exactly at v_svm; a gap >= 0.1 refutes it",
)
