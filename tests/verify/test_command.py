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
from tests.record.odd import rewritten
from tests.verify.forging import genuine
from tests.verify.kinds import recorded, written


@pytest.fixture(scope="module")
def top():
    """Config and record of a trained run."""
    return recorded("top")


def lines(capsys):
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "seconds", "reproduced"),
    [
        ((), 120.0, "reproduced on 2 of 4 instances (--all runs all again),"),
        (("--all",), 120.0, "reproduced on 4 of 4 instances,"),
        (("--instances", "3"), 1.0, "reproduced on 3 of 4 instances,"),
    ],
)
def test_a_long_run_is_reproduced_on_a_sample(words, seconds, reproduced, top, tmp_path, capsys):
    folder = written(tmp_path, *top)
    rewritten(folder, timings_s={"train": seconds})
    assert command.main([str(tmp_path), *words]) == 0
    first, *_, last = lines(capsys)
    for line, begin in ((first, folder.name), (last, "in all")):
        assert line == f"{begin}: 8 solved proved, {reproduced} 0 differ"


@pytest.mark.parametrize(("option", "count"), [("--instances", "0"), ("--retrain", "1.5")])
def test_a_number_of_instances_is_a_whole_one(option, count, capsys):
    """By either name of the option."""
    with pytest.raises(SystemExit):
        command.main([f"{option}={count}"])
    assert f"--instances/--retrain: {count}: must be a whole number >= 1" in capsys.readouterr().err


def test_differences_stand_below_their_run(tmp_path, capsys):
    forged = genuine("top")
    forged.cell("W_norm", 1.0)
    forged.cell("frobenius_objective", lambda norm: norm * (1 - 1e-9), row=2)
    forged.written(tmp_path)
    assert command.main([str(tmp_path), "--all"]) == 1
    run, *differences, last = lines(capsys)
    assert run.endswith(", 2 differ")
    assert {" ".join(line.split()[:4]) for line in differences} == {
        "differs: seed 2: frobenius_objective",
        "differs: seed 0: W_norm",
    }
    assert last.startswith("in all: ")


def test_a_skipped_a_missing_a_renamed_and_an_absent_run(top, tmp_path, capsys):
    config, record = top
    folder, skipped = written(tmp_path, config, record), {"data.d=0": "data.d=0: must be >= 1"}
    write_plan(tmp_path, {folder.name: []}, skipped=skipped)
    assert command.main([str(tmp_path)]) == 0
    first, *_, last = lines(capsys)
    assert first == "data.d=0: skipped: data.d=0: must be >= 1"
    assert last.endswith(", 0 differ, 1 skipped")
    write_plan(tmp_path, {folder.name: [], "sphere-0123456789ab": []})
    assert command.main([str(tmp_path)]) == 1
    assert any(line.startswith("sphere-0123456789ab: missing") for line in lines(capsys))
    renamed = folder.rename(tmp_path / run_name(config).replace("sphere", "digits"))
    assert command.main([str(renamed)]) == 1
    assert any(run_name(config) in line for line in lines(capsys))
    assert command.main([str(folder)]) == 2  # there is none any more


def test_large_arrays_are_not_in_memory(tmp_path, monkeypatch):
    whole = np.random.default_rng(0).random((1000, 50, 50))
    np.savez(tmp_path / "arrays.npz", W=whole, V=np.asfortranarray(whole))
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


@pytest.mark.full
def test_many_runs_are_proved_in_processes_as_in_one(top, tmp_path, capsys, monkeypatch):
    sweep, forged = tmp_path / "sweep", genuine("top")
    folder = written(sweep, *top)
    forged.cell("W_norm", 1.0)
    shutil.copytree(forged.written(tmp_path / "forged"), sweep / "b")
    shutil.copytree(folder, sweep / "c")
    (sweep / "c" / "solutions.npz").write_bytes(b"")
    assert command.main([str(sweep), "--all"]) == 1
    in_one = lines(capsys)
    monkeypatch.setattr(command, "INSTANCES_EACH", 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(command.os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert command.main([str(sweep), "--all"]) == 1
    assert lines(capsys) == in_one
    of = {line.split(":")[0]: line.rpartition(", ")[2] for line in in_one}
    assert (of[folder.name], of["b"]) == ("0 differ", "1 differ")
    assert "c" in of
