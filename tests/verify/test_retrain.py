"""`--retrain`: what no arithmetic on the record can tell is found by training again."""

import numpy as np
import pytest

from attnsvm.verify import command
from attnsvm.verify.retrain import Retrained, retrained
from attnsvm.verify.trusted import TRAINING
from tests.processors import SETTINGS
from tests.verify.forgeries import history, trials
from tests.verify.forging import Forgery, config_of, refusal
from tests.verify.kinds import made, some_quick, started_from_file, verified_elsewhere, written

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


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "environment", "said"),
    [
        ("kq", {"MKL_CBWR": "COMPATIBLE"} | SETTINGS["numba for any processor"], "4 trained again"),
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
