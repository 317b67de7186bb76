"""A genuine record of every kind of run passes, every column of it derived or named as trusted."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from attnsvm.config import GROUPS
from attnsvm.config.identity import result_fields
from attnsvm.config.probe import described_quantities
from attnsvm.record.columns import DECLARED, QUANTITIES, RUN_COLUMNS, TRIAL_COLUMNS, further_columns
from attnsvm.verify import command
from attnsvm.verify.run import prove
from tests.verify.kinds import (
    KINDS,
    from_file,
    made,
    some_quick,
    started_from_file,
    verified_elsewhere,
    written,
)

QUICK = ("top", "multi", "scc", "kq", "path", "causal", "trained_head", "diverged", "stalled",
         "other_norms", "mixture", "published")  # fmt: skip


def check_values(config, found):
    """Every column and quantity is declared, and its values are those that it may have."""
    fields, norms = result_fields(config), config.svm.norms
    further = further_columns(fields, described_quantities(config.probe))
    columns = {one.name: one for one in (*TRIAL_COLUMNS, *further)}
    assert list(found.trials) == list(columns)
    for norm in norms:
        columns |= {one.of(norm).name: one for one in (*DECLARED["multi"], *DECLARED["norm"])}
    columns |= {one.name: one for one in QUANTITIES}
    values = dict(found.trials.items())
    values |= {name: part["value"] for name, part in found.history.groupby("quantity")}
    for name, given in values.items():
        allowed = columns[name].allowed
        plain = [v.item() if isinstance(v, np.generic) else v for v in given.dropna()]
        plain = [v for v in plain if v not in ("", np.inf, -np.inf)]
        assert allowed is None or all(map(allowed.holds, plain)), name
    assert set(found.timings) <= {one.name.removesuffix("_s") for one in RUN_COLUMNS}


@pytest.mark.parametrize("name", some_quick(KINDS, QUICK))
def test_every_kind_of_run_passes(name, tmp_path, capsys):
    config, found = made(name)
    check_values(config, found)
    folder = written(tmp_path, config, found)
    svms = [array for key, array in found.solutions.items() if key.endswith("_status")]
    proved = Counter(str(status) for array in svms for status in array)
    assert command.main([str(tmp_path)]) == 0
    words = {f"{len(found.trials)} instances", "0 refused"}
    words |= {f"{count} {status} proved" for status, count in proved.items()}
    line = capsys.readouterr().out.splitlines()[0].removeprefix(f"{folder.name}: ")
    assert words <= set(line.split(", "))


@pytest.mark.parametrize(
    ("model", "place"),
    [
        ("sequence", "of the config"),
        ("cross_attention", "beside the run"),
        pytest.param("cross_attention", "of the config", marks=pytest.mark.full),
        pytest.param("cross_attention", "beside the sweep", marks=pytest.mark.full),
    ],
)
def test_a_data_file_is_read_again_if_it_is_here_and_the_same(model, place, tmp_path, capsys):
    config, found = from_file(tmp_path, model)
    folder = written(tmp_path / "sweep", config, found)
    places = {"beside the run": folder, "beside the sweep": folder.parent}
    path = places.get(place, tmp_path) / "tokens.npz"
    (tmp_path / "tokens.npz").rename(path)
    assert command.main([str(folder), "--retrain", "1"]) == 0
    out = capsys.readouterr().out
    assert "1 trained again" in out
    assert "not here" not in out
    path.write_bytes(b"other content")
    assert command.main([str(folder)]) == 1
    assert "signature: is not that of the config and the files" in capsys.readouterr().out
    path.unlink()  # nothing tells what it held
    assert command.main([str(folder)]) == 0
    assert "the data file is not here as it was" in capsys.readouterr().out


def test_an_instance_of_a_data_file_is_compared_with_it(tmp_path):
    config, found = from_file(tmp_path)
    found.solutions["X"][1, 0, 0] += 1e-9
    proof = prove(written(tmp_path / "sweep", config, found))
    assert ("X", 6, "is not what the seed draws") in proof.refusals


@pytest.mark.full
def test_a_processor_that_draws_other_last_bits_proves_the_rest(tmp_path):
    """The images of digits are no draws."""
    runs = {name: made(name) for name in ("top", "mlp", "digits", "optimal")}
    folders = {name: written(tmp_path, *run).name for name, run in runs.items()}
    said = verified_elsewhere(tmp_path, ATEN_CPU_CAPABILITY="default")
    lines = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    for name, folder in folders.items():
        assert ("agree with their draw up to rounding" in lines[folder]) == (name != "digits")


@pytest.mark.parametrize("group", some_quick(GROUPS, ["head"]))
def test_a_plug_in_is_named_as_trusted(group, tmp_path, capsys):
    config, found = made("top")
    target = getattr(config, group)
    target._target_ = "my_package.Mine"
    config.extensions.append("my_package")
    folder = written(tmp_path, config, found)
    assert command.main([str(folder), "--retrain", "1"]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert "my_package.Mine" in said
    assert "0 trained again (the code of a plug-in is not run)" in said
    assert "not here" not in said


@pytest.mark.parametrize("group", some_quick(("head", "model", "loss"), ("head",)))
def test_a_plug_in_on_a_data_file_that_is_here_is_the_reason(group, tmp_path, capsys):
    config, found = from_file(tmp_path)
    getattr(config, group)._target_ = "my_package.Mine"
    config.extensions.append("my_package")
    folder = written(tmp_path / "sweep", config, found)
    assert command.main([str(folder)]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert "my_package.Mine" in said
    assert "not here" not in said
    (tmp_path / "tokens.npz").unlink()
    assert command.main([str(folder)]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert "my_package.Mine" in said
    assert "and signature: the data file is not here as it was" in said


@pytest.mark.full
def test_a_missing_file_of_initial_weights_is_the_reason(tmp_path, capsys):
    folder = written(tmp_path / "sweep", *started_from_file(tmp_path))
    (tmp_path / "weights.npz").unlink()
    assert command.main([str(folder), "--retrain", "1"]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    reason = "the file of initial weights is not here as it was"
    assert f"0 trained again ({reason})" in said
    assert f"the initial weights ({reason})" in said
    assert "data file" not in said


def test_the_history_may_be_in_any_order(tmp_path):
    config, found = made("top")
    random = np.random.default_rng(0).permutation(len(found.history))
    turned = replace(found, history=found.history.iloc[random].reset_index(drop=True))
    assert not prove(written(tmp_path, config, turned)).refusals
