"""Stored certificates are proved again, and no edited record is."""

from __future__ import annotations

import dataclasses
import shutil
import tracemalloc
import zipfile

import numpy as np
import pytest

from attnsvm import experiment, record
from attnsvm.record.files import sha256
from attnsvm.record.provenance import provenance
from attnsvm.verify import command
from attnsvm.verify.stored import StoredArrays, opened
from tests.config.test_config import composed

RUNS = {
    "top": ("data.n=3", "data.T=4", "data.d=3", "trials=8", "optimizer.steps=200"),
    "optimal": ("selection=optimal", "data.n=5", "data.T=5", "data.d=2", "trials=8"),
    "multi": ("head=relu", "selection=multi", "data.n=3", "data.T=4", "data.d=4", "trials=40",
              "optimizer.steps=400"),
    "no_constraint": ("data.T=1", "trials=2", "optimizer.steps=2"),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs():
    """Config and record of each kind of run, computed once."""
    return {name: (config := composed(*o), experiment.run(config)) for name, o in RUNS.items()}


def written(folder, config, result):
    folder.mkdir(exist_ok=True)
    record.write(folder, [result], provenance(config, []))
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_everything_stored_is_proved(name, runs, tmp_path):
    folder = written(tmp_path / "run", *runs[name])
    table = command.proofs(folder)
    assert len(table)
    assert table["proved"].all(), table[~table["proved"]]
    assert command.main([str(folder)]) == 0
    stored = runs[name][1].solutions
    svms = {key.removesuffix("_status") for key in stored if key.endswith("_status")}
    assert set(table["svm"]) == svms  # nothing that is stored is passed over
    if name == "optimal":
        assert {"solved", "infeasible"} == set(table["status"])


@pytest.mark.parametrize("rank_tolerance", [1e-12, 0.5])
def test_ranks_are_proved_at_the_threshold_of_the_config(rank_tolerance, tmp_path):
    config = composed(*RUNS["optimal"], "data.d=6", f"svm.rank_tolerance={rank_tolerance}")
    folder = written(tmp_path / "run", config, experiment.run(config))
    table = command.proofs(folder)
    assert (table["status"] == "solved").sum() == 16
    assert table["proved"].all(), table[~table["proved"]]


def edited(result, name: str, change) -> record.RunRecord:
    """Return the record with one array of its solutions changed at its first solved instance."""
    arrays = {key: array.copy() for key, array in result.solutions.items()}
    k = int(np.flatnonzero(arrays["frobenius_status"] == "solved")[0])
    arrays[name][k] = change(arrays[name][k])
    return dataclasses.replace(result, solutions=arrays)


EDITS = {
    "W shrunk": ("frobenius_W", lambda W: W * (1 - 1e-6)),
    "W turned": ("frobenius_W", lambda W: -W),
    "multiplier below zero": ("frobenius_multipliers", lambda a: a - a.max()),
    "norm too small": ("frobenius_objective", lambda norm: norm * (1 - 1e-6)),
    "bound too large": ("frobenius_lower_bound", lambda bound: bound * (1 + 1e-6)),
    "other tokens": ("selected", lambda tokens: (tokens + 1) % 4),
    "nuclear W shrunk": ("nuclear_W", lambda W: W * (1 - 1e-6)),
    "nuclear norm too small": ("nuclear_objective", lambda norm: norm * (1 - 1e-6)),
    "rank": ("nuclear_rank", lambda rank: rank - 1),
    "status": ("frobenius_status", lambda _: "infeasible"),
    "token moved": ("X", lambda X: X + 1e-3 * np.arange(X.size).reshape(X.shape)),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_solution_is_refused_although_its_checksums_fit(edit, runs, tmp_path, capsys):
    config, result = runs["top"]
    folder = written(tmp_path / "run", config, edited(result, *EDITS[edit]))
    assert record.is_done(folder)
    assert command.main([str(folder)]) == 1
    assert "seed" in capsys.readouterr().out


def test_an_edited_table_is_refused(runs, tmp_path, capsys):
    config, result = runs["top"]
    trials = result.trials.copy()
    trials.loc[0, "frobenius_objective"] *= 1 - 1e-9
    folder = written(tmp_path / "run", config, dataclasses.replace(result, trials=trials))
    assert command.main([str(folder)]) == 1
    assert "table: objective" in capsys.readouterr().out


def test_a_corrupt_or_absent_record_is_told(runs, tmp_path, capsys):
    folder = written(tmp_path / "run", *runs["no_constraint"])
    (folder / "solutions.npz").write_bytes(b"")
    assert command.main([str(folder)]) == 1
    assert "corrupt" in capsys.readouterr().out
    assert command.main([str(tmp_path / "nowhere")]) == 2


@pytest.mark.parametrize("name", RUNS)
def test_the_record_is_read_instance_by_instance_as_it_was_written(name, runs, tmp_path):
    folder = written(tmp_path / "run", *runs[name])
    with opened(folder) as (found, _):
        whole = record.read(folder)[0].solutions
        assert set(found.solutions) == set(whole)
        for key, array in whole.items():
            np.testing.assert_array_equal(np.stack(list(found.solutions[key])), array, strict=True)
        assert "frobenius_V" not in found.solutions


def test_one_instance_is_in_memory_at_a_time(tmp_path):
    whole = np.random.default_rng(0).random((1000, 50, 50))
    np.savez_compressed(tmp_path / "arrays.npz", W=whole)
    with zipfile.ZipFile(tmp_path / "arrays.npz") as archive:
        tracemalloc.start()
        least = min(W.min() for W in StoredArrays(archive)["W"])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert least == whole.min()
    assert peak < whole.nbytes / 50


def test_arrays_that_cannot_be_read_hide_no_other_run(runs, tmp_path, capsys):
    sound = written(tmp_path / "b", *runs["top"])
    for name, change in (
        ("a", lambda content: content[: len(content) // 2]),
        ("c", lambda content: content.replace(b"NUMPY", b"OTHER")),
    ):
        folder = shutil.copytree(sound, tmp_path / name)
        path = folder / "solutions.npz"
        with zipfile.ZipFile(path) as archive:
            plain = {info.filename: archive.read(info) for info in archive.infolist()}
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in plain.items():
                archive.writestr(member, content)
        path.write_bytes(change(path.read_bytes()))
        run = record.read_json(folder / "run.json")
        run["files"]["solutions.npz"] = sha256(path.read_bytes())
        record.write_json(folder / "run.json", run)
    assert command.main([str(tmp_path)]) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("a: corrupt: BadZipFile")
    assert second.endswith("proved, 0 refused")
    assert third.startswith("c: corrupt: ")
