"""Probes in runs: columns, history, metadata, refusals, and records that say otherwise."""

import copy

import numpy as np
import pyarrow.parquet as pq
import pytest

import attnsvm
from attnsvm import experiment, record
from attnsvm.config import ConfigError
from attnsvm.config.identity import signature
from attnsvm.record import CorruptRecordError, write_json
from attnsvm.record.folder import read_record
from tests.config.test_config import composed
from tests.quick import refusals
from tests.verify.forging import Forgery, refusal
from tests.verify.kinds import SMALL, written

ALL = "probe=[rank,entropy,margin_gap,distance,balance]"


@pytest.fixture
def M(tmp_path):
    np.save(tmp_path / "M.npy", np.eye(3))
    return f"probe.distance.path={tmp_path / 'M.npy'}"


@pytest.fixture
def folder(tmp_path, M):
    config = composed(*SMALL, ALL, M, "parameterization=kq")
    return written(tmp_path, config, experiment.run(config))


COLUMNS = ["balance_gap", "distance_direction", "entropy_max", "entropy_mean",
           "margin_gap_frobenius", "margin_gap_nuclear", "rank_effective",
           "rank_stable"]  # fmt: skip


def test_the_numbers_are_columns_of_trials_and_quantities_of_the_history(folder):
    found, run = read_record(folder)
    assert list(found.trials)[-len(COLUMNS) :] == COLUMNS == sorted(run["probes"])
    for name in COLUMNS:
        curve = found.history[found.history["quantity"] == name]
        assert sorted(set(curve["step"])) == [0, 100, 200]
        last = curve[curve["step"] == 200].set_index("seed")["value"]
        assert last.loc[found.trials["seed"]].tolist() == found.trials[name].tolist()
    for norm in ("frobenius", "nuclear"):
        assert (found.trials[f"margin_gap_{norm}"] == found.trials[f"{norm}_margin_gap"]).all()
    K, Q, W = (found.solutions[f"trained_{name}"] for name in "KQW")
    np.testing.assert_allclose(K @ Q.swapaxes(1, 2), W, rtol=0, atol=1e-12)
    meta = pq.read_schema(folder / "trials.parquet").field("entropy_max").metadata
    assert meta[b"unit"] == b"nat"
    assert b"entropy" in meta[b"meaning"]
    frames = attnsvm.load(folder)
    assert set(COLUMNS) <= set(frames.trials)
    assert refusal(folder) == ""


def test_a_run_without_probes_has_none_of_it():
    found = experiment.run(composed(*SMALL, "parameterization=kq"))
    assert not set(COLUMNS) & set(found.trials)
    assert "trained_K" not in found.solutions
    assert "probe" not in found.timings


def test_probes_and_the_content_of_files_are_part_of_the_identity(tmp_path, M):
    np.savez(tmp_path / "W.npz", W0=np.eye(3))
    start = ("optimizer.init=file", f"optimizer.init_path={tmp_path / 'W.npz'}")
    given = [("probe=[distance]", M), start, ("probe=[rank]",),
             ("probe=[rank]", "probe.rank.threshold=0.1"), ()]  # fmt: skip
    first = {signature(composed(*SMALL, *one)) for one in given}
    np.save(tmp_path / "M.npy", np.eye(3) + 1)
    np.savez(tmp_path / "W.npz", W0=np.eye(3) + 1)
    second = {signature(composed(*SMALL, *one)) for one in given}
    assert len(first) == len(second) == 5
    assert len(first & second) == 3


REFUSED = refusals("probe")


@pytest.mark.parametrize(("given", "told"), REFUSED)
def test_what_cannot_be_measured_is_refused_before_the_run(given, told):
    with pytest.raises(ConfigError) as caught:
        experiment.run(composed(*SMALL, *given.split()))
    assert told in str(caught.value)
    assert "probe.probe" not in str(caught.value)


def test_each_forged_number_and_forged_factors_are_refused(folder, tmp_path):
    forged = Forgery.of(folder)
    for name in COLUMNS:
        forged.cell(name, lambda value: value * 1.001 + 1e-6)
        forged.curve(name, 2, lambda _, name=name: forged.trials[name][0])
    refused = refusal(forged.written(tmp_path / "forged"))
    assert [name for name in COLUMNS if f" {name} is " not in refused] == []
    forged = Forgery.of(folder)
    forged.array("trained_K", lambda K: K * (1 + 1e-6))
    assert "trained_K differs" in refusal(forged.written(tmp_path / "factors"))


@pytest.mark.full
def test_a_changed_file_is_refused_and_a_missing_one_named(folder, tmp_path):
    from attnsvm.verify.run import prove

    np.save(tmp_path / "M.npy", np.ones((3, 3)))
    ((_, reason),) = prove(folder).differences
    assert "signature: is not that of the config and the files that it names" in reason
    (tmp_path / "M.npy").unlink()
    proof = prove(folder)
    assert not proof.differences
    assert "M.npy is not here" in proof.left_out


def _plugin(run, where, given, package="mine"):
    """Give the record an option or a probe of a package."""
    run["config"]["extensions"].append(package)
    run["extension_code"][package] = "0"
    run["config"][where[0]] = {**run["config"]["probe"], where[1]: given} if where[1:] else given
    run["options"] |= {} if where[1:] else {where[0]: "sharp"}


ODD = {
    "probes that are a number": lambda run: run["config"].update(probe=5),
    "a probe without fields": lambda run: _plugin(run, ["probe", "sharp"], 5, "None"),
    "a field too many": lambda run: run["config"]["probe"]["rank"].update(x=1),
    "a value out of range": lambda run: run["config"]["probe"]["rank"].update(threshold=3.0),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("kind", ODD)
def test_an_odd_declaration_in_a_record_is_refused(kind, folder):
    run = {k: v for k, v in record.read_json(folder / "run.json").items() if k != "checksum"}
    run = copy.deepcopy(run)
    ODD[kind](run)
    write_json(folder / "run.json", run)
    with pytest.raises(CorruptRecordError) as caught:
        record.read_run(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_other_columns_and_words_of_a_version_are_read(folder):
    run = {k: v for k, v in record.read_json(folder / "run.json").items() if k != "checksum"}
    name, *_ = run["probes"]
    run["probes"][name].update(meaning="in other words")
    write_json(folder / "run.json", run)
    assert record.read_run(folder)["probes"][name]["meaning"] == "in other words"
    del run["probes"][name]
    write_json(folder / "run.json", run)
    assert name not in record.read_run(folder)["probes"]


def test_an_option_of_a_plug_in_in_a_record_is_read(folder):
    run = {k: v for k, v in record.read_json(folder / "run.json").items() if k != "checksum"}
    _plugin(run, ["optimizer"], {"_target_": "mine.W", "sharpness": [1.0, None]})
    write_json(folder / "run.json", run)
    assert record.read_run(folder)["options"]["optimizer"] == "sharp"
