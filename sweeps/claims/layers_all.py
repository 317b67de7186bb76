"""Everything is trained: the first layer stays away from the SVM of its own input."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, OURS, Claim, Evidence, Words, ruled
from ._conditions import NEAR, comes_no_nearer, first_layer, saturated, unsolved
from ._runs import LAYERS_ALL
from .layers import seen_alone


def prediction(evidence: Evidence) -> Words:
    """Return whether W of a layer comes no nearer to its W_mm; being near refutes it."""
    apart = evidence.trials["one_minus_corr_w_mm"]
    return ruled(
        evidence,
        [
            *unsolved(evidence),
            (apart <= NEAR, FAILS),
            (comes_no_nearer(evidence), HOLDS),
        ],
        otherwise="direction not settled",
    )


CLAIM = Claim(
    name="layers_all",
    paper=OURS,
    reading=OURS,
    number="what survives of the hierarchy in joint training",
    title="with everything trained, the first layer does not go to the SVM of its own input",
    statement="lim inf (1 - corr(W_0(k), W_mm)) > 0 for the rows of layer 0 that the readout sees, "
    "where V_l, MLPs and head take steps too",
    hypotheses={
        "the first layer": first_layer,
        "one token selected in each row that is seen": saturated,
        "positions that are not seen have no part in the gradient": seen_alone,
    },
    prediction=prediction,
    runs=(LAYERS_ALL,),
    tolerance="1 - correlation with W_mm > 1e-3, and at least 0.97 of what it was half-way; it "
    "fails at 1e-3 and below; a share of 1e-6 of the gradient counts as no part",
)
