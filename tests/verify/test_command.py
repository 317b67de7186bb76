"""`attnsvm-verify` as a user types it: what it prints, and its exit code."""

import shutil
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from attnsvm.config.identity import run_name
from attnsvm.record import TooLargeError, archive
from attnsvm.record.plan import write_plan
from attnsvm.verify import command
from tests.record.odd import ODD_ARRAYS, RAW, replace_file
from tests.verify.forging import Forgery
from tests.verify.kinds import made, written


@pytest.fixture(scope="module")
def top():
    """Config and record of a trained run."""
    return made("top")


@pytest.mark.parametrize("again", [0, 3, 4])
def test_each_column_is_proved_replayed_or_as_recorded(again, top, tmp_path, capsys):
    written(tmp_path, *top)
    assert command.main([str(tmp_path), "--retrain", str(again)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ": 4 instances, 8 solved proved, 0 refused" in lines[0]
    found = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert found["proved"] == "every column and curve but these"
    assert found[f"replayed on {again} of 4 instances" if again else "as recorded"] == (
        "training, direction_change; history between its first and last step: W_norm, "
        "max_softmax, one_minus_corr_frobenius, one_minus_corr_nuclear, risk"
    )
    assert ("trusted" in found) == (again < 4)


def test_refusals_stand_below_their_run(top, tmp_path, capsys):
    forged = Forgery.of(written(tmp_path / "genuine", *top))
    forged.cell("W_norm", 1.0)
    forged.cell("frobenius_objective", lambda norm: norm * (1 - 1e-9), row=2)
    forged.written(tmp_path / "forged")
    assert command.main([str(tmp_path / "forged")]) == 1
    run, first, second, *_ = capsys.readouterr().out.splitlines()
    assert run.endswith("2 refused")
    assert first.startswith("  table seed 0: W_norm is ")
    assert second.startswith("  table seed 2: frobenius_objective is ")


def test_the_plan_agrees_with_the_configs(top, tmp_path, capsys):
    folder = written(tmp_path, *top)
    for overrides, refused in (
        (["data.n=3", "trials=4", "optimizer=normalized_gd", "data={T: 4}", "svm.norms=[x]"], None),
        (["data.n=4"], "data.n=4"),
        (["optimizer=adam"], "optimizer=adam"),
        (["head.train=true"], "head.train=true"),
        (["head.train=no", "keep_path=off", "optimizer=mine", "question=null"], None),
        (["head.train=on"], "head.train=on"),
    ):
        write_plan(tmp_path, {folder.name: overrides})
        assert command.main([str(tmp_path)]) == (refused is not None)
        said = capsys.readouterr().out
        assert refused is None or f"the plan says {refused}" in said
    write_plan(tmp_path, {folder.name: [], "sphere-0123456789ab": []})
    assert command.main([str(tmp_path)]) == 1
    assert "sphere-0123456789ab: missing" in capsys.readouterr().out


def test_a_run_in_a_folder_of_another_name_or_an_absent_one_is_refused(top, tmp_path, capsys):
    config, found = top
    folder = written(tmp_path, config, found)
    renamed = folder.rename(tmp_path / run_name(config).replace("sphere", "digits"))
    assert command.main([str(renamed)]) == 1
    assert f"its name must be {run_name(config)}" in capsys.readouterr().out
    assert command.main([str(folder)]) == 2  # there is none any more


def test_large_arrays_are_not_in_memory(tmp_path, monkeypatch):
    whole = np.random.default_rng(0).random((1000, 50, 50))
    np.savez_compressed(tmp_path / "arrays.npz", W=whole, V=np.asfortranarray(whole))
    with open(tmp_path / "arrays.npz", "rb") as stream:
        tracemalloc.start()
        arrays = archive.read_arrays(stream)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert all(np.array_equal(array, whole) for array in arrays.values())
    assert peak < whole.nbytes / 50
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**7))
    with open(tmp_path / "arrays.npz", "rb") as stream, pytest.raises(TooLargeError, match="half"):
        archive.read_arrays(stream)


@pytest.mark.parametrize("name", ["run.json", "solutions.npz"])
def test_one_odd_record_hides_no_other(name, top, tmp_path, capsys):
    sound = written(tmp_path / "sweep", *top)
    odd = shutil.copytree(sound, tmp_path / "sweep" / "odd")
    if name == "run.json":
        (odd / name).write_bytes(RAW["nan"])
    else:
        replace_file(odd, name, ODD_ARRAYS["4 x 11000 x 11000"])
    assert command.main([str(tmp_path / "sweep")]) == 1
    said = capsys.readouterr().out.splitlines()
    assert any(line.startswith("odd: corrupt: ") for line in said)
    assert any(line.startswith(sound.name) and line.endswith("0 refused") for line in said)


@pytest.mark.full
def test_many_runs_are_proved_in_processes_as_in_one(top, tmp_path, capsys, monkeypatch):
    sweep = tmp_path / "sweep"
    genuine = written(sweep, *top)
    forged = Forgery.of(genuine)
    forged.cell("W_norm", 1.0)
    shutil.copytree(genuine, sweep / "a")
    shutil.copytree(forged.written(tmp_path / "forged"), sweep / "b")
    shutil.copytree(genuine, sweep / "c")
    solutions = sweep / "c" / "solutions.npz"
    solutions.write_bytes(solutions.read_bytes()[:-9])
    write_plan(sweep, {name: [] for name in (genuine.name, "a", "b", "c")})
    assert command.main([str(sweep)]) == 1
    in_one = capsys.readouterr().out
    monkeypatch.setattr(command, "INSTANCES_EACH", 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(command.os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert command.main([str(sweep)]) == 1
    assert capsys.readouterr().out == in_one
    assert in_one.count("8 solved proved, 0 refused") == 2
    assert "1 refused" in in_one
    assert "\nc: " in in_one
