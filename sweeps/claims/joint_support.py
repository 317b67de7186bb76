"""Joint training where all samples are support vectors of the head: W goes to its SVM."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from ._claim import Evidence, Truths
from ._runs import JOINT_AGAIN
from .joint import CLAIM as JOINT

EQUAL, UNEQUAL = 1.01, 1.1
"""Ratio of the largest to the least margin of v that counts as 1; the least one that does not."""


def ratio_of_margins(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return max_i Y_i v^T x_i,alpha_i / min_i Y_i v^T x_i,alpha_i; inf where v errs."""
    at = arrays["selected"][:, :, None, None]
    chosen = np.take_along_axis(arrays["X"], at, 2)[:, :, 0]
    margins = arrays["Y"] * np.einsum("bnd,bd->bn", chosen, arrays["trained_v"])
    least, largest = margins.min(axis=1), margins.max(axis=1)
    ratios: np.ndarray = np.where(least > 0, largest / np.where(least > 0, least, 1.0), np.inf)
    return ratios


def all_support(evidence: Evidence) -> Truths:
    """Return whether v has the same margin in all samples; undecided where it may come to that."""
    ratio = evidence.from_arrays(ratio_of_margins)
    return evidence.truths(ratio <= EQUAL, (ratio <= EQUAL) | (ratio >= UNEQUAL))


CLAIM = dataclasses.replace(
    JOINT,
    name="joint_support",
    number="joint training of head and attention, all samples support vectors, as we understand it",
    title="trained together with a linear head of equal margins, W goes to the SVM",
    statement=f"Y_i v_svm^T x_i,alpha_i = 1 for all i, {JOINT.statement}",
    hypotheses={**JOINT.hypotheses, "v has the same margin in all samples": all_support},
    runs=(JOINT_AGAIN,),
    tolerance=f"margins of v that differ by at most 1 % are the same, by 10 % or more they are "
    f"not (chosen on the seeds of joint, judged on others); {JOINT.tolerance}",
)
