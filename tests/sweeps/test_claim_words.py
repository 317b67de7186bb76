"""Predictions of claims on columns and curves that are written by hand."""

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
    all_optimal,
    cone_runner_up,
    gen_svm,
    joint_support,
    kq_small_steps,
    layers,
    layers_all,
    layers_linear,
    limits,
    local_path,
    mixture,
)
from attnsvm.sweeps.claims._conditions import globally, margin_limit, risk_falls, towards_svm

STEPS = (0, 5000, 10000)
SIZE = {"n": 3, "T": 3, "d": 4}
OPEN = "still coming nearer, or not far"


def evidence(curves=None, steps=STEPS, **columns):
    """Return evidence of these columns, and of curves at `steps`, a row of them each."""
    count = len(next(iter({**columns, **(curves or {})}.values())))
    trials = pd.DataFrame({"run": "one", "seed": range(count), "status": "ok", **SIZE, **columns})
    history = [
        {"run": "one", "seed": seed, "step": step, "quantity": quantity, "value": value}
        for quantity, rows in (curves or {}).items()
        for seed, row in enumerate(rows)
        for step, value in zip(steps, row, strict=True)
    ]
    columns = ["run", "seed", "step", "quantity", "value"]
    frames = (pd.DataFrame({"run": ["one"]}), trials, pd.DataFrame(history, columns=columns))
    return Evidence(SweepFrames("", Path("claims"), *frames))


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_curve_that_is_not_recorded_does_not_hold(missing):
    still = [2.0, 2.0, 2.0]
    lost = [np.nan if k == missing else 2.0 for k in range(3)]
    found = evidence({"W_norm": [still, lost, [2.0, 2.1, 2.0]], "max_softmax": [still] * 3})
    assert all_optimal.prediction(found).tolist() == [HOLDS, "a step is not recorded", FAILS]
    found = evidence({"W_norm": [lost], "max_softmax": [[0.5, 0.5, 0.6]]})
    assert all_optimal.prediction(found).tolist() == [FAILS]  # the other curve says so


def test_a_run_that_leaves_the_cone_of_its_start_does_not_hold(monkeypatch):
    """1 - cos(0.1 degrees) is 1.5e-6; of 60 degrees 0.5, so that 1e-3 decides."""
    found = evidence(
        init_angle=[0.1, 0.1, 0.1, 60.0, 60.0, 0.1, 0.1],
        one_minus_corr_w_mm=[1.4e-6, 1.6e-6, 2e-3, 9e-4, 2e-3, 1e-9, 1e-9],
        saturated=[True, True, True, True, True, True, False],
        training=["saturated"] * 7,
        tie=[False] * 7,
        frobenius_status=["solved"] * 7,
    )
    same = pd.Series([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    monkeypatch.setattr(Evidence, "from_arrays", lambda *_: same)
    farther, open_ = (
        "tokens of the start, but farther from their direction",
        "direction not settled",
    )
    expected = [HOLDS, farther, open_, HOLDS, open_, FAILS, "attention not on one token"]
    assert cone_runner_up.prediction(found).tolist() == expected


def test_gen_svm_fails_only_where_no_solution_is_near():
    far = [0.5, 0.3, 0.295]
    ends = [[0.5, 0.3, 0.005], far, far, far, far, [0.5, 0.3, 0.2], [0.5, 0.3, 0.3]]
    soft = [[0.3, 0.9, 0.9]] * 6 + [[0.3, 0.8, 0.9]]
    curves = {"one_minus_corr_svmeq_nuclear": ends, "max_softmax": soft}
    found = evidence(
        curves,
        nuclear_margin_gap=[0.5, 0.2, 0.2, 0.2, 0.01, 0.2, 0.2],
        max_masked_softmax=[1e-3, 1e-6, 0.0, 2e-6, 0.0, 0.0, 0.0],
    )
    words = gen_svm.near_svmeq(found, "one_minus_corr_svmeq_nuclear", "nuclear")
    soft = "tokens that are not attended have softmax"
    assert words.tolist() == [HOLDS, FAILS, FAILS, soft, OPEN, OPEN, "attention moves"]


UNSOLVED = {
    "training diverged": {"training": "diverged"},
    "tie of two tokens": {"tie": True, "frobenius_status": "undecided"},
    "SVM undecided": {"frobenius_status": "undecided"},
    "the selected tokens cannot be separated": {"frobenius_status": "infeasible"},
    "no token to separate from": {"frobenius_status": "unconstrained"},
    "direction not settled": {},
}


@pytest.mark.parametrize("claim", [limits, layers, layers_all, layers_linear])
def test_each_reason_that_an_instance_is_undecided_has_its_own_word(claim):
    """In all of them 1 - correlation is .5, and it fell to that from .8."""
    usual = {"training": "saturated", "tie": False, "frobenius_status": "solved"}
    rows = [usual | change for change in UNSOLVED.values()]
    columns = {name: [row[name] for row in rows] for name in usual}
    count = len(rows)
    curve = {"one_minus_corr_w_mm": [[0.9, 0.8, 0.5]] * count}
    given = {"one_minus_corr_w_mm": [0.5] * count, "direction_change": [0.1] * count}
    found = evidence(curve, **columns, **given, convergence=["unsettled"] * count)
    assert claim.CLAIM.prediction(found).tolist() == [*UNSOLVED]


def test_a_tie_is_no_undecided_training():
    """By the word of convergence, which is empty for a tie."""
    found = evidence(
        convergence=["global", "local", "", "undecided", "unknown", "infeasible", "global"],
        one_minus_corr_w_mm=[1e-4, 1e-4, 0.1, 0.1, 0.1, np.nan, 0.1],
        training=["saturated"] * 7,
        tie=[False, False, True, False, False, False, False],
        frobenius_status=[*["solved"] * 3, "undecided", "solved", "infeasible", "solved"],
    )
    assert globally(found).tolist() == [
        HOLDS, FAILS, "tie of two tokens", "SVM undecided", "no SVM of this optimizer is known",
        "the selected tokens cannot be separated", "direction not settled",
    ]  # fmt: skip


def test_kq_that_still_turns_or_is_at_its_limit_to_rounding_refutes_nothing():
    """At the end 1 - correlation is above what it was a decade earlier, but for the last one."""
    rows = [[0.5, 0.4, 0.4], [2e-3, 2e-3, 2e-2], [2e-16, 2e-16, 3e-16], [0.5, 0.4, 0.1]]
    found = evidence(
        {"one_minus_corr_w_star_mm": rows},
        (0, 1000, 10000),
        direction_change=[1e-3, 0.019, 0.5, 0.5],
        training=["saturated"] * 4,
        tie=[False] * 4,
        nuclear_status=["solved"] * 4,
    )
    turns = "hardly falls, or still turns"
    assert kq_small_steps.prediction(found).tolist() == [FAILS, turns, HOLDS, HOLDS]


def test_the_word_is_that_of_the_svm_of_each_instance():
    norms = pd.Series(["max", "l1", "l1", ""])
    found = evidence(
        {
            "margin_gap_max": [[0.5, 0.5, np.nan]] * 4,
            "margin_gap_l1": [[0.5, 0.5, np.nan], [0.5] * 3, [np.nan] * 3, [np.nan] * 3],
        },
        training=["saturated"] * 4,
        tie=[False] * 4,
        max_status=["undecided", "infeasible", "solved", "solved"],
        l1_status=["infeasible", "solved", "infeasible", "infeasible"],
        max_margin_gap=[np.nan] * 4,
        l1_margin_gap=[np.nan, 0.5, np.nan, np.nan],
    )
    words = margin_limit(found, norms).tolist()
    apart = "the selected tokens cannot be separated"
    assert words == ["SVM undecided", FAILS, apart, "margin gap not known"]


def test_the_finite_part_holds_fails_or_comes_nearer():
    ends = [[1.0, 0.1, 0.01], [1.0, 0.3, 0.299], [1.0, 0.3, 0.2], [1.0, 0.05, 0.05], [np.nan] * 3]
    found = evidence(
        {"mixture_fin": ends},
        mixture_fin=[row[-1] for row in ends],
        mixture_apart=[0.01] * 4 + [0.0],
        parameterization=["w", "w", "w", "kq", "w"],
    )
    moving = "still moving, or not far"
    assert mixture.prediction(found).tolist() == [HOLDS, FAILS, moving, moving, moving]
    rising = evidence({"mixture_fin": [[1.0, 2.06, 2.10]]})
    assert mixture.prediction(rising).tolist() == [moving]
    assert mixture.known(found).tolist() == [True, True, True, True, False]
    unknown = evidence(mixture_fin=[np.nan], mixture_apart=[np.nan])
    assert mixture.known(unknown).tolist() == [pd.NA]
    assert mixture.of("w")(found).tolist() == [True, True, True, False, True]


def test_a_direction_that_has_settled_away_from_its_svm_refutes_its_limit():
    """Near it, it holds; away, it fails if it changed by less than a hundredth of the distance."""
    count = 7
    found = evidence(
        one_minus_corr_w_mm=[1e-4, 0.5, 0.5, 0.5, 1e-4, 1e-4, np.nan],
        direction_change=[0.1, 4e-3, 6e-3, np.nan, 0.0, 0.1, 0.0],
        convergence=["local", "local", "local", "unsettled", "not_local", "unsettled", "local"],
        training=["saturated"] * count,
        tie=[False] * count,
        frobenius_status=["solved"] * count,
    )
    open_ = "direction not settled"
    expected = [HOLDS, FAILS, open_, open_, FAILS, "limit may select other tokens", open_]
    assert limits.prediction(found).tolist() == expected
    layers_words = layers.prediction(found).tolist()
    assert layers_words == [*expected[:5], open_, open_]


@pytest.mark.parametrize("why", [word for word in UNSOLVED if word != "direction not settled"])
def test_an_instance_without_a_solved_svm_never_holds(why):
    """Even where all other columns say that it is near."""
    near = {"one_minus_corr_w_mm": [1e-9], "direction_change": [0.0], "convergence": ["global"]}
    row = {"training": "saturated", "tie": False, "frobenius_status": "solved"} | UNSOLVED[why]
    found = evidence(
        {"one_minus_corr_w_mm": [[0.9, 0.5, 1e-9]]}, **near, **{k: [v] for k, v in row.items()}
    )
    for prediction in (limits.prediction, layers.prediction, towards_svm, globally):
        assert prediction(found).tolist() == [why]


def test_the_risk_falls_where_it_ends_below_its_start():
    rows = [[1.0, 2.0, 0.5], [1.0, 0.5, 1.5], [1.0, 1.0, 1.0], [np.nan, 1.0, 0.5]]
    found = risk_falls(evidence({"risk": rows}))
    assert found.isna().tolist() == [False, False, False, True]
    assert found[:3].tolist() == [True, False, False]


@pytest.mark.parametrize("claim", [cone_runner_up, local_path])
def test_tokens_that_are_not_recorded_neither_hold_nor_fail(claim, monkeypatch):
    found = evidence(
        init_angle=[0.1], one_minus_corr_w_mm=[1e-9], saturated=[True], training=["saturated"],
        tie=[False], frobenius_status=["solved"],
    )  # fmt: skip
    monkeypatch.setattr(Evidence, "from_arrays", lambda *_: pd.Series([np.nan]))
    assert not {HOLDS, FAILS} & set(claim.prediction(found))


def test_margins_of_the_head_are_equal_different_or_undecided(monkeypatch):
    """Of one sample with v^T x = 1 and another with Y v^T x = 1, 1.05, 1.2 and -1."""
    others = np.array([1.0, 1.05, 1.2, -1.0])
    arrays = {
        "X": np.stack([np.array([[[1.0], [9.0]], [[9.0], [-other]]]) for other in others]),
        "selected": np.array([[0, 1]] * 4),
        "Y": np.array([[1.0, -1.0]] * 4),
        "trained_v": np.ones((4, 1)),
    }
    ratios = joint_support.ratio_of_margins(arrays)
    np.testing.assert_allclose(ratios, [1.0, 1.05, 1.2, np.inf])
    monkeypatch.setattr(Evidence, "from_arrays", lambda *_: pd.Series(ratios))
    found = joint_support.all_support(evidence(d=[1] * 4))
    assert found.isna().tolist() == [False, True, False, False]
    assert found[[0, 2, 3]].tolist() == [True, False, False]
