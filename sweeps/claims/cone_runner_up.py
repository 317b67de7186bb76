"""Local convergence to tokens that are not optimal: the cone about their direction."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ._claim import FAILS, HOLDS, STRONGER, Claim, Evidence, Truths, Words, ruled
from ._conditions import NEAR, hypothesis, one_optimum, unsolved
from ._runs import CONE_RUNNER_UP


def narrow(evidence: Evidence) -> Truths:
    """Return whether W(0) is within 0.1 degrees of the SVM, and large."""
    trials = evidence.trials
    return evidence.truths((trials["init_angle"] <= 0.1) & (trials["init_scale"] >= 30_000))


def prediction(evidence: Evidence) -> Words:
    """Return whether W ends at the direction of the tokens about which it began.

    At its tokens, but farther from its direction than at the start, W may still be leaving it.
    """
    trials = evidence.trials
    apart, narrow = trials["one_minus_corr_w_mm"], 1 - np.cos(np.radians(trials["init_angle"]))
    found = evidence.from_arrays(tokens_of_the_start)
    same, other = found == 1, found == 0
    return ruled(
        evidence,
        [
            (~trials["saturated"], "attention not on one token"),
            *unsolved(evidence),
            (same & (apart <= np.minimum(narrow, NEAR)), HOLDS),
            (same & (apart <= NEAR), "tokens of the start, but farther from their direction"),
            (other & (apart <= NEAR), FAILS),
        ],
        otherwise="direction not settled",
    )


def tokens_of_the_start(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return whether the selected tokens are optimal, but of second best score in sample 0."""
    order = np.argsort(arrays["scores"], axis=2)
    begun = order[:, :, -1].copy()
    begun[:, 0] = order[:, 0, -2]
    same: np.ndarray = (arrays["selected"] == begun).all(axis=1).astype(float)
    return same


CLAIM = Claim(
    name="cone_runner_up",
    paper="2308.16898",
    reading=STRONGER,
    number="Theorems on local convergence (section 5), other tokens, one cone for all instances",
    title="from within 0.1 degrees of a locally optimal direction W goes to that direction",
    statement="alpha locally optimal, alpha != opt, angle(W(0), W_mm(alpha)) <= 0.1 degrees, "
    "||W(0)||_F = 30 000  =>  W(k) / ||W(k)||_F -> W_mm(alpha) / ||W_mm(alpha)||_F; the theorem "
    "says: for some angle and some norm",
    hypotheses={
        "one optimal token": one_optimum,
        "alpha, second best in the first sample, is locally optimal": hypothesis("runner_up_local"),
        "angle(W(0), W_mm(alpha)) <= 0.1 degrees, ||W(0)||_F = 30 000": narrow,
    },
    prediction=prediction,
    runs=(CONE_RUNNER_UP,),
    tolerance="softmax >= 0.999 in every sample and 1 - correlation with W_mm(alpha) at most what "
    "it is at the start, 1 - cos(angle), and 1e-3; 1e-3 from the SVM of other tokens refutes it",
)
