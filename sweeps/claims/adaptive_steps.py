"""arXiv 2402.05738: normalised and Polyak steps on nearly orthogonal data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ._claim import FAILS, HOLDS, Claim, Evidence, Rule, Truths, runs
from ._conditions import APART, GLOBAL, GLOBALLY, ONE_OPTIMUM, OPTIMAL_SELECTED, ROUNDED

NEARLY = 0.4
"""Largest |cosine| of the angle between two tokens that are nearly orthogonal."""

DECADE = 0.1
"""Largest ratio of 1 - correlation after a decade of steps to that before, for a fall like 1/k."""


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


def falls_like_power(evidence: Evidence) -> list[Rule]:
    """Return whether 1 - correlation falls at least like 1/k over the last decade of steps."""
    before, end = evidence.at(APART, 10, 1)
    falls = (end <= DECADE * before) | (end <= ROUNDED)
    return [(falls, HOLDS), (end > DECADE * before, FAILS), (True, "no SVM on record")]


GLOBAL_LIMIT = Claim(
    name="adaptive_global",
    paper="2402.05738",
    number="global convergence of normalised and Polyak steps, as we understand it",
    title="from zero, normalised and Polyak steps find the optimal tokens of nearly "
    "orthogonal data",
    statement="|x^T x'| <= 0.4 for all pairs of unit tokens, W(0) = 0, steps eta grad / "
    "||grad|| or (L - L*) / ||grad||^2 grad  =>  W(k) / ||W(k)||_F -> W_mm / ||W_mm||_F at "
    "the optimal tokens",
    hypotheses=ONE_OPTIMUM | {"nearly orthogonal tokens": nearly_orthogonal},
    prediction=GLOBALLY,
    runs=runs("orthogonal"),
    tolerance=GLOBAL,
)

RATE = replace(
    GLOBAL_LIMIT,
    name="adaptive_rate",
    number="finite-time rates of normalised and Polyak steps, as we understand them",
    title="with normalised and Polyak steps the direction of W converges like a power of the steps",
    statement="as adaptive_global  =>  1 - corr(W(k), W_mm) <= C / k; the proved rates are "
    "upper bounds",
    hypotheses={**GLOBAL_LIMIT.hypotheses, **OPTIMAL_SELECTED},
    prediction=falls_like_power,
    tolerance="1 - correlation falls to a tenth or less from 200 to 2000 steps",
)
