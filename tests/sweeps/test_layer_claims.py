"""The claims on networks: each outcome follows from columns that are written by hand."""

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
    gen_svm,
    layers,
    layers_all,
    layers_linear,
    layers_unseen,
    layers_values,
)
from attnsvm.sweeps.claims._conditions import STILL, first_layer, still

TURNS = "direction not settled"


def evidence(trials: pd.DataFrame, history: pd.DataFrame | None = None) -> Evidence:
    trials = trials.assign(run="one", seed=range(len(trials)), status="ok", n=4, T=5, d=16)
    kind = trials.get("convergence", pd.Series("", index=trials.index))
    svm = np.where(kind == "infeasible", "infeasible", "solved")
    trials = trials.assign(training="saturated", tie=False, frobenius_status=svm)
    none = pd.DataFrame({"run": [], "seed": [], "step": [], "quantity": [], "value": []})
    tables = pd.DataFrame({"run": ["one"]}), trials, none if history is None else history
    return Evidence(SweepFrames("", Path("claims"), *tables))


@pytest.mark.parametrize(
    ("apart", "change", "kind", "word"),
    [
        (1e-4, 1e-4, "local", HOLDS),
        (1e-4, 1e-9, "global", HOLDS),
        (1e-4, 1e-9, "not_local", FAILS),
        (1e-4, 1e-4, "unsettled", TURNS),
        (2e-2, 1e-2, "local", TURNS),
        (2e-2, 1e-5, "local", FAILS),
        (np.nan, 1e-9, "infeasible", "the selected tokens cannot be separated"),
    ],
)
def test_a_layer_is_near_its_svm_stays_away_or_is_open(apart, change, kind, word):
    row = {"one_minus_corr_w_mm": apart, "direction_change": change, "convergence": kind}
    assert layers.prediction(evidence(pd.DataFrame([row]))).tolist() == [word]


def test_only_one_claim_asks_for_no_pull_of_unseen_positions():
    trials = pd.DataFrame({"unseen_gradient": [0.0, 1e-7, 0.3, np.nan]})
    assert layers.seen_alone(evidence(trials)).tolist() == [True, True, False, pd.NA]
    asked = set(layers.CLAIM.hypotheses) - set(layers_unseen.CLAIM.hypotheses)
    assert asked == {"positions that are not seen have no part in the gradient"}
    assert layers.CLAIM.source == layers_unseen.CLAIM.source == "ours"
    assert gen_svm.CLAIM.source.startswith("arXiv")


def test_attention_is_still_where_its_mean_has_hardly_changed():
    tops = {
        0: (0.5, 0.5, 0.9),
        1: (0.5, 0.5, 0.5 + STILL / 2),
        2: (0.5, 0.5, np.nan),
        3: (0.782, 0.801, 0.782),  # swings, and is where it was half-way
    }
    history = pd.DataFrame(
        {"run": "one", "seed": seed, "step": step, "quantity": "max_softmax", "value": value}
        for seed, values in tops.items()
        for step, value in zip((500.0, 750.0, 1000.0), values, strict=True)
    )
    found = still(evidence(pd.DataFrame({"one": [1, 2, 3, 4]}), history))
    assert found.tolist() == [False, True, pd.NA, False]


@pytest.mark.parametrize(
    ("half_way", "end", "kind", "towards", "away"),
    [
        (2e-2, 1e-4, "local", HOLDS, FAILS),
        (2e-2, 1e-4, "not_local", FAILS, FAILS),
        (2e-2, 4e-2, "local", FAILS, HOLDS),
        (2e-2, 1.95e-2, "global", FAILS, HOLDS),
        (2e-2, 1.9e-2, "global", TURNS, TURNS),  # as 1 / log k may fall to zero
        (2e-2, 1e-2, "local", TURNS, TURNS),
        (1e-4, 5e-4, "local", HOLDS, FAILS),  # rises, but is near
    ],
)
def test_with_more_trained_a_layer_comes_nearer_or_does_not(half_way, end, kind, towards, away):
    history = pd.DataFrame(
        {"run": "one", "seed": 0, "step": step, "quantity": "one_minus_corr_w_mm", "value": value}
        for step, value in ((5000.0, half_way), (10000.0, end))
    )
    trials = pd.DataFrame([{"one_minus_corr_w_mm": end, "convergence": kind}])
    found = evidence(trials, history)
    assert layers_values.CLAIM.prediction(found).tolist() == [towards]
    assert layers_linear.CLAIM.prediction(found).tolist() == [towards]
    assert layers_all.CLAIM.prediction(found).tolist() == [away]


def test_claims_on_joint_training_are_about_the_first_layer():
    found = first_layer(evidence(pd.DataFrame({"layer": [0, 1, 0]})))
    assert found.tolist() == [True, False, True]
    for module in (layers_values, layers_linear, layers_all):
        assert {"the first layer", *layers.CLAIM.hypotheses} == set(module.CLAIM.hypotheses)
