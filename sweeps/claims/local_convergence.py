"""arXiv 2308.16898 on local convergence (section 5): limits are locally optimal directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ._claim import CARRIED_OVER, FAILS, HOLDS, STRONGER, Claim, Evidence, Rule, runs
from ._conditions import (
    APART,
    FALL,
    FEASIBLE,
    GLOBAL,
    GLOBALLY,
    LIMITS,
    LOCALLY,
    NEAR,
    ONE_OPTIMUM,
    ROUNDED,
    SELECTED,
    unsolved,
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
    prediction=LOCALLY,
    runs=runs("descent", "larger", "losses"),
    tolerance=LIMITS,
)

GROWING = replace(
    DIRECTIONS,
    name="gradient_descent",
    number="Theorems on local convergence, steps that grow",
    title="gradient descent goes to the SVM of the tokens that it selects",
    statement="eta_k the largest step for which L provably falls  =>  W(k) / ||W(k)||_F -> "
    "W_mm(alpha) / ||W_mm(alpha)||_F, alpha locally optimal",
    runs=runs("safe_step"),
    tolerance=f"{LIMITS}; a fixed step would need exp(||W||) steps: see fixed_step",
)

POSITIONS = replace(
    DIRECTIONS,
    name="sequence",
    number="Section 7, for normalised steps",
    title="sequence-to-sequence and causal attention converge to their SVM",
    statement="with a sample (X, x_k) for each position k, and tokens t <= k only if causal:  "
    "W(k) / ||W(k)||_F -> W_mm(alpha) / ||W_mm(alpha)||_F, alpha locally optimal",
    runs=runs("sequences"),
    tolerance="as in limits",
)

# --- a fixed step ---------------------------------------------------------------------------------


def still_falls(evidence: Evidence) -> list[Rule]:
    """Return whether 1 - correlation with W_mm still falls in each of the last two decades."""
    begin, middle, end = evidence.at(APART, 100, 10, 1)
    local = evidence["convergence"].isin(("global", "local"))
    falls = (end <= FALL * middle) & (middle <= FALL * begin)
    return [
        ("training == 'finite_optimum'", FAILS),
        ("not saturated", "attention not on one token yet"),
        *unsolved(),
        (local & (falls | (end <= ROUNDED)), HOLDS),
        (local & (end > middle) & (middle > begin), FAILS),
        (True, "direction not settled"),
    ]


FIXED = Claim(
    name="fixed_step",
    paper="2308.16898",
    number="Theorems on local convergence, fixed step",
    title="gradient descent with a fixed step nears the SVM of the tokens that it selects",
    statement="eta <= 1 / L_W  =>  1 - corr(W(k), W_mm(alpha)) -> 0, alpha locally optimal",
    hypotheses={},
    prediction=still_falls,
    runs=runs("fixed_step"),
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
        | FEASIBLE
        | {f"angle(W(0), W_mm) <= {angle} degrees": f"init_angle <= {angle}"},
        prediction=GLOBALLY,
        runs=runs("cone"),
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


def stays_in_cone(evidence: Evidence) -> list[Rule]:
    """Return whether W ends at the direction of the tokens about which it began.

    At its tokens, but farther from its direction than at the start, W may still be leaving it.
    """
    apart, found = evidence[APART], evidence.from_arrays(tokens_of_the_start)
    begun = 1 - np.cos(np.radians(evidence["init_angle"]))
    near = apart <= NEAR
    return [
        ("not saturated", "attention not on one token"),
        *unsolved(),
        ((found == 1) & near & (apart <= begun), HOLDS),
        ((found == 1) & near, "tokens of the start, but farther from their direction"),
        ((found == 0) & near, FAILS),
        (True, "direction not settled"),
    ]


RUNNER_UP = ONE_OPTIMUM | {
    "alpha, second best in the first sample, is locally optimal": "runner_up_local"
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
    hypotheses=RUNNER_UP
    | {
        "angle(W(0), W_mm(alpha)) <= 0.1 degrees, ||W(0)||_F = 30 000": (
            "init_angle <= 0.1 and init_scale >= 30_000"
        )
    },
    prediction=stays_in_cone,
    runs=runs("cone_runner_up"),
    tolerance="softmax >= 0.999 in every sample and 1 - correlation with W_mm(alpha) at most what "
    "it is at the start, 1 - cos(angle), and 1e-3; 1e-3 from the SVM of other tokens refutes it",
)

# --- minimisers in such a cone --------------------------------------------------------------------

CLOSE = 1e-6
"""Largest 1 - correlation at R = 30 000; the narrowest cone alone allows 1.5e-4."""


def minimiser_at_axis(evidence: Evidence) -> list[Rule]:
    """Return whether the minimiser at the largest R has the direction of the axis."""
    apart, tokens = evidence[APART], evidence.from_arrays(tokens_of_the_start)
    return [
        ("not saturated", "attention not on one token"),
        *unsolved(),
        ("training == 'stalled'", "no minimiser found"),
        ((tokens == 1) & (apart <= CLOSE), HOLDS),
        ((tokens == 1) & (apart > CLOSE), FAILS),
        (tokens == 0, FAILS),
        (True, "no minimiser found"),
    ]


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
    runs=runs("local_path"),
    tolerance="1 - correlation with W_mm(alpha) <= 1e-6 at R = 30 000, where the cones alone allow "
    "1.5e-4 to 0.034; a minimiser farther away, or at other tokens, refutes it; W_R is a minimiser "
    "of the risk on its sphere inside of the cone, found from the axis, as its gradient shows",
)
