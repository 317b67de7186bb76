"""arXiv 2306.13596: the trained prompt goes to the SVM of the tokens that it selects."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ._claim import CARRIED_OVER, FAILS, Claim, Evidence, Words
from ._conditions import saturated
from ._runs import PROMPT
from .limits import CLAIM as LIMITS
from .limits import prediction as limits

OUTSIDE = 1e-7
"""Largest part of W that is no multiple of z^T, relative, in Frobenius norm."""


def outside(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return ||W - p z^T||_F / ||W||_F with p = W z / ||z||^2, z the query of all samples."""
    W, z = arrays["trained_W"], arrays["Z"][:, :1].transpose(0, 2, 1)
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    sizes = [np.linalg.norm(M, axis=(1, 2)) for M in (W - W @ z @ z.transpose(0, 2, 1), W)]
    parts: np.ndarray = sizes[0] / sizes[1]
    return parts


def prediction(evidence: Evidence) -> Words:
    """Return whether W = p z^T, and p is near the SVM of the tokens selected."""
    words, part = limits(evidence), evidence.from_arrays(outside)
    words[part > OUTSIDE] = FAILS
    words[part.isna()] = "W not recorded"
    return words


CLAIM = Claim(
    name="prompt",
    paper="2306.13596",
    number="gradient descent on the prompt p, for normalised steps",
    reading=CARRIED_OVER,
    title="the trained prompt goes to the SVM of the tokens that it selects",
    statement="f = v^T X^T softmax(X p), p(0) = 0  =>  p(k) / ||p(k)|| -> p_mm(alpha) / "
    "||p_mm(alpha)||, p_mm of least norm with (x_i,alpha_i - x_it)^T p >= 1, alpha locally optimal",
    hypotheses={"one token selected in each sample": saturated},
    prediction=prediction,
    runs=(PROMPT,),
    tolerance="as in limits, for W(k) = p(k) z^T with one query z of all samples: the part of W "
    f"that is no multiple of z^T is at most 1e-7; {LIMITS.tolerance}",
)
