"""Hypotheses and rules that several claims share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from ._claim import FAILS, HOLDS, Evidence, Truths, Words, ruled

NEAR = 1e-3
"""Largest 1 - correlation of a direction that is taken for its limit."""

STILL = 1e-4
"""Largest swing of the mean largest softmax since half-way of an attention that has ended."""

ROUNDED = 1e-12
"""1 - correlation that counts as 0: below, rounding decides whether it falls."""


def overparameterised(evidence: Evidence) -> Truths:
    """Return whether d >= max(T - 1, n)."""
    trials = evidence.trials
    return evidence.truths(trials["d"] >= np.maximum(trials["T"] - 1, trials["n"]))


def one_optimum(evidence: Evidence) -> Truths:
    """Return whether every sample has one token of highest score."""
    return evidence.truths(evidence.trials["status"] != "tie")


def hypothesis(name: str) -> Callable[[Evidence], Truths]:
    """Return the condition that a hypothesis holds that the runs have decided."""
    return lambda evidence: evidence.trials[name].astype("boolean")


def feasible(evidence: Evidence, norm: str = "frobenius") -> Truths:
    """Return whether the recorded SVM is solved; undecided where that is not proved."""
    status = evidence.trials[f"{norm}_status"]
    return evidence.truths(status == "solved", status.isin(("solved", "infeasible")))


def b1(evidence: Evidence) -> Truths:
    """Return whether Assumption B.1 holds: all margins at the optimal tokens equal 1."""
    return evidence.trials["assumption_b1"].astype("boolean")


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
    settled = evidence.trials["one_minus_corr_w_mm"] <= NEAR
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


def minimises(evidence: Evidence, norm: str) -> Truths:
    """Return whether the end of a regularisation path is a global minimiser, as far as is known.

    Not if it selects other tokens than the optimal ones, nor if the SVM solution of the same norm
    has a smaller excess risk L - L*: then it is another local minimum, or a saddle.
    """
    trials = evidence.trials
    worse = evidence.from_arrays(lambda arrays: _excess_above_svm(arrays, norm))
    kind = trials["convergence"]
    least = (kind == "global") & (worse <= EXCESS)
    other = kind.isin(("local", "not_local", "unsettled", "unsaturated"))
    return evidence.truths(least, other | worse.notna())


EXCESS = 1e-6
"""Largest log (L - L*)(W) - log (L - L*)(SVM) of a minimiser."""


def _excess_above_svm(arrays: Mapping[str, np.ndarray], norm: str) -> np.ndarray:
    """Return log of the ratio of L - L* at the trained W and at the SVM scaled to its norm."""
    W, W_svm = arrays["trained_W"], arrays[f"{norm}_W"]
    order = 2 if norm == "frobenius" else 1
    sizes = [np.linalg.norm(np.linalg.svd(M, compute_uv=False), order, axis=1) for M in (W, W_svm)]
    scaled = W_svm * (sizes[0] / sizes[1])[:, None, None]
    above: np.ndarray = _log_excess(arrays, W) - _log_excess(arrays, scaled)
    return above


def _log_excess(arrays: Mapping[str, np.ndarray], W: np.ndarray) -> np.ndarray:
    """Return log of sum_i |loss'(gamma_opt)| sum_t s_it (gamma_opt - gamma_it), logistic loss.

    It is n (L - L*) of a linear head to first order in the softmax of the other tokens.
    """
    gamma, mask = arrays["scores"], arrays["mask"]
    logits = np.where(mask, np.einsum("bntd,bde,bne->bnt", arrays["X"], W, arrays["Z"]), -np.inf)
    log_s = logits - logsumexp(logits, axis=2, keepdims=True)
    best = gamma.max(axis=2)
    with np.errstate(divide="ignore"):
        lost = np.log(np.where(mask, best[:, :, None] - gamma, 0.0))
    each = logsumexp(log_s + lost, axis=2) - np.logaddexp(0.0, best)
    total: np.ndarray = logsumexp(each, axis=1)
    return total


def path_limit(apart: pd.Series, evidence: Evidence) -> Words:
    """Return whether a regularisation path ends near its limit, `apart` being how far it is."""
    rules = [(apart <= NEAR, HOLDS), (apart > NEAR, FAILS)]
    return ruled(evidence, rules, otherwise="SVM undecided")


def first_layer(evidence: Evidence) -> Truths:
    """Return whether the row is the first layer of a network."""
    return evidence.truths(evidence.trials["layer"] == 0)


def towards_svm(evidence: Evidence) -> Words:
    """Return whether W of a layer is near its W_mm, or comes no nearer to it."""
    apart, local = evidence.trials["one_minus_corr_w_mm"], ("global", "local")
    return ruled(
        evidence,
        [
            *unsolved(evidence),
            ((apart <= NEAR) & evidence.trials["convergence"].isin(local), HOLDS),
            ((apart <= NEAR) & (evidence.trials["convergence"] == "not_local"), FAILS),
            (comes_no_nearer(evidence), FAILS),
        ],
        otherwise="direction not settled",
    )


TURNING = 0.01
"""Share of 1 - correlation with the limit by which the direction has changed since half-way, up to
which it stays away. On the way to the limit of normalised steps the two are about equal."""


def stays_away(evidence: Evidence) -> Truths:
    """Return whether W is not near W_mm, and its direction has hardly changed since half-way.

    Missing where either is not on record.
    """
    trials = evidence.trials
    apart, change = trials["one_minus_corr_w_mm"], trials["direction_change"]
    away = (apart > NEAR) & (change <= TURNING * apart)
    return evidence.truths(away, apart.notna() & change.notna())


def comes_no_nearer(evidence: Evidence) -> Truths:
    """Return whether 1 - correlation with W_mm is not small, and has hardly fallen since half-way.

    Missing where it is not on record.
    """
    curve = evidence.curve("one_minus_corr_w_mm")
    last = float(curve.columns.max())
    apart, before = curve[last], curve[last / 2]
    far = (apart > NEAR) & (apart >= STALE * before)
    return evidence.truths(far, apart.notna() & before.notna())


GAP_NEAR, GAP_FAR = 2e-2, 0.1
"""Margin gap that counts as none; the least one that refutes a limit, if it falls no more."""

STALE = 0.97
"""Share of a margin gap, or of 1 - correlation, half-way that is left at the end, from which on it
falls no more. One that falls to zero like 1 / log k keeps 0.93 of it from 5000 to 10 000."""


def margin_words(evidence: Evidence, gap: pd.Series) -> Words:
    """Return whether a margin gap at the end counts as none."""
    rules = [(gap <= GAP_NEAR, HOLDS), (gap >= GAP_FAR, FAILS), (gap.notna(), "margin gap not far")]
    return ruled(evidence, rules, otherwise="not separable")


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
        before[here] = curve.loc[here, float(curve.columns.max()) / 2]
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
