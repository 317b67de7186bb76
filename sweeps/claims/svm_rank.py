"""Lemma 1: solutions of the SVM have at most rank min(n, d)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ._claim import FAILS, HOLDS, Claim, Evidence, Words, ruled
from ._conditions import feasible
from ._runs import SVMS

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


def prediction(evidence: Evidence) -> Words:
    """Return whether rank <= min(n, d), for every optimum, and the row space is in span(z_i)."""
    trials = evidence.trials
    largest = np.minimum(trials["n"], trials["d"])
    ranks = trials[["frobenius_rank", "nuclear_rank"]].max(axis=1, skipna=False)
    parts = evidence.from_arrays(outside)
    return ruled(
        evidence,
        [
            ((ranks > largest) | (parts > OUTSIDE), FAILS),
            ((ranks <= largest) & (parts <= OUTSIDE), HOLDS),
        ],
        otherwise="rank not known",
    )


CLAIM = Claim(
    name="svm_rank",
    paper="2308.16898",
    number="Lemma 1",
    title="solutions of the SVM have rank <= min(n, d)",
    statement="rank W_mm <= min(n, d) and rank W_star_mm <= min(n, d): "
    "their row spaces lie in span{z_1, ..., z_n}",
    hypotheses={
        "Att-SVM is feasible": feasible,
        "Att-SVM* is solved": lambda evidence: feasible(evidence, "nuclear"),
    },
    prediction=prediction,
    runs=(SVMS,),
    tolerance="rank: singular values above 1e-6 of the largest; part outside of the span <= 1e-7, "
    "as the solutions are certified to a gap of 1e-9",
)
