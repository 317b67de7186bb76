"""arXiv 2402.05738: on nearly orthogonal data some adaptive steps find the optimal tokens."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ._claim import Claim, Evidence, Truths
from ._conditions import globally, one_optimum
from ._runs import ORTHOGONAL
from .b1_alone import CLAIM as ALONE

NEARLY = 0.4
"""Largest |cosine| of the angle between two tokens that are nearly orthogonal."""


def largest_cosine(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the largest |cosine| of the angle between two tokens of an instance."""
    tokens = arrays["X"].reshape(len(arrays["X"]), -1, arrays["X"].shape[-1])
    tokens = tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)
    cosines = np.abs(tokens @ tokens.transpose(0, 2, 1)) * (1 - np.eye(tokens.shape[1]))
    largest: np.ndarray = cosines.max(axis=(1, 2))
    return largest


def nearly_orthogonal(evidence: Evidence) -> Truths:
    """Return whether all pairs of tokens are nearly orthogonal."""
    return evidence.truths(evidence.from_arrays(largest_cosine) <= NEARLY)


CLAIM = Claim(
    name="adaptive_global",
    paper="2402.05738",
    number="global convergence of normalised and Polyak steps, as we understand it",
    title="from zero, normalised and Polyak steps find the optimal tokens of nearly orthogonal "
    "data",
    statement="|x^T x'| <= 0.4 for all pairs of unit tokens, W(0) = 0, steps eta grad / ||grad|| "
    "or (L - L*) / ||grad||^2 grad  =>  W(k) / ||W(k)||_F -> W_mm / ||W_mm||_F at the optimal "
    "tokens",
    hypotheses={"one optimal token": one_optimum, "nearly orthogonal tokens": nearly_orthogonal},
    prediction=globally,
    runs=(ORTHOGONAL,),
    tolerance=ALONE.tolerance,
)
