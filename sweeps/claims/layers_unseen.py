"""The hierarchy without the condition on positions that the readout does not see."""

from __future__ import annotations

import dataclasses

from ._conditions import saturated
from .layers import CLAIM as HIERARCHY

CLAIM = dataclasses.replace(
    HIERARCHY,
    name="layers_unseen",
    title="every layer goes to the SVM of its own input, whatever positions are not seen",
    hypotheses={"one token selected in each row that is seen": saturated},
    tolerance=HIERARCHY.tolerance.rpartition(";")[0],
)
