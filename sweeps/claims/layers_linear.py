"""Everything trained by the linear loss, the first layer turns to the SVM of its own input."""

from __future__ import annotations

from ._claim import OURS, Claim
from ._conditions import first_layer, saturated, towards_svm
from ._runs import LAYERS_LINEAR
from .layers import seen_alone

CLAIM = Claim(
    name="layers_linear",
    paper=OURS,
    reading=OURS,
    number="what survives of the hierarchy in joint training",
    title="with all trained by the linear loss, the first layer goes to the SVM of its own input",
    statement="W_0(k) / ||W_0(k)||_F -> W_mm / ||W_mm||_F of the rows of layer 0 that the readout "
    "sees, where V_l, MLPs and head take steps too and l(u) = -u",
    hypotheses={
        "the first layer": first_layer,
        "one token selected in each row that is seen": saturated,
        "positions that are not seen have no part in the gradient": seen_alone,
    },
    prediction=towards_svm,
    runs=(LAYERS_LINEAR,),
    tolerance="1 - correlation with W_mm <= 1e-3, and tokens that are locally optimal; above, it "
    "fails where 1 - correlation is at least 0.97 of what it was half-way; a share of 1e-6 of the "
    "gradient counts as no part",
)
