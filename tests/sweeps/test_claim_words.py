"""Each outcome of a claim follows from columns and curves that are written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.claims import FAILS, HOLDS, Evidence, all_claims
from attnsvm.sweeps.claims._conditions import GAP_FAR, GAP_NEAR, STILL, still
from attnsvm.sweeps.claims.joint_training import all_support, ratio_of_margins, risk_falls

CLAIMS = {claim.name: claim for claim in all_claims()}
STEPS = (0, 5000, 10000)
OPEN = "still coming nearer, or not far"
TURNS = "direction not settled"
SOLVED = {"training": "saturated", "tie": False, "frobenius_status": "solved"}


def evidence(curves=None, steps=STEPS, **columns):
    """Return evidence of these columns, and of curves at `steps`, a row of them each."""
    count = len(next(iter({**columns, **(curves or {})}.values())))
    usual = {"run": "one", "seed": range(count), "status": "ok", "n": 3, "T": 3, "d": 4}
    trials = pd.DataFrame({**usual, **SOLVED, **columns})
    history = [
        {"run": "one", "seed": seed, "step": step, "quantity": quantity, "value": value}
        for quantity, rows in (curves or {}).items()
        for seed, row in enumerate(rows)
        for step, value in zip(steps, row, strict=True)
    ]
    names = ["run", "seed", "step", "quantity", "value"]
    frames = (pd.DataFrame({"run": ["one"]}), trials, pd.DataFrame(history, columns=names))
    return Evidence(SweepFrames("", Path("claims"), *frames))


def words(name, found):
    """Return the words of the prediction of a claim."""
    return CLAIMS[name].words(found).tolist()


def met(name, hypothesis, found):
    """Return whether a hypothesis of a claim is met, by a part of its words."""
    (said,) = (said for said in CLAIMS[name].hypotheses if hypothesis in said)
    return CLAIMS[name].met(said, found).tolist()


# --- reasons not to decide ------------------------------------------------------------------------

UNSOLVED = {
    "training diverged": {"training": "diverged"},
    "tie of two tokens": {"tie": True, "frobenius_status": "undecided"},
    "SVM undecided": {"frobenius_status": "undecided"},
    "the selected tokens cannot be separated": {"frobenius_status": "infeasible"},
    "no token to separate from": {"frobenius_status": "unconstrained"},
}


@pytest.mark.parametrize("name", ["limits", "layers", "layers_all", "layers_linear"])
def test_each_reason_that_an_instance_is_undecided_has_its_own_word(name):
    """In all of them 1 - correlation is .5, and it fell to that from .8."""
    rows = [SOLVED | change for change in (*UNSOLVED.values(), {})]
    columns = {key: [row[key] for row in rows] for key in SOLVED}
    count = len(rows)
    curve = {"one_minus_corr_frobenius": [[0.9, 0.8, 0.5]] * count}
    given = {"one_minus_corr_frobenius": [0.5] * count, "direction_change": [0.1] * count}
    found = evidence(curve, **columns, **given, convergence=["unsettled"] * count)
    assert words(name, found) == [*UNSOLVED, TURNS]


def test_an_instance_without_a_solved_svm_never_holds():
    """Even where all other columns say that it is near."""
    near = {
        "one_minus_corr_frobenius": [1e-9],
        "direction_change": [0.0],
        "convergence": ["global"],
    }
    for why, change in UNSOLVED.items():
        row = {key: [value] for key, value in (SOLVED | change).items()}
        found = evidence({"one_minus_corr_frobenius": [[0.9, 0.5, 1e-9]]}, **near, **row)
        for name in ("limits", "layers", "layers_values", "b1_alone"):
            assert words(name, found) == [why]


def test_a_tie_is_no_undecided_training():
    """By the word of convergence, which is empty for a tie."""
    found = evidence(
        convergence=["global", "local", "", "undecided", "unknown", "infeasible", "global"],
        one_minus_corr_frobenius=[1e-4, 1e-4, 0.1, 0.1, 0.1, np.nan, 0.1],
        tie=[False, False, True, False, False, False, False],
        frobenius_status=[*["solved"] * 3, "undecided", "solved", "infeasible", "solved"],
    )
    assert words("b1_alone", found) == [
        HOLDS, FAILS, "tie of two tokens", "SVM undecided", "no SVM of this optimizer is known",
        "the selected tokens cannot be separated", TURNS,
    ]  # fmt: skip


def test_what_is_not_recorded_neither_holds_nor_fails(monkeypatch):
    still_, lost = [2.0, 2.0, 2.0], [2.0, np.nan, 2.0]
    found = evidence({"W_norm": [still_, lost, [2.0, 2.1, 2.0]], "max_softmax": [still_] * 3})
    assert words("all_optimal", found) == [HOLDS, "a step is not recorded", FAILS]
    found = evidence({"W_norm": [lost], "max_softmax": [[0.5, 0.5, 0.6]]})
    assert words("all_optimal", found) == [FAILS]  # the other curve says so
    monkeypatch.setattr(Evidence, "from_arrays", lambda *_: pd.Series([np.nan]))
    found = evidence(init_angle=[0.1], one_minus_corr_frobenius=[1e-9], saturated=[True])
    for name in ("cone_runner_up", "local_path"):
        assert not {HOLDS, FAILS} & set(words(name, found))


# --- directions -----------------------------------------------------------------------------------


def test_a_run_that_leaves_the_cone_of_its_start_does_not_hold(monkeypatch):
    """1 - cos(0.1 degrees) is 1.5e-6; of 60 degrees 0.5, so that 1e-3 decides."""
    found = evidence(
        init_angle=[0.1, 0.1, 0.1, 60.0, 60.0, 0.1, 0.1],
        one_minus_corr_frobenius=[1.4e-6, 1.6e-6, 2e-3, 9e-4, 2e-3, 1e-9, 1e-9],
        saturated=[True, True, True, True, True, True, False],
    )
    same = pd.Series([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    monkeypatch.setattr(Evidence, "from_arrays", lambda *_: same)
    farther = "tokens of the start, but farther from their direction"
    expected = [HOLDS, farther, TURNS, HOLDS, TURNS, FAILS, "attention not on one token"]
    assert words("cone_runner_up", found) == expected


def test_a_direction_that_has_settled_away_from_its_svm_refutes_its_limit():
    """Near it, it holds; away, it fails if it changed by less than a hundredth of the distance."""
    found = evidence(
        one_minus_corr_frobenius=[1e-4, 0.5, 0.5, 0.5, 1e-4, 1e-4, np.nan],
        direction_change=[0.1, 4e-3, 6e-3, np.nan, 0.0, 0.1, 0.0],
        convergence=["local", "local", "local", "unsettled", "not_local", "unsettled", "local"],
    )
    expected = [HOLDS, FAILS, TURNS, TURNS, FAILS, "limit may select other tokens", TURNS]
    assert words("limits", found) == expected
    assert words("layers", found) == [*expected[:5], TURNS, TURNS]


def test_kq_that_still_turns_or_is_at_its_limit_to_rounding_refutes_nothing():
    """At the end 1 - correlation is above what it was a decade earlier, but for the last one."""
    rows = [[0.5, 0.4, 0.4], [2e-3, 2e-3, 2e-2], [2e-16, 2e-16, 3e-16], [0.5, 0.4, 0.1]]
    found = evidence(
        {"one_minus_corr_nuclear": rows},
        (0, 1000, 10000),
        direction_change=[1e-3, 0.019, 0.5, 0.5],
        nuclear_status=["solved"] * 4,
    )
    assert words("kq_small_steps", found) == [FAILS, "hardly falls, or still turns", HOLDS, HOLDS]


@pytest.mark.parametrize(
    ("half_way", "end", "kind", "towards", "away"),
    [
        (2e-2, 1e-4, "local", HOLDS, FAILS),
        (2e-2, 1e-4, "not_local", FAILS, FAILS),
        (2e-2, 4e-2, "local", FAILS, HOLDS),
        (2e-2, 1.9e-2, "global", TURNS, TURNS),  # as 1 / log k may fall to zero
        (1e-4, 5e-4, "local", HOLDS, FAILS),  # rises, but is near
    ],
)
def test_with_more_trained_a_layer_comes_nearer_or_does_not(half_way, end, kind, towards, away):
    curve = {"one_minus_corr_frobenius": [[0.9, half_way, end]]}
    found = evidence(curve, one_minus_corr_frobenius=[end], convergence=[kind])
    assert words("layers_values", found) == words("layers_linear", found) == [towards]
    assert words("layers_all", found) == [away]


def test_mirror_descent_is_compared_with_the_svm_of_its_own_exponent():
    columns = {
        "p": [2.0, 3.0, 3.0, 1.75, 1.75],
        "one_minus_corr_frobenius": [1e-4, 0.5, 0.5, 0.5, 0.5],
        "one_minus_corr_l3": [0.5, 1e-4, 0.5, 0.5, 0.5],
        "one_minus_corr_l1.75": [0.5, 0.5, 0.5, 5e-3, np.nan],
        "direction_change": [0.0, 0.0, 1e-6, 1e-6, 0.0],
        "l3_status": ["solved"] * 5,
        "l1.75_status": [*["solved"] * 4, "undecided"],
    }
    expected = [HOLDS, HOLDS, FAILS, TURNS, "SVM undecided"]
    assert words("mirror_descent", evidence(**columns)) == expected
    turning = columns | {"direction_change": [0.1] * 5}
    assert words("mirror_descent", evidence(**turning))[2] == TURNS


# --- margins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gap", "before", "word"),
    [
        (GAP_NEAR, 0.3, HOLDS),
        (0.3, 0.29, FAILS),  # it even rose
        (0.3, 0.34, "margin gap still falling, or not far"),  # a tenth of it and more went
        (GAP_FAR - 1e-9, 0.09, "margin gap still falling, or not far"),
        (np.nan, np.nan, "margin gap not known"),
    ],
)
def test_a_margin_gap_holds_fails_or_is_open(gap, before, word):
    curves = {"margin_gap_max": [[1.0, before, gap]]}
    found = evidence(curves, max_margin_gap=[gap], max_status=["solved"])
    assert words("adam_max", found) == [word]


def test_each_instance_is_judged_in_the_norm_of_its_steps_and_by_its_hypothesis():
    found = evidence(
        {"margin_gap_max": [[1.0, 0.4, 1.0]] * 5, "margin_gap_l1": [[1.0, 0.4, 1.0]] * 5},
        optimizer=["steepest", "steepest", "steepest", "muon", "steepest"],
        norm=["max", "l1", "max", None, "l1"],
        beta=[0.0, 0.0, 0.5, 0.95, 0.0],
        max_margin_gap=[0.001, 0.4, 0.4, 0.001, 0.4],
        l1_margin_gap=[0.4, 0.001, 0.4, 0.001, np.nan],
        max_status=["solved"] * 5,
        l1_status=[*["solved"] * 4, "infeasible"],
    )
    apart = "the selected tokens cannot be separated"
    expected = [HOLDS, HOLDS, FAILS, "margin gap not known", apart]
    assert words("steepest_margin", found) == expected
    assert met("steepest_margin", "no momentum", found) == [True, True, False, False, True]
    assert met("momentum_margin", "momentum", found) == [False, False, True, False, False]


def test_adam_is_judged_in_the_maximum_norm_with_and_without_its_constant():
    curves = {"margin_gap_max": [[1.0, 0.1, 0.01], [1.0, 0.5, 0.5]]}
    columns = {"eps": [0.0, 1e-8], "max_margin_gap": [0.01, 0.5], "max_status": ["solved"] * 2}
    found = evidence(curves, **columns)
    assert words("adam_max", found) == words("adam_eps", found) == [HOLDS, FAILS]
    assert met("adam_max", "eps", found) == [True, False]
    assert met("adam_eps", "eps", found) == [False, True]


def test_only_one_claim_on_layers_allows_gradients_of_unseen_positions():
    found = evidence(unseen_gradient=[0.0, 1e-7, 0.3, np.nan])
    assert met("layers", "not seen", found) == [True, True, False, pd.NA]
    without = set(CLAIMS["layers"].hypotheses) - set(CLAIMS["layers_unseen"].hypotheses)
    assert without == {"positions that are not seen have no part in the gradient"}
    assert met("layers_all", "first layer", evidence(layer=[0, 1, 0])) == [True, False, True]


# --- nonlinear heads ------------------------------------------------------------------------------


def test_gen_svm_fails_only_where_no_solution_is_near():
    far = [0.5, 0.3, 0.295]
    ends = [[0.5, 0.3, 0.005], far, far, far, far, [0.5, 0.3, 0.2], [0.5, 0.3, 0.3]]
    soft = [[0.3, 0.9, 0.9]] * 6 + [[0.3, 0.8, 0.9]]
    found = evidence(
        {"one_minus_corr_svmeq_nuclear": ends, "max_softmax": soft},
        nuclear_margin_gap=[0.5, 0.2, 0.2, 0.2, 0.01, 0.2, 0.2],
        max_masked_softmax=[1e-3, 1e-6, 0.0, 2e-6, 0.0, 0.0, 0.0],
    )
    rest = "tokens that are not attended have softmax"
    expected = [HOLDS, FAILS, FAILS, rest, OPEN, OPEN, "attention moves"]
    assert words("gen_svm_kq", found) == expected


def test_attention_is_still_where_its_mean_has_hardly_changed():
    """The last one swings, and is where it was half-way."""
    tops = [[0.5, 0.5, 0.9], [0.5, 0.5, 0.5 + STILL / 2], [0.5, 0.5, np.nan], [0.782, 0.801, 0.782]]
    found = still(evidence({"max_softmax": tops}, (500.0, 750.0, 1000.0)))
    assert found.tolist() == [False, True, pd.NA, False]


def test_the_finite_part_holds_fails_or_comes_nearer():
    ends = [[1.0, 0.1, 0.01], [1.0, 0.3, 0.299], [1.0, 0.3, 0.2], [1.0, 0.05, 0.05], [np.nan] * 3]
    ends.append([1.0, 2.06, 2.10])  # it rises
    found = evidence(
        {"mixture_fin": ends},
        mixture_fin=[row[-1] for row in ends],
        mixture_apart=[0.01] * 4 + [0.0, np.nan],
        parameterization=["w", "w", "w", "kq", "w", "w"],
    )
    moving = "still moving, or not far"
    assert words("mixture", found) == [HOLDS, FAILS, *[moving] * 4]
    assert met("mixture", "best mixture", found) == [True, True, True, True, False, pd.NA]
    assert met("mixture", "W is trained", found) == [True, True, True, False, True, True]
    assert met("mixture_kq", "K and Q", found) == [False, False, False, True, False, False]


# --- joint training -------------------------------------------------------------------------------


def test_the_risk_falls_where_it_ends_below_its_start():
    rows = [[1.0, 2.0, 0.5], [1.0, 0.5, 1.5], [1.0, 1.0, 1.0], [np.nan, 1.0, 0.5]]
    assert risk_falls(evidence({"risk": rows})).tolist() == [True, False, False, pd.NA]


def test_margins_of_the_head_are_equal_different_or_undecided(monkeypatch):
    """Of one sample with v^T x = 1 and another with Y v^T x = 1, 1.05, 1.2 and -1."""
    others = np.array([1.0, 1.05, 1.2, -1.0])
    arrays = {
        "X": np.stack([np.array([[[1.0], [9.0]], [[9.0], [-other]]]) for other in others]),
        "selected": np.array([[0, 1]] * 4),
        "Y": np.array([[1.0, -1.0]] * 4),
        "trained_v": np.ones((4, 1)),
    }
    ratios = ratio_of_margins(arrays)
    np.testing.assert_allclose(ratios, [1.0, 1.05, 1.2, np.inf])
    monkeypatch.setattr(Evidence, "from_arrays", lambda *_: pd.Series(ratios))
    assert all_support(evidence(d=[1] * 4)).tolist() == [True, pd.NA, False, False]
