"""Several layers: does every layer of a transformer go to the SVM of its own input? No paper says.

An answer to the open question of arXiv 2308.16898.
"""

from __future__ import annotations

from dataclasses import replace

from ._claim import FAILS, HOLDS, OURS, Claim, Evidence, Rule, runs
from ._conditions import (
    APART,
    NEAR,
    SATURATED,
    STAYS_AWAY,
    Hypotheses,
    comes_no_nearer,
    near_svm,
    unsolved,
)


def comes_nearer(evidence: Evidence) -> list[Rule]:
    """Return whether W of a layer is near its W_mm; it fails where it comes no nearer."""
    return near_svm(comes_no_nearer(evidence))


def stays_apart(evidence: Evidence) -> list[Rule]:
    """Return whether W of a layer comes no nearer to its W_mm; being near refutes it."""
    near = (f"{APART} <= {NEAR}", FAILS)
    away = (comes_no_nearer(evidence), HOLDS)
    return [*unsolved(), near, away, (True, "direction not settled")]


ROWS: Hypotheses = {"one token selected in each row that is seen": SATURATED}
SEEN: Hypotheses = {
    "positions that are not seen have no part in the gradient": (
        "unseen_gradient <= 1e-6",
        "unseen_gradient.notna()",
    )
}
FIRST: Hypotheses = {"the first layer": "layer == 0"}
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
    prediction=near_svm(STAYS_AWAY),
    runs=runs("layers"),
    tolerance=f"{LOCAL}where the direction has changed by less than a hundredth of that since "
    "half-way; a share of 1e-6 of the gradient counts as no part",
)

UNSEEN = replace(
    HIERARCHY,
    name="layers_unseen",
    title="every layer goes to the SVM of its own input, whatever positions are not seen",
    hypotheses=ROWS,
    tolerance=HIERARCHY.tolerance.rpartition(";")[0],
)

VALUES = replace(
    HIERARCHY,
    name="layers_values",
    number="what survives of the hierarchy in joint training",
    title="trained with all values, the first layer goes to the SVM of its own input",
    statement="W_0(k) / ||W_0(k)||_F -> W_mm / ||W_mm||_F of the rows of layer 0 that the readout "
    "sees, where V_l takes steps too",
    hypotheses=FIRST | ROWS | SEEN,
    prediction=comes_nearer,
    runs=runs("layers_values"),
    tolerance=f"{LOCAL}where 1 - correlation is at least 0.97 of what it was half-way; a share of "
    "1e-6 of the gradient counts as no part",
)

LINEAR = replace(
    VALUES,
    name="layers_linear",
    title="with all trained by the linear loss, the first layer goes to the SVM of its own input",
    statement="W_0(k) / ||W_0(k)||_F -> W_mm / ||W_mm||_F of the rows of layer 0 that the readout "
    "sees, where V_l, MLPs and head take steps too and l(u) = -u",
    runs=runs("layers_linear"),
)

ALL = replace(
    VALUES,
    name="layers_all",
    title="with everything trained, the first layer does not go to the SVM of its own input",
    statement="lim inf (1 - corr(W_0(k), W_mm)) > 0 for the rows of layer 0 that the readout sees, "
    "where V_l, MLPs and head take steps too",
    prediction=stays_apart,
    runs=runs("layers_all"),
    tolerance="1 - correlation with W_mm > 1e-3, and at least 0.97 of what it was half-way; it "
    "fails at 1e-3 and below; a share of 1e-6 of the gradient counts as no part",
)
