"""What is on disk as tidy tables: `attnsvm.load`, and the frames from which reports are made."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest

import attnsvm
from attnsvm import experiment, record
from attnsvm.record.columns import TRIAL_COLUMNS
from attnsvm.record.files import CorruptRecordError
from attnsvm.record.folder import write, write_failure
from attnsvm.record.provenance import provenance
from attnsvm.record.stored import StoredRun
from attnsvm.sweeps.aggregate import read_sweep
from tests.config.test_config import composed
from tests.sweeps.conftest import written


@pytest.fixture
def sweep(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "sweep")


def folders(sweep):
    return sorted(path.parent for path in sweep.glob("*/run.json"))


def test_fields_that_differ_are_columns_named_as_on_the_command_line(sound):
    loaded = attnsvm.load(str(sound))
    assert loaded.axes == ("parameterization", "data.d")
    measured = [column.name for column in TRIAL_COLUMNS]
    assert list(loaded.trials) == ["run", *loaded.axes, *measured]
    assert list(loaded.history) == ["run", *loaded.axes, "seed", "step", "quantity", "value"]
    pairs = loaded.trials.groupby(["parameterization", "data.d"]).size()
    assert pairs.to_dict() == {(p, d): 3 for p in ("kq", "w") for d in (3, 4)}
    assert loaded.history["data.d"].dtype == np.int64
    chosen = loaded.chosen({"d": "3"})
    pd.testing.assert_frame_equal(
        chosen.history.reset_index(drop=True),
        loaded.history[loaded.history["data.d"] == 3].reset_index(drop=True),
        check_categorical=False,
    )
    others = {"data.n": 2, "optimizer.steps": 30, "data": "sphere"}
    assert (loaded.runs[[*others]] == [*others.values()]).all(axis=None)
    assert "d" not in loaded.runs
    assert len(loaded.rows) == len(loaded.trials)


def test_the_numbers_are_those_of_the_records(sound):
    loaded = attnsvm.load(sound)
    for run in loaded.runs["run"]:
        stored = StoredRun(sound / run).record()
        for table in ("trials", "history"):
            part = getattr(loaded, table)
            part = part[part["run"] == run].reset_index(drop=True)
            expected = getattr(stored, table)
            pd.testing.assert_frame_equal(part[list(expected)].astype(expected.dtypes), expected)
        arrays = loaded.solutions(run)
        np.testing.assert_array_equal(arrays["seeds"], [0, 1, 2])
        apart = attnsvm.one_minus_correlation(arrays["trained_W"], arrays["frobenius_W"])
        stated = stored.trials["one_minus_corr_frobenius"].to_numpy()
        np.testing.assert_allclose(apart, stated, rtol=1e-12, atol=1e-15)


def test_it_shows_itself_in_a_line_and_in_a_notebook_in_a_table(sweep):
    loaded = attnsvm.load(sweep)
    shown = r"LoadedSweep\(sweep=sweep, runs=4 done, .*differ=parameterization, data\.d\)"
    assert re.fullmatch(shown, repr(loaded))
    assert "<th>runs</th><td>4 done</td>" in loaded._repr_html_()
    hostile = attnsvm.load(sweep.rename(sweep.parent / "<script>\x1b[2J"))
    assert "\x1b" not in repr(hostile)
    assert "<script>" not in hostile._repr_html_()


def test_runs_without_rows_are_named_and_counted(sweep):
    corrupt, failed, folder, sound = folders(sweep)
    (corrupt / "trials.parquet").write_bytes(b"PAR1 not what was written PAR1")
    (folder / "trials.parquet").unlink()
    write_failure(failed, record.read_json(failed / "run.json"), ValueError("<b>\x1b[2J"))
    plan = record.read_json(sweep / "sweep.json")["runs"]
    missing = {"never_started-000000000000": ["data.d=9"]}
    record.write_plan(sweep, {**missing, **{run.name: plan[run.name] for run in (failed, sound)}})
    assert "2 records of other grids" in attnsvm.load(sweep).not_shown
    record.write_plan(sweep, {**plan, **missing})
    loaded = attnsvm.load(sweep)
    assert loaded.elsewhere == 0
    states = {corrupt.name: "corrupt", failed.name: "failed", folder.name: "corrupt"}
    left_out = loaded.left_out.set_index("run")
    assert left_out["state"].to_dict() == states | dict.fromkeys(missing, "missing")
    reasons = left_out["reason"]
    assert "trials.parquet" in reasons[corrupt.name]
    assert reasons[failed.name].startswith("ValueError: <b>")
    assert (loaded.statuses["failed"], loaded.statuses["corrupt"]) == (3, 6)
    assert (sum(loaded.statuses.values()), len(loaded.trials)) == (12, 3)
    (sound / "solutions.npz").write_bytes(b"!")
    for run, message in ((failed, "is failed, it has no arrays"), (sound, r"solutions\.npz")):
        with pytest.raises(CorruptRecordError, match=message):
            loaded.solutions(run.name)


def test_a_run_that_gave_up_says_how_many_it_lacks(tmp_path):
    config = composed(
        "head=relu selection=multi selection.until_accepted=true trials=1 optimizer.init=zero "
        "optimizer.steps=1 data.n=2 data.T=2 data.d=3"
    )
    write(tmp_path, experiment.parts(config), provenance(config, []))
    assert "1 runs stopped: 0 accepted of 1 wanted instances" in read_sweep(tmp_path).not_shown


def test_a_run_alone_and_one_that_is_not_there_which_is_named_with_the_nearest(sound):
    folder = folders(sound)[0]
    loaded = attnsvm.load(folder)
    assert loaded.axes == ()
    assert list(loaded.trials)[:2] == ["run", "seed"]
    assert loaded.solutions(folder.name)["X"].shape[0] == 3
    assert "differ=nothing" in repr(loaded)
    for run, words in ((folder.name[:-1], f"did you mean .*{folder.name}"), ("\x1b", "run=' ':")):
        with pytest.raises(ValueError, match=words):
            loaded.solutions(run)


def test_several_folders_are_one_sweep_and_instances_of_the_same_name_count_once(sweep, sound):
    """The same folder name means the same config: the same instances again."""
    other = written(sweep.parent / "other", ("data.d=5", "parameterization=w", "optimizer.lr=0.2"))
    loaded = attnsvm.load(sound, other)
    assert loaded.axes == ("parameterization", "data.d", "optimizer.lr")
    assert loaded.trials.groupby("data.d").size().to_dict() == {3: 6, 4: 6, 5: 3}
    loaded = attnsvm.load(sound, sweep)
    assert (loaded.runs["run"].nunique(), len(loaded.trials)) == (8, 12)
    assert "repeated=12" in repr(loaded)
    for run in loaded.runs["run"]:
        assert loaded.solutions(run)["seeds"].tolist() == [0, 1, 2]
    link = sweep.parent / "latest"
    link.symlink_to(sweep)
    loaded = attnsvm.load(sweep, folders(sweep)[0], link)  # a folder twice, and a run of it
    assert len(loaded.runs) == 4
    pd.testing.assert_frame_equal(loaded.trials, attnsvm.load(sweep).trials)


def test_a_folder_without_a_run_is_refused(sound, tmp_path):
    (tmp_path / "empty").mkdir()
    for folders, message in (
        ((sound, tmp_path / "empty"), "empty: holds no sweep and no record of a run"),
        (("nowhere",), "no such folder"),
        ((), "must be given the folder"),
    ):
        with pytest.raises((FileNotFoundError, TypeError), match=message):
            attnsvm.load(*folders)
