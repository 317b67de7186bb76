"""`attnsvm.load`: what is on disk as tidy tables, named as on the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import attnsvm
from attnsvm import experiment, record
from attnsvm.config.identity import run_name
from attnsvm.record.columns import TRIAL_COLUMNS
from attnsvm.record.files import CorruptRecordError
from attnsvm.record.provenance import provenance
from attnsvm.sweeps import aggregate
from tests.command import environment
from tests.config.test_config import composed

SMALL = ("data.n=2", "data.T=3", "trials=3", "optimizer.steps=30")


def written(folder: Path, *cells: tuple[str, ...]) -> Path:
    """Write a sweep with a run for each of the cells."""
    plan = {}
    for cell in cells:
        config = composed(*SMALL, *cell)
        name = run_name(config)
        (folder / name).mkdir(parents=True)
        record.write(folder / name, experiment.parts(config), provenance(config, list(cell)))
        plan[name] = list(cell)
    record.write_plan(folder, plan)
    return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    cells = [(f"data.d={d}", f"parameterization={p}") for d in (3, 4) for p in ("w", "kq")]
    return written(tmp_path_factory.mktemp("sweeps") / "sweep", *cells)


@pytest.fixture
def sweep(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "sweep")


def test_fields_that_differ_are_columns_named_as_on_the_command_line(sweep):
    found = attnsvm.load(str(sweep))
    assert found.axes == ("parameterization", "data.d")
    measured = [one.name for one in TRIAL_COLUMNS]
    assert list(found.trials) == ["run", *found.axes, *measured]
    assert list(found.history) == ["run", *found.axes, "seed", "step", "quantity", "value"]
    pairs = found.trials.groupby(["parameterization", "data.d"]).size()
    assert pairs.to_dict() == {(p, d): 3 for p in ("kq", "w") for d in (3, 4)}


def test_all_other_fields_are_columns_of_the_runs(sweep):
    runs = attnsvm.load(sweep).runs
    assert (runs["data.n"] == 2).all()
    assert (runs["optimizer.steps"] == 30).all()
    assert set(runs["parameterization"]) == {"w", "kq"}
    assert (runs["data"] == "sphere").all()
    assert "d" not in runs


def test_the_numbers_are_those_of_the_records(sweep):
    found = attnsvm.load(sweep)
    for run in found.runs["run"]:
        stored, _ = record.read(sweep / run)
        for table in ("trials", "history"):
            part = getattr(found, table)
            part = part[part["run"] == run].reset_index(drop=True)
            expected = getattr(stored, table)
            pd.testing.assert_frame_equal(part[list(expected)].astype(expected.dtypes), expected)


def test_numbers_of_the_history_can_be_compared(sweep):
    history = attnsvm.load(sweep).history
    assert history["data.d"].dtype == np.int64
    assert set(history.loc[history["data.d"] > 3, "data.d"]) == {4}


def test_the_arrays_of_every_run(sweep):
    found = attnsvm.load(sweep)
    for run in found.runs["run"]:
        arrays = found.solutions(run)
        np.testing.assert_array_equal(arrays["seeds"], [0, 1, 2])
        W, mm = arrays["trained_W"], arrays["frobenius_W"]
        stated = found.trials.loc[found.trials["run"] == run, "one_minus_corr_frobenius"]
        np.testing.assert_allclose(
            attnsvm.one_minus_correlation(W, mm), stated.to_numpy(), rtol=1e-12, atol=1e-15
        )


def test_a_run_that_is_not_there_is_named_with_the_nearest(sweep):
    found = attnsvm.load(sweep)
    name = found.runs["run"].iloc[0]
    with pytest.raises(ValueError, match=f"did you mean .*{name}"):
        found.solutions(name[:-1])
    with pytest.raises(ValueError, match=r"run=' ': must be a name in the column run$"):
        found.solutions("\x1b")


def test_arrays_that_were_changed_are_refused(sweep):
    found = attnsvm.load(sweep)
    run = found.runs["run"].iloc[0]
    with (sweep / run / "solutions.npz").open("ab") as stream:
        stream.write(b"!")
    with pytest.raises(CorruptRecordError, match=r"solutions\.npz"):
        found.solutions(run)


def test_a_run_alone(sweep):
    folder = next(sweep.glob("*/run.json")).parent
    found = attnsvm.load(folder)
    assert found.axes == ()
    assert list(found.trials)[:2] == ["run", "seed"]
    assert found.solutions(folder.name)["X"].shape[0] == 3
    assert "differ=nothing" in repr(found)


def test_what_is_missing_failed_or_damaged_is_counted_and_has_no_arrays(sweep):
    corrupt, failed, *_ = sorted(path.parent for path in sweep.glob("*/run.json"))
    (corrupt / "trials.parquet").write_bytes(b"PAR1")
    record.write_failure(failed, record.read_json(failed / "run.json"), ValueError("<b>\x1b[2J"))
    found = attnsvm.load(sweep)
    assert found.runs["state"].value_counts().to_dict() == {"done": 2, "failed": 1, "corrupt": 1}
    assert found.statuses["failed"] == found.statuses["corrupt"] == 3
    assert sum(found.statuses.values()) == 12
    assert "runs=2 done, 1 " in repr(found)
    with pytest.raises(CorruptRecordError, match="is failed, it has no arrays"):
        found.solutions(failed.name)


def test_it_shows_itself_in_a_line_and_in_a_notebook_in_a_table(sweep):
    found = attnsvm.load(sweep)
    assert repr(found).startswith("LoadedSweep(sweep=sweep, runs=4 done, instances=")
    assert "differ=parameterization, data.d)" in repr(found)
    assert "<th>runs</th><td>4 done</td>" in found._repr_html_()


def test_words_of_a_record_cannot_leave_the_table(sweep):
    hostile = sweep.rename(sweep.parent / "<script>\x1b[2J")
    found = attnsvm.load(hostile)
    assert "\x1b" not in repr(found)
    assert "<script>" not in found._repr_html_()


# --- several folders ------------------------------------------------------------------------------


def test_several_folders_are_one_sweep(sound, tmp_path):
    other = written(tmp_path / "other", ("data.d=5", "parameterization=w", "optimizer.lr=0.2"))
    found = attnsvm.load(sound, other)
    assert found.axes == ("parameterization", "data.d", "optimizer.lr")
    assert len(found.runs) == 5
    assert found.trials.groupby("data.d").size().to_dict() == {3: 6, 4: 6, 5: 3}


def test_runs_of_the_same_name_keep_apart_and_their_instances_count_once(sweep, sound):
    """The same folder name means the same config: the same instances again."""
    found = attnsvm.load(sound, sweep)
    assert found.runs["run"].is_unique
    assert len(found.runs) == 8
    assert len(found.trials) == 12
    assert "repeated=12" in repr(found)
    for run in found.runs["run"]:
        assert found.solutions(run)["seeds"].tolist() == [0, 1, 2]
        assert (sound.parent / run).exists() != (sweep.parent / run).exists() or "sweep/" in run


def test_a_folder_twice_and_a_run_of_it_count_once(sweep):
    run = next(sweep.glob("*/run.json")).parent
    link = sweep.parent / "latest"
    link.symlink_to(sweep)
    found = attnsvm.load(sweep, run, link)
    assert len(found.runs) == 4
    pd.testing.assert_frame_equal(found.trials, attnsvm.load(sweep).trials)


def test_corrupt_plans_of_two_folders_keep_apart(sweep, tmp_path):
    other = shutil.copytree(sweep, tmp_path / "other")
    for folder in (sweep, other):
        (folder / "sweep.json").write_text("no plan")
    runs = attnsvm.load(sweep, other).runs
    assert runs["run"].is_unique
    assert (runs["state"] == "corrupt").sum() == 2


def test_a_folder_without_a_run_is_refused(sweep, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no record of a run"):
        attnsvm.load(sweep, tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        attnsvm.load("nowhere")
    with pytest.raises(TypeError, match="must be given the folder"):
        attnsvm.load()


def test_what_a_report_draws_is_what_is_loaded(sweep):
    frames, found = aggregate.load(sweep), attnsvm.load(sweep)
    assert len(frames.trials) == len(found.trials)
    typed = {frames.typed[name] for name in frames.axes.names}
    assert typed == set(found.axes)


# --- beside a user's own package named sweeps -----------------------------------------------------

SCRIPT = """
import sys
if {before}:
    import sweeps.figures
import attnsvm
found = attnsvm.load({folder!r})
assert len(found.trials) == 12
import sweeps.figures
assert sweeps.figures.MINE == sweeps.MINE == 1
assert attnsvm.load({folder!r}).axes == found.axes
assert found.plot("data.d", "W_norm", status="all").shape == (1, 1)
assert sweeps is sys.modules["sweeps"]
"""


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.full
def test_a_package_sweeps_of_the_user_stays_the_users(before, sound, tmp_path):
    (tmp_path / "sweeps").mkdir()
    for name in ("__init__", "figures"):
        (tmp_path / "sweeps" / f"{name}.py").write_text("MINE = 1\n")
    script = SCRIPT.format(before=before, folder=str(sound))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, check=False, capture_output=True, text=True,
        env=environment(os.environ | {"PYTHONPATH": ".", "MPLBACKEND": "Agg"}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
