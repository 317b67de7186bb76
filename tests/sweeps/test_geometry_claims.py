"""Claims on optimizers: each outcome follows from columns that are written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.claims import (
    FAILS,
    HOLDS,
    Evidence,
    adam_eps,
    adam_max,
    mirror_descent,
    momentum_margin,
    steepest_margin,
)
from attnsvm.sweeps.claims._conditions import GAP_FAR, GAP_NEAR, margin_limit

STEPS = (0, 5000, 10000)
OPEN = "margin gap still falling, or not far"


def evidence(trials: pd.DataFrame, halfway: dict[str, list[float]] | None = None) -> Evidence:
    """Return trials on record, and the margin gaps that they had half-way."""
    trials = trials.assign(run="one", seed=range(len(trials)), status="ok", n=6, T=8, d=10)
    trials = trials.assign(training="saturated", tie=False)
    for norm in ("frobenius", "max", "l1", "l1.75", "l3"):
        of_svm = [f"{norm}_margin_gap", f"one_minus_corr_{norm}"]
        lost = trials.loc[:, trials.columns.isin(of_svm)].isna().any(axis=1)
        trials[f"{norm}_status"] = np.where(lost, "undecided", "solved")
    history = [
        {"run": "one", "seed": seed, "step": step, "quantity": f"margin_gap_{norm}"}
        | {"value": gaps[seed] if step == STEPS[1] else 1.0}
        for norm, gaps in (halfway or {}).items()
        for seed in range(len(trials))
        for step in STEPS
    ]
    frames = (pd.DataFrame({"run": ["one"]}), trials, pd.DataFrame(history))
    return Evidence(SweepFrames("", Path("claims"), *frames))


@pytest.mark.parametrize(
    ("gap", "before", "word"),
    [
        (GAP_NEAR, 0.3, HOLDS),
        (0.3, 0.3, FAILS),
        (0.3, 0.29, FAILS),  # it even rose
        (0.3, 0.34, OPEN),  # a tenth of it and more went since half-way
        (GAP_FAR - 1e-9, 0.09, OPEN),
        (0.3, np.nan, OPEN),
        (np.nan, np.nan, "SVM undecided"),
    ],
)
def test_a_margin_gap_holds_fails_or_is_open(gap, before, word):
    found = evidence(pd.DataFrame({"max_margin_gap": [gap]}), {"max": [before]})
    assert margin_limit(found, pd.Series(["max"])).tolist() == [word]


def test_each_instance_is_judged_in_the_norm_of_its_steps_and_by_its_hypothesis():
    trials = pd.DataFrame(
        {
            "optimizer": ["steepest", "steepest", "steepest", "muon"],
            "norm": ["max", "l1", "max", None],
            "beta": [0.0, 0.0, 0.5, 0.95],
            "max_margin_gap": [0.001, 0.4, 0.4, 0.001],
            "l1_margin_gap": [0.4, 0.001, 0.4, 0.001],
        }
    )
    found = evidence(trials, {"max": [0.4] * 4, "l1": [0.4] * 4})
    words = steepest_margin.prediction(found).tolist()
    assert words == [HOLDS, HOLDS, FAILS, "margin gap not known"]
    assert steepest_margin.without_momentum(found).tolist() == [True, True, False, False]
    assert momentum_margin.with_momentum(found).tolist() == [False, False, True, False]


def test_adam_is_judged_in_the_maximum_norm_with_and_without_its_constant():
    trials = pd.DataFrame({"eps": [0.0, 1e-8], "max_margin_gap": [0.01, 0.5]})
    found = evidence(trials, {"max": [0.1, 0.5]})
    assert adam_max.prediction(found).tolist() == [HOLDS, FAILS]
    assert adam_max.no_constant(found).tolist() == [True, False]
    assert adam_eps.a_constant(found).tolist() == [False, True]


def test_mirror_descent_is_compared_with_the_svm_of_its_own_exponent():
    trials = pd.DataFrame(
        {
            "p": [2.0, 3.0, 3.0, 1.75, 1.75],
            "one_minus_corr_w_mm": [1e-4, 0.5, 0.5, 0.5, 0.5],
            "one_minus_corr_l3": [0.5, 1e-4, 0.5, 0.5, 0.5],
            "one_minus_corr_l1.75": [0.5, 0.5, 0.5, 5e-3, np.nan],
            "direction_change": [0.0, 0.0, 1e-6, 1e-6, 0.0],
        }
    )
    words = mirror_descent.prediction(evidence(trials)).tolist()
    assert words == [HOLDS, HOLDS, FAILS, "direction not settled", "SVM undecided"]
    turning = evidence(trials.assign(direction_change=0.1))
    assert mirror_descent.prediction(turning).tolist()[2] == "direction not settled"
