"""A run from config to record: each reading of the attention, and every bad instance, has a row."""

import numpy as np
import pandas as pd
import pytest
import torch

import attnsvm
from attnsvm.config import GROUPS
from attnsvm.experiment import parts, run, svms
from attnsvm.record.schema import RunRecord
from tests.config.test_config import composed
from tests.quick import quick

SHORT = "optimizer.steps=300 trials=6"


RUNS = {
    "top": (f"data.n=3 data.T=4 data.d=6 {SHORT}", {"solved"}),
    "optimal": ("selection=optimal data.n=5 data.T=5 data.d=2 trials=6", {"solved", "infeasible"}),
    "low rank": (
        f"parameterization=kq parameterization.m=2 data.n=6 data.T=5 data.d=6 {SHORT}",
        {"solved", "undecided"},
    ),
}


@pytest.mark.processors
@pytest.mark.parametrize("kind", RUNS)
def test_a_run_has_the_numbers_of_the_library(kind):
    words, statuses = RUNS[kind]
    config = composed(words)
    record, data = run(config), config.data
    trials = record.trials
    assert trials["seed"].tolist() == list(range(6))
    batch = attnsvm.sample("sphere", n=data.n, T=data.T, d=data.d, trials=6)
    selected, path = attnsvm.optimal_tokens(batch)[0], None
    if kind != "optimal":
        rule = {"parameterization": "kq", "m": 2} if kind == "low rank" else {}
        path = attnsvm.train(batch, steps=300, **rule)
        selected = attnsvm.select_tokens(batch, path).selected
        np.testing.assert_array_equal(record.solutions["trained_W"], path.W.numpy())
    else:
        assert record.history.empty
        assert trials["risk"].isna().all()
    for norm in ("frobenius", "nuclear"):
        solution = attnsvm.solve_svm(batch.X, batch.Z, selected, norm)
        if kind == "low rank" and norm == "nuclear":
            solution = attnsvm.solve_rank_constrained(batch.X, batch.Z, selected, 2)
        for name, values in svms.columns(norm, solution).items():
            expected = pd.Series(values, dtype=trials[name].dtype)
            pd.testing.assert_series_equal(trials[name], expected, check_names=False)
        if path is not None:
            name = f"one_minus_corr_{norm}"
            distances = attnsvm.one_minus_correlation(path.W, solution.W)
            np.testing.assert_array_equal(trials[name], distances)
            last = record.history.query(f"quantity == '{name}' and step == 300")["value"]
            np.testing.assert_array_equal(last, distances)
    assert {*trials["nuclear_status"]} == statuses
    undecided = trials["nuclear_status"] == "undecided"
    assert (trials.loc[undecided, "status"] != "ok").all()  # counted, never a point
    assert trials.loc[undecided, "nuclear_margin_gap"].isna().all()


@pytest.mark.parametrize("name", quick(*sorted(GROUPS["optimizer"].own)))
def test_with_its_defaults_every_optimizer_gives_most_instances_a_data_point(name):
    trials = run(composed(f"optimizer={name} trials=10")).trials
    ok = trials[trials["status"] == "ok"]
    assert len(ok) >= 8
    assert ok["one_minus_corr_frobenius"].notna().all()


@pytest.mark.processors
def test_multi_draws_until_enough_are_accepted_and_gives_the_reason_of_every_rejection():
    """Which arrays and curves there are: `tests/verify`."""
    options = (
        "head=relu selection=multi selection.until_accepted=true data.n=3 data.T=4 data.d=4 "
        "svm.norms=[frobenius] optimizer.steps=400 seed=1 selection.reject_all_positive=true"
    )
    trials = run(composed(options, "trials=4")).trials
    assert trials["seed"].tolist() == [*range(1, len(trials) + 1)]
    ok = trials[trials["status"] == "ok"]
    assert len(ok) == 4
    assert ok.index[-1] == len(trials) - 1  # nothing is drawn beyond the last that is needed
    assert (trials["reason"] != "").equals(trials["status"] != "ok")
    drawn = attnsvm.sample("sphere", head="relu", n=3, T=4, d=4, trials=len(trials), seed=1)
    positive = (drawn.Y > 0).all(-1).numpy()
    assert {*trials["reason"][positive]} == {"all labels are +1"}
    assert (ok["one_minus_corr_svmeq"] <= ok["one_minus_corr_frobenius"] + 1e-12).all()
    assert (ok["max_masked_softmax"] <= 1e-6).all()


@pytest.mark.parametrize("selection", ["top", "optimal"])
def test_tied_scores_are_reported_and_not_decided_by_the_first(selection, tmp_path):
    """Of the tied tokens, token 0 lies between the others: it cannot be separated, they can."""
    X, unit = np.array([[[[1.0, 0], [1, 1], [1, -1]]]] * 2), np.array([[1.0, 0]] * 2)
    X[1, 0, 0] *= 2  # no tie
    np.savez(tmp_path / "tied.npz", X=X, Z=unit[:, None], Y=np.ones((2, 1)), v=unit)
    words = f"data=file data.path={tmp_path / 'tied.npz'} selection={selection} {SHORT}"
    trials = run(composed(words)).trials
    assert trials["tie"].tolist() == [True, False]
    assert trials["status"].tolist() == ["tie", "ok"]


def test_a_diverged_instance_is_a_row_and_harms_no_other(tmp_path):
    """From W = 0 the first step on tokens of size 1e4 is of size e^4000; not on the second ones."""
    rng = np.random.default_rng(0)
    X, Z, Y = rng.normal(size=(2, 2, 3, 4)), rng.normal(size=(2, 2, 4)), np.ones((2, 2))
    X[0] *= 1e4
    np.savez(tmp_path / "big.npz", X=X, Z=Z, Y=Y)
    np.savez(tmp_path / "alone.npz", X=X[1:], Z=Z[1:], Y=Y[1:])
    for chosen in ("selection=top", "selection=multi", "head.train=true"):
        options = (
            f"data=file {chosen} svm.norms=[frobenius] {SHORT} optimizer=gd loss=exponential "
            "optimizer.init=zero"
        )
        both = run(composed(options, f"data.path={tmp_path / 'big.npz'}")).trials
        assert both["status"].iloc[0] == "diverged"
        assert both["reason"].iloc[0] == "a weight is not finite"
        alone = run(composed(options, f"data.path={tmp_path / 'alone.npz'}", "seed=1")).trials
        assert both["W_norm"].iloc[1] == alone["W_norm"].iloc[0]
        assert both["status"].iloc[1] == alone["status"].iloc[0]


@pytest.mark.parametrize("selection", quick("top", "multi"))
def test_a_stalled_run_is_a_status_unless_it_is_asked_for(selection):
    """Once the softmax saturates, the published gradient is rounding noise, the exact is not."""
    options = (
        "data.n=3 data.T=4 data.d=6 optimizer.steps=3000 trials=4 svm.norms=[frobenius] "
        f"selection={selection} optimizer.gradient="
    )
    exact, reported, kept = (
        run(composed(options + more)).trials
        for more in ("log_domain", "direct", "direct selection.keep_stalled=true")
    )
    assert "stalled" not in {*exact["training"], *exact["status"], *kept["status"]}
    stalled = reported["training"] == "stalled"
    assert stalled.any()
    assert stalled.equals(reported["status"] == "stalled")
    assert reported["reason"][stalled].str.contains("rounding noise").all()
    for name in ("training", "W_norm"):
        assert kept[name].tolist() == reported[name].tolist()


@pytest.mark.full
@pytest.mark.parametrize("options", ["keep_path=true", "head=relu selection=multi"])
def test_a_run_in_parts_is_the_same_run(options):
    config = composed(options, "data.n=3 data.T=4 data.d=4 trials=12 optimizer.steps=400")
    whole, joined = run(config), RunRecord.joined(list(parts(config, 5)))
    for name in ("trials", "history"):
        pd.testing.assert_frame_equal(getattr(joined, name), getattr(whole, name), rtol=1e-12)
    for name, array in whole.solutions.items():
        assert joined.solutions[name].shape == array.shape


@pytest.mark.parametrize(("option", "expected"), [("head=mlp", ["head Mlp"]), ("head=relu", [])])
def test_a_run_says_once_what_has_no_compiled_code(option, expected, caplog):
    caplog.set_level("INFO")
    assert len(list(parts(composed(option, "optimizer.steps=1 trials=3"), 1))) == 3
    begin = "training by torch, many times slower: no compiled code for "
    assert [line[len(begin) :] for line in caplog.messages if line.startswith(begin)] == expected


def test_a_batch_without_an_accepted_instance_has_rows_only():
    """One step from zero weights: attention spreads over all tokens, nothing is negligible."""
    words = "head=relu selection=multi optimizer.init=zero optimizer.steps=1 trials=3"
    record = run(composed(words))
    assert record.trials["status"].tolist() == ["rejected"] * 3
    assert record.history.empty
    assert record.solutions == {}


def test_where_nothing_is_trained_a_head_to_be_trained_is_as_drawn():
    words = "selection=optimal data.n=2 data.T=3 data.d=4 trials=3"
    fixed, *others = (
        run(composed(words, head)) for head in ("head=linear", "head.train=true", "head=joint")
    )
    for record in others:
        pd.testing.assert_frame_equal(record.trials, fixed.trials)
        assert record.solutions.keys() == fixed.solutions.keys()
    assert set(fixed.trials["frobenius_status"]) == {"solved"}


@pytest.mark.parametrize("rule", ["w", "kq"])
def test_a_start_along_a_gradient_that_is_not_defined_is_a_row(rule):
    """At W = 0 the mean of random scores may be negative, where the log is not defined."""
    words = f"data=contexts data.n=2 data.d=4 data.K=2 data.contexts=2 data.scores=random {SHORT}"
    words += f" model=linear loss=log optimizer.init=aligned parameterization={rule} seed=1"
    trials = run(composed(words)).trials
    batch = attnsvm.sample(
        "contexts", model="linear", n=2, d=4, K=2, contexts=2, scores="random", trials=6, seed=1
    )
    undefined = (batch.scores().mean(-1) <= 0).any(-1).numpy()
    assert 0 < undefined.sum() < 6
    assert ((trials["status"] == "diverged") == undefined).all()
    assert trials["reason"][undefined].str.contains("not defined").all()


def test_a_reason_has_the_words_of_older_records():
    trials = run(composed("selection.saturation=1", SHORT)).trials
    assert "smallest top softmax is below 1" in set(trials["reason"])


@pytest.mark.full
def test_a_trained_head_decides_what_is_optimal_and_local():
    """With head.train the scores, and so the types and Assumption B.1, are those of the new v."""
    options = "head.train=true data.n=4 data.T=5 data.d=8 optimizer.steps=1500"
    trials = run(composed(options, "trials=6")).trials
    batch = attnsvm.sample("sphere", train=True, n=4, T=5, d=8, trials=6)
    path = attnsvm.train(batch, steps=1500)
    trained = batch.scores(path.head_parameters).argmax(-1)
    assert not torch.equal(trained, batch.scores().argmax(-1))
    selection = attnsvm.select_tokens(batch, path)
    optimal = selection.saturated & (selection.selected == trained).all(-1)
    assert (trials["convergence"] == "global").tolist() == optimal.tolist()
