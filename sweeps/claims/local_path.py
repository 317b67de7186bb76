"""Local regularisation paths: minimisers in a cone about a locally optimal direction."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, STRONGER, Claim, Evidence, Words, ruled
from ._conditions import hypothesis, one_optimum, unsolved
from ._runs import LOCAL_PATH
from .cone_runner_up import tokens_of_the_start

CLOSE = 1e-6
"""Largest 1 - correlation at R = 30 000; the narrowest cone alone allows 1.5e-4."""


def prediction(evidence: Evidence) -> Words:
    """Return whether the minimiser at the largest R has the direction of the axis."""
    trials = evidence.trials
    apart, found = trials["one_minus_corr_w_mm"], trials["training"] != "stalled"
    tokens = evidence.from_arrays(tokens_of_the_start)
    same, other = tokens == 1, tokens == 0
    return ruled(
        evidence,
        [
            (~trials["saturated"], "attention not on one token"),
            *unsolved(evidence),
            (found & same & (apart <= CLOSE), HOLDS),
            (found & same & (apart > CLOSE), FAILS),
            (found & other, FAILS),
        ],
        otherwise="no minimiser found",
    )


CLAIM = Claim(
    name="local_path",
    paper="2308.16898",
    reading=STRONGER,
    number="Theorem on local regularisation paths, one cone for all instances",
    title="minimisers in a cone of 1 to 15 degrees about a locally optimal direction go to it",
    statement="alpha locally optimal, alpha != opt, W_R = argmin { L(W) : ||W||_F <= R, "
    "angle(W, W_mm(alpha)) <= 1, 5, 15 degrees }  =>  W_R / R -> W_mm(alpha) / "
    "||W_mm(alpha)||_F as R -> inf; the theorem says: for some angle",
    hypotheses={
        "one optimal token": one_optimum,
        "alpha, second best in the first sample, is locally optimal": hypothesis("runner_up_local"),
    },
    prediction=prediction,
    runs=(LOCAL_PATH,),
    tolerance="1 - correlation with W_mm(alpha) <= 1e-6 at R = 30 000, where the cones alone allow "
    "1.5e-4 to 0.034; a minimiser farther away, or at other tokens, refutes it; W_R is a minimiser "
    "of the risk on its sphere inside of the cone, found from the axis, as its gradient shows",
)
