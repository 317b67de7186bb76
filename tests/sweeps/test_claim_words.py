"""Each outcome of a claim follows from columns and curves that are written by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from attnsvm.sweeps.aggregate import SweepFrames
from attnsvm.sweeps.claims import FAILS, HOLDS, Evidence, all_claims
from attnsvm.sweeps.claims.arrays import (
    head_margin_gap,
    head_margin_ratio,
    increment_apart,
    outside_queries,
)

CLAIMS = {claim.name: claim for claim in all_claims()}
GIVEN = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("claim_words.yaml")))
APART = "one_minus_corr_frobenius"
NAN = np.nan
TURNS = "direction not settled"
SOLVED = {"training": "saturated", "tie": False, "frobenius_status": "solved"}
UNSOLVED = {
    "training diverged": {"training": "diverged"},
    "tie of two tokens": {"tie": True, "frobenius_status": "undecided"},
    "SVM undecided": {"frobenius_status": "undecided"},
    "the selected tokens cannot be separated": {"frobenius_status": "infeasible"},
    "no token to separate from": {"frobenius_status": "unconstrained"},
}


def evidence(name, curves=(), steps=(0, 5000, 10000), **columns):
    """Return evidence for a claim: columns, curves at `steps`, a row of them each.

    A function of arrays, such as at_runner_up, is given by its values.
    """
    curves = dict(curves)
    count = len(next(iter({**columns, **curves}.values())))
    usual = {"run": "one", "seed": range(count), "status": "ok", "n": 3, "T": 3, "d": 4}
    trials = pd.DataFrame({**usual, **SOLVED, **columns})
    history = [
        {"run": "one", "seed": seed, "step": step, "quantity": quantity, "value": value}
        for quantity, rows in curves.items()
        for seed, row in enumerate(rows)
        for step, value in zip(steps, row, strict=True)
    ]
    names = ["run", "seed", "step", "quantity", "value"]
    frames = (pd.DataFrame({"run": ["one"]}), trials, pd.DataFrame(history, columns=names))
    found = Evidence(SweepFrames("", Path("claims"), *frames), CLAIMS[name].columns)
    for measure in {"at_runner_up", "head_margin_ratio", "increment_apart", "odds_missed"} & set(
        columns
    ):
        found.names[measure] = lambda *_, of=measure: trials[of]
    return found


def words(name, curves=(), **columns):
    """Return the words of the prediction of a claim."""
    return evidence(name, curves, **columns).words(CLAIMS[name].prediction).tolist()


def test_every_condition_of_every_claim_is_an_expression():
    for claim in CLAIMS.values():
        pairs = [*claim.hypotheses.values(), *claim.prediction, *claim.columns.items()]
        for _, condition in pairs:
            compile(condition, claim.name, "eval")


# --- reasons not to decide ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["limits", "b1_alone", "layers", "layers_values", "layers_all"])
def test_an_instance_without_a_solved_svm_never_holds_and_each_reason_has_its_word(name):
    """Even where all other columns say that it is near."""
    rows = [SOLVED | change for change in (*UNSOLVED.values(), {})]
    given = {key: [row[key] for row in rows] for key in SOLVED} | {APART: [1e-9] * len(rows)}
    given |= {"direction_change": [0.0] * len(rows), "convergence": ["global"] * len(rows)}
    near = FAILS if name == "layers_all" else HOLDS
    assert words(name, {APART: [[0.9, 0.8, 1e-9]] * len(rows)}, **given) == [*UNSOLVED, near]


def test_what_is_not_recorded_neither_holds_nor_fails():
    stays, lost = [2.0, 2.0, 2.0], [2.0, NAN, 2.0]
    curves = {"W_norm": [stays, lost, [2.0, 2.1, 2.0], lost], "max_softmax": [stays] * 3}
    curves["max_softmax"].append([0.5, 0.5, 0.6])  # the other curve says so
    assert words("all_optimal", curves) == [HOLDS, "a step is not recorded", FAILS, FAILS]
    given = {"init_angle": [0.1], APART: [1e-9], "saturated": [True], "at_runner_up": [NAN]}
    for name in ("cone_runner_up", "local_path"):
        assert not {HOLDS, FAILS} & set(words(name, **given))


# --- predictions and hypotheses -------------------------------------------------------------------

PREDICTIONS = GIVEN["predictions"]
SAME = {
    "layers_linear": "layers_values", "layers_linear_law": "layers_values_law",
    "layers_all_law": "layers_values_law", "adam_eps": "adam_max", "mixture_kq": "mixture",
    "ntp_limits": "limits", "ntp_local": "cone_runner_up",
}  # fmt: skip


@pytest.mark.parametrize("name", [*PREDICTIONS, *SAME])
def test_a_prediction_holds_fails_or_is_open(name):
    given = dict(PREDICTIONS[SAME.get(name, name)])
    expected = given.pop("words")
    assert words(name, **given) == expected


def test_a_network_with_all_trained_comes_nearer_or_does_not():
    given = dict(PREDICTIONS["layers_values"])
    del given["words"]
    assert words("layers_all", **given) == [FAILS, FAILS, HOLDS, TURNS, FAILS]


@pytest.mark.parametrize("given", GIVEN["hypotheses"])
def test_a_hypothesis_is_met_or_not_or_that_is_not_known(given):
    given = dict(given)
    claim, part, expected = (given.pop(key) for key in ("claim", "hypothesis", "met"))
    (said,) = (said for said in CLAIMS[claim].hypotheses if part in said)
    found = CLAIMS[claim].met(said, evidence(claim, **given))
    assert found.astype(object).where(found.notna(), None).tolist() == expected


def test_only_one_claim_on_layers_allows_gradients_of_unseen_positions():
    without = set(CLAIMS["layers"].hypotheses) - set(CLAIMS["layers_unseen"].hypotheses)
    assert without == {"positions that are not seen have no part in the gradient"}


# --- numbers from arrays --------------------------------------------------------------------------


def test_margins_of_the_head():
    """Of one sample with v^T x = 1 and another with Y v^T x = 1, 1.05, 1.2 and -1."""
    others = np.array([1.0, 1.05, 1.2, -1.0])
    arrays = {
        "X": np.stack([np.array([[[1.0], [9.0]], [[9.0], [-other]]]) for other in others]),
        "selected": np.array([[0, 1]] * 4),
        "Y": np.array([[1.0, -1.0]] * 4),
        "trained_v": np.ones((4, 1)),
        "classifier_objective": np.ones(4),
        "classifier_status": np.array(["solved"] * 3 + ["infeasible"]),
    }
    np.testing.assert_allclose(head_margin_ratio(arrays), [1.0, 1.05, 1.2, np.inf])
    np.testing.assert_allclose(head_margin_gap(arrays), [0.0, 0.0, 0.0, NAN], atol=1e-12)


def test_the_direction_of_a_change_of_W():
    W = np.array([[[[1.0, 3.0]], [[1.0, 8.0]], [[2.0, 6.0]]]])  # three steps of one instance
    arrays = {"snapshots": W, "steps": [np.array([0, 5, 10])], "target": np.array([[[0.0, 1.0]]])}
    np.testing.assert_allclose(increment_apart(arrays, "target", 0, 0.5), [0.0], atol=1e-15)
    np.testing.assert_allclose(increment_apart(arrays, "target", 0.5, 1), [1 + 2 / np.sqrt(5)])


def test_the_part_of_a_matrix_outside_of_the_span_of_the_queries():
    arrays = {"W": np.array([[[3.0, 0.0], [0.0, 4.0]]]), "Z": np.array([[[1.0, 0.0], [2.0, 0.0]]])}
    np.testing.assert_allclose(outside_queries(arrays, "W"), [0.8])
