"""Every layer of a transformer turns to the SVM of its own input: the hierarchy."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, OURS, Claim, Evidence, Truths, Words, ruled
from ._conditions import NEAR, saturated, stays_away, unsolved
from ._runs import LAYERS

PULL = 1e-6
"""Largest share of the last gradient that positions which the readout does not see may have."""


def prediction(evidence: Evidence) -> Words:
    """Return whether W of a layer is near its W_mm, or stays away from it."""
    trials = evidence.trials
    near = trials["one_minus_corr_w_mm"] <= NEAR
    local = trials["convergence"].isin(("global", "local"))
    return ruled(
        evidence,
        [
            *unsolved(evidence),
            (near & local, HOLDS),
            (near & (trials["convergence"] == "not_local"), FAILS),
            (stays_away(evidence), FAILS),
        ],
        otherwise="direction not settled",
    )


def seen_alone(evidence: Evidence) -> Truths:
    """Return whether only positions that the readout sees have a part in the gradient."""
    share = evidence.trials["unseen_gradient"]
    return evidence.truths(share <= PULL, share.notna())


CLAIM = Claim(
    name="layers",
    paper=OURS,
    reading=OURS,
    number="an answer to the open question of arXiv 2308.16898 on several layers",
    title="every layer of a transformer goes to the SVM of its own input",
    statement="W_l(k) / ||W_l(k)||_F -> W_mm / ||W_mm||_F of the rows of layer l that the readout "
    "sees, for every l",
    hypotheses={
        "one token selected in each row that is seen": saturated,
        "positions that are not seen have no part in the gradient": seen_alone,
    },
    prediction=prediction,
    runs=(LAYERS,),
    tolerance="1 - correlation with W_mm <= 1e-3, and tokens that are locally optimal; above, it "
    "fails where the direction has changed by less than a hundredth of that since half-way; a "
    "share of 1e-6 of the gradient counts as no part",
)
