"""Hypotheses and rules that several claims share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from ._claim import FAILS, HOLDS, Condition, Evidence, Hypothesis, Rule, Truths

NEAR = 1e-3
"""Largest 1 - correlation of a direction that is taken for its limit."""

STILL = 1e-4
"""Largest swing of the mean largest softmax since half-way of an attention that has ended."""

SETTLED = 1e-4
"""Largest change of a direction since half-way of the steps that counts as none."""

ROUNDED = 1e-12
"""1 - correlation that counts as 0: below, rounding decides whether it falls."""

FALL = 0.9
"""Largest ratio of 1 - correlation after a decade of steps to that before, where it falls."""

TURNING = 0.01
"""Share of 1 - correlation with the limit by which the direction has changed since half-way, up to
which it stays away. On the way to the limit of normalised steps the two are about equal."""

GAP_NEAR, GAP_FAR = 2e-2, 0.1
"""Margin gap that counts as none; the least one that refutes a limit, if it falls no more."""

STALE = 0.97
"""Share of a margin gap, or of 1 - correlation, half-way that is left at the end, from which on it
falls no more. One that falls to zero like 1 / log k keeps 0.93 of it from 5000 to 10 000."""

APART = "one_minus_corr_frobenius"
"""1 - correlation of the trained W with W_mm of the selected tokens."""

# --- hypotheses -----------------------------------------------------------------------------------

Hypotheses = dict[str, Hypothesis]

SATURATED = "saturated and not tie", "training != 'diverged'"
SELECTED: Hypotheses = {"one token selected in each sample": SATURATED}
ONE_OPTIMUM: Hypotheses = {"one optimal token": "status != 'tie'"}
OVERPARAMETERISED: Hypotheses = {"d >= max(T - 1, n)": "d >= T - 1 and d >= n"}
W_TRAINED: Hypotheses = {"W is trained": "parameterization == 'w'"}
KQ_TRAINED: Hypotheses = {"K and Q are trained": "parameterization == 'kq'"}
OPTIMAL_SELECTED: Hypotheses = {"optimal tokens selected": "convergence == 'global'"}


def feasible(name: str, norm: str) -> Hypotheses:
    """Return the hypothesis that the SVM of a norm is solved; undecided where it is not proved."""
    status = f"{norm}_status"
    return {name: (f"{status} == 'solved'", f"{status} in ['solved', 'infeasible']")}


FEASIBLE = feasible("Att-SVM is feasible", "frobenius")

# --- attention ------------------------------------------------------------------------------------


def still(evidence: Evidence) -> Truths:
    """Return whether the mean largest softmax has hardly changed since half-way of the steps."""
    swing = swings(evidence.curve("max_softmax"))
    return evidence.truths(swing <= STILL, swing.notna())


def swings(curve: pd.DataFrame) -> pd.Series:
    """Return the largest less the smallest value of each row of a curve since half-way.

    Two snapshots alone may agree by chance where a number swings. Missing where the last one is.
    """
    last = float(curve.columns.max())
    late = curve[[step for step in curve.columns if float(step) >= last / 2]]
    swing: pd.Series = (late.max(axis=1) - late.min(axis=1)).where(curve[last].notna())
    return swing


# --- the SVM that W goes to -----------------------------------------------------------------------

UNSOLVED = {
    "undecided": "SVM undecided",
    "infeasible": "the selected tokens cannot be separated",
    "unconstrained": "no token to separate from",
}
"""Status of an SVM without a solution -> why the instance is undecided."""


def unsolved(status: str | pd.Series = "frobenius_status") -> list[Rule]:
    """Return the rules that say why an instance has no SVM to go to, each with a word of its own.

    Parameters
    ----------
    status : str or Series
        The column of the status of that SVM, or its values.
    """
    column = isinstance(status, str)
    return [
        ("training == 'diverged'", "training diverged"),
        ("tie", "tie of two tokens"),
        *((f"{status} == '{kind}'" if column else status == kind, UNSOLVED[kind])
          for kind in UNSOLVED),
    ]  # fmt: skip


GLOBALLY: list[Rule] = [
    ("convergence == 'unsaturated'", "attention not on one token"),
    *unsolved(),
    (f"convergence == 'global' and {APART} <= {NEAR}", HOLDS),
    (f"convergence in ['local', 'not_local'] and {APART} <= {NEAR}", FAILS),
    ("convergence in ['global', 'local', 'not_local', 'unsettled']", "direction not settled"),
    ("convergence == 'undecided'", "SVM undecided"),
    (True, "no SVM of this optimizer is known"),
]
"""W goes to W_mm of the optimal tokens; that of other tokens refutes it."""

GLOBAL = (
    "tokens: softmax >= 0.999 in every sample; other tokens refute it where they are "
    "locally optimal, which is certified, and 1 - correlation with their SVM is <= 1e-3"
)
"""The tolerance of `GLOBALLY`."""


def near_svm(away: Condition, unclear: str = "direction not settled") -> list[Rule]:
    """Return the rules that W is near W_mm of the selected tokens, and these are locally optimal.

    Parameters
    ----------
    away : condition
        Whether W goes elsewhere, which refutes it.
    unclear : str
        The word where W is near, but it is open whether its limit selects these tokens.
    """
    return [
        *unsolved(),
        (f"{APART} <= {NEAR} and convergence in ['global', 'local']", HOLDS),
        (f"{APART} <= {NEAR} and convergence == 'not_local'", FAILS),
        (f"{APART} <= {NEAR}", unclear),
        (away, FAILS),
        (True, "direction not settled"),
    ]


STAYS_AWAY = f"{APART} > {NEAR} and direction_change <= {TURNING} * {APART}"
"""W is not near W_mm, and its direction has hardly changed since half-way."""

LOCALLY = near_svm(STAYS_AWAY, "limit may select other tokens")
"""The prediction of claims on local convergence."""

LIMITS = (
    "1 - correlation with W_mm(alpha) <= 1e-3, and the direction is settled where the tokens are "
    "not locally optimal: it changed by at most 1e-4 since half-way; above 1e-3 it fails where the "
    "direction has changed by less than a hundredth of that since half-way"
)
"""The tolerance of `LOCALLY`."""


def comes_no_nearer(evidence: Evidence) -> Truths:
    """Return whether 1 - correlation with W_mm is not small, and has hardly fallen since half-way.

    Missing where it is not on record.
    """
    before, apart = evidence.at(APART, 2, 1)
    return evidence.truths(
        (apart > NEAR) & (apart >= STALE * before), apart.notna() & before.notna()
    )


# --- margins in other norms -----------------------------------------------------------------------


def by_norm(norms: pd.Series, values: Callable[[str], pd.Series]) -> pd.Series:
    """Return for each instance the value in its norm; missing where the norm is empty."""
    found = pd.Series(np.nan, index=norms.index)
    for norm in set(norms) - {""}:
        found = found.mask(norms == norm, values(norm))
    return found


def margin_limit(evidence: Evidence, norms: pd.Series) -> list[Rule]:
    """Return the rules that the margin in a norm, one for each instance, becomes the largest one.

    Steps are recorded geometrically: half-way are half of the steps.
    """
    gap = by_norm(norms, lambda norm: evidence[f"{norm}_margin_gap"])
    before = by_norm(norms, lambda norm: evidence.at(f"margin_gap_{norm}", 2)[0])
    return [
        *unsolved(by_norm(norms, lambda norm: evidence[f"{norm}_status"])),
        (gap <= GAP_NEAR, HOLDS),
        ((gap >= GAP_FAR) & (gap >= STALE * before), FAILS),
        (gap.isna(), "margin gap not known"),
        (True, "margin gap still falling, or not far"),
    ]
