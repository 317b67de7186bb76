"""The table of leaning heads against the definition, on made-up correlations."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sweeps.cells import CellAxes
from sweeps.figures import pretrained_heads

RNG = np.random.default_rng(0)
ABOVE = {"none": 0.3, "spectrum": 0.1, "queries": 0.2, "tokens": 0.15}
"""Correlation of head 0 and its controls; head 1 correlates as its control `queries` does."""


def trials(seeds=6):
    rows = []
    for head in (0, 1):
        for control, value in ABOVE.items():
            value = 0.2 if head and control == "none" else value
            for seed in range(seeds):
                found = value + 0.002 * RNG.normal()
                rows.append(
                    {"run": "r", "seed": seed, "at_layer": 2, "at_head": head, "control": control,
                     "status": "ok", "reason": "", "frobenius_status": "solved",
                     "nuclear_status": "undecided", "one_minus_corr_w_mm": 1 - found,
                     "one_minus_corr_w_star_mm": 1 - found, "other_heads_frobenius": 0.05,
                     "other_heads_nuclear": 0.05, "frobenius_rank": 3, "nuclear_rank": 1,
                     "frobenius_margin_gap": 0.5, "nuclear_margin_gap": 0.5, "entropy_mean": 1.0,
                     "rank_effective": 3.0, "rank_stable": 2.0}
                )  # fmt: skip
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def tables():
    axes = CellAxes(("at_layer", "at_head", "control"))
    return pretrained_heads.tables(SimpleNamespace(axes=axes, trials=trials(), folders={}))


def test_a_head_leans_if_it_is_above_all_four_controls(tables):
    heads = tables["pretrained_heads"]
    heads = heads[heads["svm_norm"] == "frobenius"].set_index("at_head")
    assert heads["null"].tolist() == ["queries", "queries"]
    assert heads.loc[0, "lean"] == pytest.approx(0.1, abs=0.005)
    assert heads.loc[1, "lean"] == pytest.approx(0.0, abs=0.005)
    assert heads["leans"].tolist() == [True, False]
    assert (heads["low"] < heads["lean"]).all()
    assert heads.loc[0, "low"] > 0.09
    assert heads.loc[1, "low"] < 0 < heads.loc[1, "high"]
    assert heads.loc[0, "correlation"] == pytest.approx(0.3, abs=0.005)


def test_the_p_value_is_the_largest_of_the_four_and_adjusted_over_the_heads(tables):
    heads, controls = tables["pretrained_heads"], tables["pretrained_heads_controls"]
    heads = heads[heads["svm_norm"] == "frobenius"].set_index("at_head")
    controls = controls[controls["svm_norm"] == "frobenius"]
    largest = controls.groupby("at_head")["p_value"].max()
    np.testing.assert_array_equal(heads["p_value"], largest)
    assert heads.loc[0, "adjusted"] == pytest.approx(2 * largest[0])


def test_SVMs_that_are_not_solved_are_not_used(tables):
    heads = tables["pretrained_heads"]
    nuclear = heads[heads["svm_norm"] == "nuclear"]
    assert (nuclear["used"] == 0).all()
    assert nuclear["lean"].isna().all()
    assert not nuclear["leans"].any()
    total = tables["pretrained_heads_total"].set_index("svm_norm")
    assert total["heads"].to_dict() == {"frobenius": 2, "nuclear": 2}
    assert total["tested"].to_dict() == {"frobenius": 2, "nuclear": 0}
    assert total.loc["frobenius", "which"] == "2.0"


def test_a_head_without_a_control_is_not_tested():
    some = trials()
    some = some[some["control"] != "tokens"]
    axes = CellAxes(("at_layer", "at_head", "control"))
    heads = pretrained_heads.tables(SimpleNamespace(axes=axes, trials=some, folders={}))[
        "pretrained_heads"
    ]
    assert heads["p_value"].isna().all()
    assert not heads["leans"].any()


def test_the_support_of_an_example_is_where_the_margin_is_one():
    at = {
        "X": np.array([[[0.0, 0.0], [-1.0, 0.0], [-3.0, 0.0]]]), "Z": np.array([[1.0, 0.0]]),
        "mask": np.ones((1, 3), bool), "selected": np.array([0]), "seeds": np.int64(4),
        "trained_W": np.eye(2), "frobenius_W": np.eye(2),
    }  # fmt: skip
    rows = pd.DataFrame(pretrained_heads._of_instance(at))
    assert rows["support"].tolist() == [False, True, False]
    assert rows["selected"].tolist() == [True, False, False]
    s = np.exp([0.0, -1.0, -3.0])
    np.testing.assert_allclose(rows["attention"], s / s.sum())


def test_a_sweep_without_a_trial_is_drawn():
    axes = CellAxes(("at_layer", "at_head", "control"))
    frames = SimpleNamespace(axes=axes, trials=trials().iloc[:0], folders={})
    found = pretrained_heads.tables(frames)
    assert all(len(table) == 0 for table in found.values())
    assert all(one.figure is not None for one in pretrained_heads.draw(found, axes))
    bare = frames.trials[["status", "reason", *axes.names]]
    assert len(pretrained_heads.tables(SimpleNamespace(**vars(frames) | {"trials": bare}))) == 5
