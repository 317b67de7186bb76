"""arXiv 2308.16898 on local convergence (section 5): limits are locally optimal directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

import numpy as np

from ._claim import CARRIED_OVER, FAILS, HOLDS, STRONGER, Claim, Evidence, Truths, Words, ruled
from ._conditions import (
    GLOBAL,
    LIMITS,
    NEAR,
    ONE_OPTIMUM,
    ROUNDED,
    SELECTED,
    at_end,
    at_most,
    feasible,
    globally,
    locally,
    recorded,
    unsolved,
)
from ._runs import (
    CONE,
    CONE_RUNNER_UP,
    DESCENT,
    FIXED_STEP,
    LARGER,
    LOCAL_PATH,
    LOSSES,
    SAFE_STEP,
    SEQUENCES,
)

# --- limits of normalised steps -------------------------------------------------------------------

DIRECTIONS = Claim(
    name="limits",
    paper="2308.16898",
    reading=CARRIED_OVER,
    number="Theorems on local convergence (section 5)",
    title="limits of gradient descent are locally optimal directions, and no others",
    statement="W(k) / ||W(k)||_F -> W_mm(alpha) / ||W_mm(alpha)||_F, and "
    "gamma_i,alpha_i > gamma_it for all t of margin 1 under W_mm(alpha)",
    hypotheses=SELECTED,
    prediction=locally,
    runs=(DESCENT, LARGER, LOSSES),
    tolerance=LIMITS,
)

GROWING = dataclasses.replace(
    DIRECTIONS,
    name="gradient_descent",
    number="Theorems on local convergence, steps that grow",
    title="gradient descent goes to the SVM of the tokens that it selects",
    statement="eta_k the largest step for which L provably falls  =>  W(k) / ||W(k)||_F -> "
    "W_mm(alpha) / ||W_mm(alpha)||_F, alpha locally optimal",
    runs=(SAFE_STEP,),
    tolerance=f"{LIMITS}; a fixed step would need exp(||W||) steps: see fixed_step",
)

POSITIONS = dataclasses.replace(
    DIRECTIONS,
    name="sequence",
    number="Section 7, for normalised steps",
    title="sequence-to-sequence and causal attention converge to their SVM",
    statement="with a sample (X, x_k) for each position k, and tokens t <= k only if causal:  "
    "W(k) / ||W(k)||_F -> W_mm(alpha) / ||W_mm(alpha)||_F, alpha locally optimal",
    runs=(SEQUENCES,),
    tolerance="as in limits",
)

# --- a fixed step ---------------------------------------------------------------------------------

FALL = 0.9
"""Largest ratio of 1 - correlation after a decade of steps to that before, where it falls."""


def still_falls(evidence: Evidence) -> Words:
    """Return whether 1 - correlation with W_mm still falls in each of the last two decades."""
    apart = evidence.one_minus_corr_curve()
    begin, middle, end = (at_end(apart, part) for part in (100, 10, 1))
    local = evidence.trials["convergence"].isin(("global", "local"))
    falls = (end <= FALL * middle) & (middle <= FALL * begin)
    rules = [
        (evidence.trials["training"] == "finite_optimum", FAILS),
        (~evidence.trials["saturated"], "attention not on one token yet"),
        *unsolved(evidence),
        (local & (falls | (end <= ROUNDED)), HOLDS),
        (local & (end > middle) & (middle > begin), FAILS),
    ]
    return ruled(evidence, rules, otherwise="direction not settled")


FIXED = Claim(
    name="fixed_step",
    paper="2308.16898",
    number="Theorems on local convergence, fixed step",
    title="gradient descent with a fixed step nears the SVM of the tokens that it selects",
    statement="eta <= 1 / L_W  =>  1 - corr(W(k), W_mm(alpha)) -> 0, alpha locally optimal",
    hypotheses={},
    prediction=still_falls,
    runs=(FIXED_STEP,),
    tolerance="||W(k)|| grows like log k, so no 10^5 steps come near: 1 - correlation must fall to "
    "0.9 of its value or less in each of the last two decades of steps, and one that rises in both "
    "refutes it",
)

# --- from a cone about the optimal tokens ---------------------------------------------------------


def _cone(name: str, angle: int, number: str, more: str) -> Claim:
    """Return the claim that W goes to W_mm from within an angle of it."""
    return Claim(
        name=name,
        paper="2308.16898",
        reading=STRONGER,
        number=f"Theorems on local convergence{number}",
        title=f"from within {angle} degrees of the direction of the optimal tokens W goes to that "
        "direction",
        statement=f"angle(W(0), W_mm) <= {angle} degrees, ||W(0)||_F = 30  =>  W(k) / ||W(k)||_F "
        f"-> W_mm / ||W_mm||_F{more}",
        hypotheses=ONE_OPTIMUM
        | {
            "Att-SVM is feasible": feasible,
            f"angle(W(0), W_mm) <= {angle} degrees": partial(
                at_most, column="init_angle", largest=angle
            ),
        },
        prediction=globally,
        runs=(CONE,),
        tolerance=GLOBAL,
    )


SOME_ANGLE = "; the theorem says: for some angle and some norm"
NARROW = _cone("cone", 5, " (section 5), the cone", SOME_ANGLE)
WIDE = _cone("cone_wide", 45, ", a cone of 45 degrees", "")

# --- from a cone about other tokens ---------------------------------------------------------------


def tokens_of_the_start(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return whether the selected tokens are optimal, but of second best score in sample 0."""
    order = np.argsort(arrays["scores"], axis=2)
    begun = order[:, :, -1].copy()
    begun[:, 0] = order[:, 0, -2]
    same: np.ndarray = (arrays["selected"] == begun).all(axis=1).astype(float)
    return same


def narrow(evidence: Evidence) -> Truths:
    """Return whether W(0) is within 0.1 degrees of the SVM, and large."""
    trials = evidence.trials
    return evidence.truths((trials["init_angle"] <= 0.1) & (trials["init_scale"] >= 30_000))


def stays_in_cone(evidence: Evidence) -> Words:
    """Return whether W ends at the direction of the tokens about which it began.

    At its tokens, but farther from its direction than at the start, W may still be leaving it.
    """
    trials, apart = evidence.trials, evidence.one_minus_corr()
    begun = 1 - np.cos(np.radians(trials["init_angle"]))
    found = evidence.from_arrays(tokens_of_the_start)
    same, other = found == 1, found == 0
    rules = [
        (~trials["saturated"], "attention not on one token"),
        *unsolved(evidence),
        (same & (apart <= np.minimum(begun, NEAR)), HOLDS),
        (same & (apart <= NEAR), "tokens of the start, but farther from their direction"),
        (other & (apart <= NEAR), FAILS),
    ]
    return ruled(evidence, rules, otherwise="direction not settled")


RUNNER_UP = ONE_OPTIMUM | {
    "alpha, second best in the first sample, is locally optimal": partial(
        recorded, name="runner_up_local"
    )
}

OTHER_TOKENS = Claim(
    name="cone_runner_up",
    paper="2308.16898",
    reading=STRONGER,
    number="Theorems on local convergence (section 5), other tokens, one cone for all instances",
    title="from within 0.1 degrees of a locally optimal direction W goes to that direction",
    statement="alpha locally optimal, alpha != opt, angle(W(0), W_mm(alpha)) <= 0.1 degrees, "
    "||W(0)||_F = 30 000  =>  W(k) / ||W(k)||_F -> W_mm(alpha) / ||W_mm(alpha)||_F"
    f"{SOME_ANGLE}",
    hypotheses=RUNNER_UP | {"angle(W(0), W_mm(alpha)) <= 0.1 degrees, ||W(0)||_F = 30 000": narrow},
    prediction=stays_in_cone,
    runs=(CONE_RUNNER_UP,),
    tolerance="softmax >= 0.999 in every sample and 1 - correlation with W_mm(alpha) at most what "
    "it is at the start, 1 - cos(angle), and 1e-3; 1e-3 from the SVM of other tokens refutes it",
)

# --- minimisers in such a cone --------------------------------------------------------------------

CLOSE = 1e-6
"""Largest 1 - correlation at R = 30 000; the narrowest cone alone allows 1.5e-4."""


def minimiser_at_axis(evidence: Evidence) -> Words:
    """Return whether the minimiser at the largest R has the direction of the axis."""
    trials, apart = evidence.trials, evidence.one_minus_corr()
    found, tokens = trials["training"] != "stalled", evidence.from_arrays(tokens_of_the_start)
    same, other = tokens == 1, tokens == 0
    rules = [
        (~trials["saturated"], "attention not on one token"),
        *unsolved(evidence),
        (found & same & (apart <= CLOSE), HOLDS),
        (found & same & (apart > CLOSE), FAILS),
        (found & other, FAILS),
    ]
    return ruled(evidence, rules, otherwise="no minimiser found")


LOCAL_PATHS = Claim(
    name="local_path",
    paper="2308.16898",
    reading=STRONGER,
    number="Theorem on local regularisation paths, one cone for all instances",
    title="minimisers in a cone of 1 to 15 degrees about a locally optimal direction go to it",
    statement="alpha locally optimal, alpha != opt, W_R = argmin { L(W) : ||W||_F <= R, "
    "angle(W, W_mm(alpha)) <= 1, 5, 15 degrees }  =>  W_R / R -> W_mm(alpha) / "
    "||W_mm(alpha)||_F as R -> inf; the theorem says: for some angle",
    hypotheses=RUNNER_UP,
    prediction=minimiser_at_axis,
    runs=(LOCAL_PATH,),
    tolerance="1 - correlation with W_mm(alpha) <= 1e-6 at R = 30 000, where the cones alone allow "
    "1.5e-4 to 0.034; a minimiser farther away, or at other tokens, refutes it; W_R is a minimiser "
    "of the risk on its sphere inside of the cone, found from the axis, as its gradient shows",
)

CLAIMS = (DIRECTIONS, GROWING, POSITIONS, FIXED, NARROW, WIDE, OTHER_TOKENS, LOCAL_PATHS)
