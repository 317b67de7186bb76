"""Hypotheses and rules that several claims share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ._claim import FAILS, HOLDS, Evidence, Hypotheses, Truths, Words, ruled

NEAR = 1e-3
"""Largest 1 - correlation of a direction that is taken for its limit."""

STILL = 1e-4
"""Largest swing of the mean largest softmax since half-way of an attention that has ended."""

SETTLED = 1e-4
"""Largest change of a direction since half-way of the steps that counts as none."""

ROUNDED = 1e-12
"""1 - correlation that counts as 0: below, rounding decides whether it falls."""


def equals(evidence: Evidence, column: str, value: object) -> Truths:
    """Return whether a column has a value."""
    return evidence.truths(evidence.trials[column] == value)


def at_most(evidence: Evidence, column: str, largest: float) -> Truths:
    """Return whether a column is at most a number."""
    return evidence.truths(evidence.trials[column] <= largest)


def recorded(evidence: Evidence, name: str) -> Truths:
    """Return whether a hypothesis holds, as the run has decided."""
    return evidence.trials[name].astype("boolean")


def overparameterised(evidence: Evidence) -> Truths:
    """Return whether d >= max(T - 1, n)."""
    trials = evidence.trials
    return evidence.truths(trials["d"] >= np.maximum(trials["T"] - 1, trials["n"]))


def one_optimum(evidence: Evidence) -> Truths:
    """Return whether every sample has one token of highest score."""
    return evidence.truths(evidence.trials["status"] != "tie")


def feasible(evidence: Evidence, norm: str = "frobenius") -> Truths:
    """Return whether the recorded SVM is solved; undecided where that is not proved."""
    status = evidence.trials[f"{norm}_status"]
    return evidence.truths(status == "solved", status.isin(("solved", "infeasible")))


def unsolved(evidence: Evidence, norms: str | pd.Series = "frobenius") -> list[tuple[Any, str]]:
    """Return the rules that say why an instance has no SVM to go to, each with a word of its own.

    Parameters
    ----------
    evidence : Evidence
        The instances.
    norms : str or Series
        The norm of that SVM, or one for each instance; there is none where it is empty.
    """
    trials = evidence.trials
    named = pd.Series(norms, index=trials.index)
    status = pd.Series("", index=trials.index, dtype=object)
    for norm in set(named) - {""}:
        status = status.mask(named == norm, trials[f"{norm}_status"])
    return [
        (trials["training"] == "diverged", "training diverged"),
        (trials["tie"], "tie of two tokens"),
        (status == "undecided", "SVM undecided"),
        (status == "infeasible", "the selected tokens cannot be separated"),
        (status == "unconstrained", "no token to separate from"),
    ]


def globally(evidence: Evidence) -> Words:
    """Return whether W goes to W_mm of the optimal tokens; that of other tokens refutes it."""
    kind = evidence.trials["convergence"]
    settled = evidence.one_minus_corr() <= NEAR
    return ruled(
        evidence,
        [
            (kind == "unsaturated", "attention not on one token"),
            *unsolved(evidence),
            ((kind == "global") & settled, HOLDS),
            (kind.isin(("local", "not_local")) & settled, FAILS),
            (kind.isin(("global", "local", "not_local", "unsettled")), "direction not settled"),
            (kind == "undecided", "SVM undecided"),
        ],
        otherwise="no SVM of this optimizer is known",
    )


def trains(evidence: Evidence) -> Truths:
    """Return whether no sample has a head of gradient zero, which would train nothing."""
    return ~evidence.trials["flat"].astype("boolean")


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


def risk_falls(evidence: Evidence) -> Truths:
    """Return whether the risk is smaller at the end than at the start.

    Steps of a fixed length in (W, v) can jump across a valley, farther with every step that grows.
    """
    risk = evidence.curve("risk")
    first, last = risk[risk.columns.min()], risk[risk.columns.max()]
    return evidence.truths(last < first, first.notna() & last.notna())


def saturated(evidence: Evidence) -> Truths:
    """Return whether one token is selected in each sample: softmax >= selection.saturation."""
    trials = evidence.trials
    return evidence.truths(trials["saturated"] & ~trials["tie"], trials["training"] != "diverged")


def at_end(curve: pd.DataFrame, part: int = 1) -> pd.Series:
    """Return the values of a curve at its last step, or at the step that is a part of the last."""
    return curve[float(curve.columns.max()) / part]


TURNING = 0.01
"""Share of 1 - correlation with the limit by which the direction has changed since half-way, up to
which it stays away. On the way to the limit of normalised steps the two are about equal."""


def stays_away(evidence: Evidence) -> Truths:
    """Return whether W is not near W_mm, and its direction has hardly changed since half-way.

    Missing where either is not on record.
    """
    apart, change = evidence.one_minus_corr(), evidence.trials["direction_change"]
    away = (apart > NEAR) & (change <= TURNING * apart)
    return evidence.truths(away, apart.notna() & change.notna())


def comes_no_nearer(evidence: Evidence) -> Truths:
    """Return whether 1 - correlation with W_mm is not small, and has hardly fallen since half-way.

    Missing where it is not on record.
    """
    curve = evidence.one_minus_corr_curve()
    apart, before = at_end(curve), at_end(curve, 2)
    far = (apart > NEAR) & (apart >= STALE * before)
    return evidence.truths(far, apart.notna() & before.notna())


def near_svm(
    evidence: Evidence,
    away: Callable[[Evidence], Truths],
    otherwise_near: str = "direction not settled",
) -> Words:
    """Return whether W is near W_mm of the selected tokens, and these are locally optimal.

    Parameters
    ----------
    evidence : Evidence
        The instances.
    away : callable
        Returns whether W goes elsewhere, which refutes it.
    otherwise_near : str
        The word where W is near, but it is open whether its limit selects these tokens.
    """
    near, kind = evidence.one_minus_corr() <= NEAR, evidence.trials["convergence"]
    return ruled(
        evidence,
        [
            *unsolved(evidence),
            (near & kind.isin(("global", "local")), HOLDS),
            (near & (kind == "not_local"), FAILS),
            (near, otherwise_near),
            (away(evidence), FAILS),
        ],
        otherwise="direction not settled",
    )


GAP_NEAR, GAP_FAR = 2e-2, 0.1
"""Margin gap that counts as none; the least one that refutes a limit, if it falls no more."""

STALE = 0.97
"""Share of a margin gap, or of 1 - correlation, half-way that is left at the end, from which on it
falls no more. One that falls to zero like 1 / log k keeps 0.93 of it from 5000 to 10 000."""


def margin_limit(evidence: Evidence, norms: pd.Series) -> Words:
    """Return whether the margin in a norm, one for each instance, becomes the largest one.

    Steps are recorded geometrically: half-way are half of the steps.
    """
    gap = pd.Series(np.nan, index=norms.index)
    before = gap.copy()
    for norm in set(norms) - {""}:
        here = norms == norm
        gap[here] = evidence.trials.loc[here, f"{norm}_margin_gap"]
        curve = evidence.curve(f"margin_gap_{norm}")
        before[here] = at_end(curve, 2)[here]
    return ruled(
        evidence,
        [
            *unsolved(evidence, norms),
            (gap <= GAP_NEAR, HOLDS),
            ((gap >= GAP_FAR) & (gap >= STALE * before), FAILS),
            (gap.isna(), "margin gap not known"),
        ],
        otherwise="margin gap still falling, or not far",
    )


SELECTED: Hypotheses = {"one token selected in each sample": saturated}
ONE_OPTIMUM: Hypotheses = {"one optimal token": one_optimum}

locally = partial(near_svm, away=stays_away, otherwise_near="limit may select other tokens")
"""The prediction of claims on local convergence."""

LIMITS = (
    "1 - correlation with W_mm(alpha) <= 1e-3, and the direction is settled where the tokens are "
    "not locally optimal: it changed by at most 1e-4 since half-way; above 1e-3 it fails where the "
    "direction has changed by less than a hundredth of that since half-way"
)
"""The tolerance of `locally`."""

GLOBAL = (
    "tokens: softmax >= 0.999 in every sample; other tokens refute it where they are "
    "locally optimal, which is certified, and 1 - correlation with their SVM is <= 1e-3"
)
"""The tolerance of `globally`."""
