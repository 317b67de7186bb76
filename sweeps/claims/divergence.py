"""Theorem 3: under Assumption B.1 gradient descent with a small fixed step diverges in norm."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, Claim, Evidence, Words, ruled
from ._conditions import b1
from ._runs import FIXED_STEP

KEPT = 0.5
"""Smallest growth of ||W|| over the last decade of steps, relative to the decade before."""

STOPPED = 0.01
"""Such growth up to which ||W|| counts as bounded."""


def prediction(evidence: Evidence) -> Words:
    """Return whether ||W(k)|| still grows like log k: as much in each decade of steps."""
    norm = evidence.curve("W_norm")
    last = float(norm.columns.max())
    end, middle, begin = (norm[last / 10**k] for k in range(3))
    before, after = middle - begin, end - middle
    return ruled(
        evidence,
        [
            (evidence.trials["training"] == "finite_optimum", FAILS),
            ((after > 0) & (before > 0) & (after >= KEPT * before), HOLDS),
            ((after <= STOPPED * before) & (before > 0), FAILS),
        ],
        otherwise="growth of ||W|| not settled",
    )


CLAIM = Claim(
    name="divergence",
    paper="2308.16898",
    number="Theorem 3",
    title="B.1 makes the norm of gradient descent diverge",
    statement="(x_i,opt - x_it)^T W_mm z_i = 1 for all i and t != opt_i, eta <= 1 / L_W  =>  "
    "||W(k)||_F -> inf from any W(0)",
    hypotheses={"B.1": b1},
    prediction=prediction,
    runs=(FIXED_STEP,),
    tolerance="||W|| grows over the last decade of steps by at least half of its growth over the "
    "decade before, as log k does; a bounded norm would grow by ever less",
)
