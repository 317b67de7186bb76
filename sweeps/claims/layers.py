"""Several layers: does every layer of a transformer go to the SVM of its own input? No paper says.

An answer to the open question of arXiv 2308.16898.
"""

from __future__ import annotations

import dataclasses
from functools import partial

from ._claim import FAILS, HOLDS, OURS, Claim, Evidence, Truths, Words, ruled
from ._conditions import (
    NEAR,
    comes_no_nearer,
    equals,
    near_svm,
    saturated,
    stays_away,
    unsolved,
)
from ._runs import LAYERS, LAYERS_ALL, LAYERS_LINEAR, LAYERS_VALUES

SHARE = 1e-6
"""Largest share of the last gradient that positions which the readout does not see may have."""


def seen_alone(evidence: Evidence) -> Truths:
    """Return whether only positions that the readout sees have a part in the gradient."""
    share = evidence.trials["unseen_gradient"]
    return evidence.truths(share <= SHARE, share.notna())


def stays_apart(evidence: Evidence) -> Words:
    """Return whether W of a layer comes no nearer to its W_mm; being near refutes it."""
    near = evidence.one_minus_corr() <= NEAR
    rules = [*unsolved(evidence), (near, FAILS), (comes_no_nearer(evidence), HOLDS)]
    return ruled(evidence, rules, otherwise="direction not settled")


ROWS = {"one token selected in each row that is seen": saturated}
SEEN = {"positions that are not seen have no part in the gradient": seen_alone}
FIRST = {"the first layer": partial(equals, column="layer", value=0)}
LOCAL = "1 - correlation with W_mm <= 1e-3, and tokens that are locally optimal; above, it fails "

HIERARCHY = Claim(
    name="layers",
    paper=OURS,
    reading=OURS,
    number="an answer to the open question of arXiv 2308.16898 on several layers",
    title="every layer of a transformer goes to the SVM of its own input",
    statement="W_l(k) / ||W_l(k)||_F -> W_mm / ||W_mm||_F of the rows of layer l that the readout "
    "sees, for every l",
    hypotheses=ROWS | SEEN,
    prediction=partial(near_svm, away=stays_away),
    runs=(LAYERS,),
    tolerance=f"{LOCAL}where the direction has changed by less than a hundredth of that since "
    "half-way; a share of 1e-6 of the gradient counts as no part",
)

UNSEEN = dataclasses.replace(
    HIERARCHY,
    name="layers_unseen",
    title="every layer goes to the SVM of its own input, whatever positions are not seen",
    hypotheses=ROWS,
    tolerance=HIERARCHY.tolerance.rpartition(";")[0],
)

VALUES = dataclasses.replace(
    HIERARCHY,
    name="layers_values",
    number="what survives of the hierarchy in joint training",
    title="trained with all values, the first layer goes to the SVM of its own input",
    statement="W_0(k) / ||W_0(k)||_F -> W_mm / ||W_mm||_F of the rows of layer 0 that the readout "
    "sees, where V_l takes steps too",
    hypotheses=FIRST | ROWS | SEEN,
    prediction=partial(near_svm, away=comes_no_nearer),
    runs=(LAYERS_VALUES,),
    tolerance=f"{LOCAL}where 1 - correlation is at least 0.97 of what it was half-way; a share of "
    "1e-6 of the gradient counts as no part",
)

LINEAR = dataclasses.replace(
    VALUES,
    name="layers_linear",
    title="with all trained by the linear loss, the first layer goes to the SVM of its own input",
    statement="W_0(k) / ||W_0(k)||_F -> W_mm / ||W_mm||_F of the rows of layer 0 that the readout "
    "sees, where V_l, MLPs and head take steps too and l(u) = -u",
    runs=(LAYERS_LINEAR,),
)

ALL = dataclasses.replace(
    VALUES,
    name="layers_all",
    title="with everything trained, the first layer does not go to the SVM of its own input",
    statement="lim inf (1 - corr(W_0(k), W_mm)) > 0 for the rows of layer 0 that the readout sees, "
    "where V_l, MLPs and head take steps too",
    prediction=stays_apart,
    runs=(LAYERS_ALL,),
    tolerance="1 - correlation with W_mm > 1e-3, and at least 0.97 of what it was half-way; it "
    "fails at 1e-3 and below; a share of 1e-6 of the gradient counts as no part",
)

CLAIMS = (HIERARCHY, UNSEEN, VALUES, LINEAR, ALL)
