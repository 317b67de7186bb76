"""Theorems on local convergence: the limit of gradient descent is a locally optimal direction."""

from __future__ import annotations

from ._claim import CARRIED_OVER, FAILS, HOLDS, Claim, Evidence, Words, ruled
from ._conditions import NEAR, saturated, stays_away, unsolved
from ._runs import DESCENT, LARGER, LOSSES


def prediction(evidence: Evidence) -> Words:
    """Return whether W is near W_mm of the selected tokens, and these are locally optimal.

    A direction that stays away from W_mm refutes it.
    """
    trials = evidence.trials
    near = trials["one_minus_corr_w_mm"] <= NEAR
    kind = trials["convergence"]
    return ruled(
        evidence,
        [
            *unsolved(evidence),
            (near & kind.isin(("global", "local")), HOLDS),
            (near & (kind == "not_local"), FAILS),
            (near, "limit may select other tokens"),
            (stays_away(evidence), FAILS),
        ],
        otherwise="direction not settled",
    )


CLAIM = Claim(
    name="limits",
    paper="2308.16898",
    reading=CARRIED_OVER,
    number="Theorems on local convergence (section 5)",
    title="limits of gradient descent are locally optimal directions, and no others",
    statement="W(k) / ||W(k)||_F -> W_mm(alpha) / ||W_mm(alpha)||_F, and "
    "gamma_i,alpha_i > gamma_it for all t of margin 1 under W_mm(alpha)",
    hypotheses={"one token selected in each sample": saturated},
    prediction=prediction,
    runs=(DESCENT, LARGER, LOSSES),
    tolerance="1 - correlation with W_mm(alpha) <= 1e-3, and the direction is settled where the "
    "tokens are not locally optimal: it changed by at most 1e-4 since half-way; above 1e-3 it "
    "fails where the direction has changed by less than a hundredth of that since half-way",
)
