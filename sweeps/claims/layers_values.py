"""Trained together with the values, the first layer turns to the SVM of its own input."""

from __future__ import annotations

from ._claim import OURS, Claim
from ._conditions import first_layer, saturated, towards_svm
from ._runs import LAYERS_VALUES
from .layers import seen_alone

CLAIM = Claim(
    name="layers_values",
    paper=OURS,
    reading=OURS,
    number="what survives of the hierarchy in joint training",
    title="trained with all values, the first layer goes to the SVM of its own input",
    statement="W_0(k) / ||W_0(k)||_F -> W_mm / ||W_mm||_F of the rows of layer 0 that the readout "
    "sees, where V_l takes steps too",
    hypotheses={
        "the first layer": first_layer,
        "one token selected in each row that is seen": saturated,
        "positions that are not seen have no part in the gradient": seen_alone,
    },
    prediction=towards_svm,
    runs=(LAYERS_VALUES,),
    tolerance="1 - correlation with W_mm <= 1e-3, and tokens that are locally optimal; above, it "
    "fails where 1 - correlation is at least 0.97 of what it was half-way; a share of 1e-6 of the "
    "gradient counts as no part",
)
