"""The table of leaning heads against the definition, on made-up correlations."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import attnsvm
from attnsvm import svmeq
from attnsvm.svm.equalities import restoring
from attnsvm.sweeps.cells import CellAxes
from attnsvm.sweeps.figures import _head_attention, pretrained_heads
from attnsvm.sweeps.statistics import paired_means

RNG = np.random.default_rng(0)
ABOVE = {"none": 0.3, "spectrum": 0.1, "queries": 0.2, "tokens": 0.15}
"""Correlation of head 0 and its controls; head 1 correlates as its control `queries` does."""


def trials(seeds=6):
    names = ["data.at_head", "data.control", "seed"]
    rows = pd.DataFrame(itertools.product((0, 1), ABOVE, range(seeds)), columns=names)
    rows = rows.assign(run="r", status="ok", reason="", **{"data.at_layer": 2})
    own = (rows["data.at_head"] == 1) & (rows["data.control"] == "none")
    apart = 1 - rows["data.control"].map(ABOVE).mask(own, 0.2) - 0.002 * RNG.normal(size=len(rows))
    for norm, status in (("frobenius", "solved"), ("nuclear", "undecided")):
        rows[f"one_minus_corr_{norm}"], rows[f"other_heads_{norm}"] = apart, 0.05
        rows[f"{norm}_status"] = status
    return rows


AXES = CellAxes(("data.at_layer", "data.at_head", "data.control"))


def tables_of(some, axes=AXES):
    return pretrained_heads.tables(
        SimpleNamespace(cells=axes, axes=axes.names, rows=some, folders={})
    )


@pytest.fixture(scope="module")
def tables():
    return tables_of(trials())


def of_frobenius(tables, name):
    return tables[name][tables[name]["svm_norm"] == "frobenius"]


def test_a_head_leans_if_it_is_above_all_four_controls(tables):
    """Its p-value is the largest of the four, adjusted over the heads."""
    heads = of_frobenius(tables, "pretrained_heads").set_index("data.at_head")
    assert heads["null"].tolist() == ["queries", "queries"]
    assert heads["lean"].tolist() == pytest.approx([0.1, 0.0], abs=0.005)
    assert heads["leans"].tolist() == [True, False]
    assert (heads["low"] < heads["lean"]).all()
    assert heads.loc[0, "low"] > 0.09
    assert heads.loc[1, "low"] < 0 < heads.loc[1, "high"]
    assert heads.loc[0, "correlation"] == pytest.approx(0.3, abs=0.005)
    controls = of_frobenius(tables, "pretrained_heads_controls")
    largest = controls.groupby("data.at_head")["p_value"].max()
    np.testing.assert_array_equal(heads["p_value"], largest)
    assert heads.loc[0, "adjusted"] == pytest.approx(2 * largest[0])
    assert heads.loc[0, "adjusted_any_dependence"] == pytest.approx(2 * largest[0] * (1 + 1 / 2))


def test_the_interval_of_the_least_mean_holds_if_those_of_all_controls_do():
    """Bonferroni, by simulation: four controls of equal means, where the least mean is too low."""
    heads = 400
    rows = itertools.product(range(heads), pretrained_heads.NULLS, range(8))
    frame = pd.DataFrame(rows, columns=["data.at_head", "null", "seed"])
    frame["difference"] = np.random.default_rng(1).normal(size=len(frame))
    controls = paired_means(frame, ["data.at_head", "null"], "difference")
    leans = pretrained_heads._heads(
        pd.DataFrame({"data.at_head": range(heads)}), frame, ["data.at_head"], []
    )
    covered = (leans["low"] <= 0) & (leans["high"] >= 0)
    assert covered.mean() >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / heads)
    least = controls.loc[controls.groupby("data.at_head")["mean"].idxmin()]
    alone = (least["low"] <= 0) & (least["high"] >= 0)
    assert alone.mean() < 0.93  # what the interval of the least mean alone would cover


def test_SVMs_that_are_not_solved_and_heads_without_a_control_are_not_used(tables):
    heads = tables["pretrained_heads"]
    nuclear = heads[heads["svm_norm"] == "nuclear"]
    assert (nuclear["used"] == 0).all()
    assert nuclear["lean"].isna().all()
    assert not nuclear["leans"].any()
    total = tables["pretrained_heads_total"].set_index("svm_norm")
    assert total["asked"].to_dict() == {"frobenius": 2, "nuclear": 2}
    assert total["tested"].to_dict() == {"frobenius": 2, "nuclear": 0}
    assert total.loc["frobenius", "which"] == "2.0"
    some = trials()
    heads = tables_of(some[some["data.control"] != "tokens"])["pretrained_heads"]
    assert heads["p_value"].isna().all()  # a head without a control is not tested
    assert not heads["leans"].any()


def test_the_support_of_an_example_is_where_the_margin_is_one():
    at = {"X": np.array([[[0.0, 0.0], [-1.0, 0.0], [-3.0, 0.0]]]), "Z": np.array([[1.0, 0.0]])}
    at |= {"mask": np.ones((1, 3), bool), "selected": np.array([0]), "seeds": np.int64(4)}
    at |= {"trained_W": np.eye(2), "frobenius_W": np.eye(2)}
    rows = _head_attention.of_instance(at, [["a", "b", "c"]], [2]).to_dict("list")
    assert (rows["word"], rows["of_query"]) == (["a", "b", "c"], ["c"] * 3)
    assert rows["is_support"] == [False, True, False]
    assert rows["selected"] == [True, False, False]
    s = np.exp([0.0, -1.0, -3.0])
    np.testing.assert_allclose(rows["attention"], s / s.sum())


def instance(W, inside):
    """Return an instance and the attention of W on it, the first `inside` tokens attended."""
    rng = np.random.default_rng(inside)
    X, Z = rng.normal(size=(4, 5, 24)), rng.normal(size=(4, 24))
    logits = np.einsum("ntd,de,ne->nt", X, W, Z)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return X, Z, np.arange(5) < np.full((4, 1), inside), logs


@pytest.mark.parametrize("inside", [1, 2, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_left_of_a_head_without_its_finite_part_is_its_projection(inside, sign):
    noise = np.random.default_rng(9).normal(size=(24, 24))
    fin, mm = attnsvm.solve_gen_svm(*instance(noise, inside))
    W = fin.W + sign * mm.W / np.linalg.norm(mm.W) + 0.05 * noise
    fin = attnsvm.solve_gen_svm(*instance(W, inside))[0]
    others = {"frobenius": mm.W, "svmeq": svmeq(W, fin.W, mm.W)}
    correlations = {name: float(attnsvm.correlation(W, V)) for name, V in others.items()}
    trials = pd.DataFrame({f"one_minus_corr_{k}": [1 - c] for k, c in correlations.items()})
    share = pretrained_heads.share_of_finite_part(trials)[0]
    assert share == pytest.approx(np.square(fin.W).sum() / np.square(W).sum(), abs=1e-9)
    left = restoring(mm.problem)(torch.from_numpy(W)[None])[0].numpy()
    own = correlations["frobenius"] / np.sqrt(1 - share)
    assert own == pytest.approx(float(attnsvm.correlation(left, mm.W)), abs=1e-7)
    assert np.sign(own) == sign


def test_shares_of_optimal_tokens_are_compared_on_the_same_sentences():
    """A sample has one difference, the mean over its heads; what lacks a number is counted."""
    some = trials(seeds=3)
    control, own = some["data.control"], some["data.control"] == "none"
    share = {"none": 0.5, "spectrum": 0.25, "queries": 0.5, "tokens": 0.75}
    chance = {"none": 0.125, "spectrum": 0.25, "queries": 0.5, "tokens": 1.0}
    values = control.map(share) + 0.1 * some["seed"] * own
    values[(some["data.at_head"] == 1) & (some["seed"] == 2)] = np.nan
    some["optimality_best_chance"] = control.map(chance)
    top = some.assign(**{"selection.tokens": "top"}, optimality_best=values)
    multi = some.assign(**{"selection.tokens": "multi"}, optimality_best=0.0)
    axes = CellAxes((*AXES.names, "selection.tokens"))
    table = tables_of(pd.concat([top, multi]), axes)["pretrained_heads_optimality"]
    table = table.set_index("data.control")
    counted = {"quantity": "best token", "instances": 5, "left_out": 1, "samples": 3}
    for name, value in (counted | {"chance": 0.125}).items():
        assert table[name].tolist() == [value] * 3
    differences = table.loc[["spectrum", "queries", "tokens"], "difference"]
    np.testing.assert_allclose(differences, [0.35, 0.1, -0.15])
    half = 4.302652729749462 * 0.1 / np.sqrt(3)  # Student's t, 2 degrees of freedom, 95 %
    queries = table.loc["queries", ["low", "high", "share", "share_of_control"]].tolist()
    assert queries == pytest.approx([0.1 - half, 0.1 + half, 0.58, 0.5])
    del chance["none"]
    assert table["chance_of_control"].to_dict() == chance
