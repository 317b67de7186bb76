"""`--retrain`: what no arithmetic on the record can tell is found by training again."""

import numpy as np
import pytest
import torch

from attnsvm.data import sample
from attnsvm.experiment import stages_of
from attnsvm.record.columns import key_columns
from attnsvm.verify import command
from attnsvm.verify.comparison import sheet
from attnsvm.verify.retrain import Retrained, retrained
from attnsvm.verify.rounding import LATER, Rerun, _tolerance, nudged
from attnsvm.verify.trusted import TRAINING
from tests.config.test_config import composed
from tests.processors import SETTINGS
from tests.verify.forgeries import history, trials
from tests.verify.forging import Forgery, config_of, refusal
from tests.verify.kinds import (
    SMALL,
    made,
    some_quick,
    started_from_file,
    verified_elsewhere,
    written,
)

TRAINED = ("top", "multi", "until_accepted", "kq", "kq_low_rank", "path", "causal", "stalled",
           "trained_head", "digits", "geometric", "balanced", "aligned", "cone",
           "squared")  # fmt: skip


@pytest.mark.parametrize("name", some_quick(TRAINED, ("top", "kq")))
def test_a_genuine_record_is_trained_again_to_the_bit(name, tmp_path):
    config, found = made(name)
    folder = written(tmp_path, config, found)
    rows = len(found.trials)
    assert retrained(folder, 1000) == Retrained(rows, rows)


@pytest.mark.full
def test_weights_from_a_file_are_those_of_the_history_and_of_training_again(tmp_path, capsys):
    folder = written(tmp_path / "sweep", *started_from_file(tmp_path))
    assert command.main([str(folder), "--retrain", "4"]) == 0
    out = capsys.readouterr().out
    assert "4 trained again (4 equal in every bit)" in out
    assert TRAINING not in out
    assert command.main([str(folder), "--retrain", "3"]) == 0
    assert TRAINING in capsys.readouterr().out
    forged = Forgery.of(folder)
    forged.curve("W_norm", 0, lambda norm: norm * (1 + 1e-9))
    assert "history" in refusal(forged.written(tmp_path / "forged"))


@pytest.mark.full
@pytest.mark.parametrize("name", ["balanced", "aligned", "aligned_kq", "aligned_relu"])
def test_the_first_row_of_a_start_is_derived(name, tmp_path):
    forged = Forgery.of(written(tmp_path / "genuine", *made(name)))
    assert refusal(forged.written(tmp_path / "same")) == ""
    forged.curve("W_norm", 0, lambda norm: norm * (1 + 1e-6))
    assert "history" in refusal(forged.written(tmp_path / "forged"))


def half_way(history):
    return history["value"] * (1 + 1e-3 * (history["step"] == 100))


TRUSTED = {
    "history": history(lambda h: h.assign(value=half_way)),
    "step size": config_of("optimizer", "lr", 0.2),
    "end of training": trials(lambda t: t.assign(training="finite_optimum")),
    "change of direction": trials(lambda t: t.assign(direction_change=t["direction_change"] / 2)),
}


@pytest.mark.parametrize("name", some_quick(TRUSTED, ("history",)))
def test_what_is_trusted_is_refused_by_training_again(name, tmp_path):
    forged = Forgery.of(written(tmp_path / "genuine", *made("top")))
    TRUSTED[name](forged)
    folder = forged.written(tmp_path / "forged")
    assert refusal(folder) == ""
    assert retrained(folder, 1000).refusals


@pytest.mark.full
def test_rows_of_rejected_instances_are_computed_again(tmp_path):
    forged = Forgery.of(written(tmp_path / "genuine", *made("multi")))
    rejected = forged.trials.index[forged.trials["status"] == "rejected"]
    forged.trials.loc[rejected, "W_norm"] *= 1.1
    folder = forged.written(tmp_path / "forged")
    assert refusal(folder) == ""
    assert len({seed for _, seed, _ in retrained(folder, 1000).refusals}) == len(rejected)


ANOTHER = {"MKL_CBWR": "COMPATIBLE"} | SETTINGS["numba for any processor"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "environment", "said"),
    [
        *(
            (name, ANOTHER, "4 trained again")
            for name in ("kq", "rmsprop", "quadratic_zigzag", "trained_head", "steepest", "network")
        ),
        ("top", {"ATEN_CPU_CAPABILITY": "default"},
         " 0 trained again, 4 agree with their draw up to rounding"),
    ],
)  # fmt: skip
def test_another_processor_agrees_as_far_as_the_docs_say(name, environment, said, tmp_path):
    """What is drawn with other last bits is not compared."""
    folder = written(tmp_path, *made(name))
    assert said in verified_elsewhere(folder, "--retrain", "4", **environment)


def test_weights_beyond_the_tolerance_are_refused(tmp_path):
    forged = Forgery.of(written(tmp_path / "genuine", *made("top")))
    forged.array("trained_W", lambda W: W * (1 + 1e-9 * np.arange(9).reshape(3, 3)))
    folder = forged.written(tmp_path / "forged")
    assert any("trained_W differs by" in why for _, _, why in retrained(folder, 1000).refusals)


AMPLIFIED = {
    "steps of (K, Q)": "parameterization=kq optimizer.steps=1000",
    "divisions by small numbers": "optimizer=adam optimizer.lr=0.03 optimizer.eps=0 "
    "optimizer.beta1=0.5 optimizer.beta2=0.5 optimizer.steps=500",
    "signs": "optimizer=sign_gd optimizer.steps=1000",
    "a finite minimum": "head=quadratic head.lam=0.3 optimizer.steps=500",
    "a network": "model=transformer data.n=2 data.d=4 optimizer.steps=300",
    "growing steps": "optimizer.growth=0.05 optimizer.steps=1000",
}


def rerun(words: str) -> Rerun:
    config = composed(*SMALL, *words.split())
    return Rerun(stages_of(config), list(range(config.seed, config.seed + config.trials)))


def numbers(record, seed):
    one = record.of_seeds([seed])
    return sheet(one.trials, one.history, one.solutions, key_columns(one.trials))


@pytest.mark.parametrize("name", some_quick(AMPLIFIED, ("divisions by small numbers",)))
def test_what_other_last_bits_give_is_accepted_and_more_is_refused(name):
    """Runs from other changes of the inputs than those that are measured, as another machine's."""
    again = rerun(f"trials=2 {AMPLIFIED[name]}")
    other = again.nudged(10**6)
    for seed in again.seeds:
        stated, instance = numbers(other, seed), again.of(seed)
        assert instance.compared(stated)[0] == []
    W = next(one for one in stated if one[1] in ("trained_W", "network_W"))
    forged = {**stated, W: stated[W] * 1.5}
    assert any(W[1] in why for why in instance.compared(forged)[0])


@pytest.mark.parametrize("words", ["", "optimizer=gd", "optimizer=adam"])
def test_steps_that_do_not_amplify_rounding_leave_no_room(words):
    again = rerun(f"trials=2 optimizer.steps=500 {words}")
    for seed in again.seeds:
        instance = again.of(seed)
        W = instance.values["arrays", "trained_W"]
        forged = {**instance.values, ("arrays", "trained_W"): W * (1 + 1e-6)}
        ((why,), undecidable) = instance.compared(forged)
        assert "trained_W differs by" in why
        assert not undecidable


def other_runs(part, value, *others):
    values = [np.array([[one]]) for one in (value, *others)]
    return _tolerance(part, values[0], values[1:], 8.0, np.array([0]))[0, 0]


def test_a_tolerance_is_the_largest_difference_or_none_where_rounding_decides():
    assert other_runs("table", 1.0, 1.0, 1.0) == pytest.approx(1e-9, rel=1e-2)
    assert other_runs("table", 1.0, 1.25, 0.5) == pytest.approx(8 * 0.5)
    assert other_runs("table", np.inf, np.inf) == pytest.approx(1e-12)
    assert other_runs("table", np.nan, np.nan) == pytest.approx(1e-12)
    assert other_runs("table", 1.0, np.nan) == np.inf
    assert other_runs("arrays", 3, 3) == 0
    assert other_runs("arrays", 3, 2) == np.inf
    assert other_runs("arrays", "solved", "solved", "undecided") == np.inf


def test_a_curve_may_begin_to_differ_somewhat_earlier():
    steps, late = np.array([0, 100, 200, 300, 400]), np.array([[0.0, 0.0, 0.0, 1.0, 0.5]])
    reach = np.minimum(np.searchsorted(steps, LATER * steps, side="right"), 4)
    allowed = _tolerance("history", np.zeros((1, 5)), [late], 8.0, reach)
    assert (allowed[0] > 1).tolist() == [False, False, True, True, True]


def test_changed_inputs_keep_what_is_equal():
    batch = sample("token_graph", n=6, trials=2)
    other = nudged(batch, 3, layered=False)
    for name in ("X", "Y", "mask"):
        assert torch.equal(getattr(batch, name), getattr(other, name))
    change = (other.Z / batch.Z - 1)[batch.Z != 0].abs()
    assert 0 < change.min() <= change.max() <= 1.2e-15
    equal, still = (torch.cdist(one.Z, one.Z) == 0 for one in (batch, other))
    assert torch.equal(equal, still)
