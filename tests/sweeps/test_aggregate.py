from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

from attnsvm import experiment, record
from attnsvm.config.identity import run_name
from attnsvm.record.provenance import provenance
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.remarks import not_shown
from tests.command import attnsvm
from tests.config.test_config import composed


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A sweep of three runs, complete."""
    folder = tmp_path_factory.mktemp("sweep")
    plan = {}
    for d in (3, 4, 5):
        config = composed(f"data.d={d}", "data.n=2", "data.T=3", "trials=3", "optimizer.steps=30")
        name = run_name(config)
        (folder / name).mkdir()
        record.write(folder / name, experiment.parts(config), provenance(config, [f"data.d={d}"]))
        plan[name] = [f"data.d={d}"]
    record.write_plan(folder, plan)
    return folder


@pytest.fixture
def sweep(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "sweep")


def test_a_complete_sweep(sweep):
    frames = load(sweep)
    assert frames.runs["state"].tolist() == ["done"] * 3
    assert frames.incomplete.empty
    assert sorted(frames.trials["d"].unique()) == [3, 4, 5]
    assert len(frames.trials) == 9
    assert set(frames.history["run"]) == set(frames.runs["run"])
    assert frames.trials["seed"].tolist() == [0, 1, 2] * 3


def test_the_tables_are_those_of_the_runs_one_below_the_other(sweep):
    frames = load(sweep)
    plan = record.read_json(sweep / "sweep.json")["runs"]
    for table in ("trials", "history"):
        each = [getattr(record.read(sweep / name)[0], table).assign(run=name) for name in plan]
        expected = pd.concat(each, ignore_index=True)
        found = getattr(frames, table)[list(expected)].astype(expected.dtypes)
        pd.testing.assert_frame_equal(found, expected)
    assert frames.trials["d"].dtype == "int64"


def test_every_row_has_the_axes_of_its_run(sweep):
    frames = load(sweep)
    assert frames.axes.names == ("d",)
    rows = frames.runs.set_index("run").loc[frames.history["run"].astype(str)]
    assert (frames.history["d"].astype(int) == rows["d"].reset_index(drop=True)).all()
    assert list(frames.history["d"].cat.categories) == [3, 4, 5]
    assert frames.trials["m"].isna().all()  # a field that no run has


def _folders(sweep):
    return sorted(path.parent for path in sweep.glob("*/run.json"))


def test_each_kind_of_damage_is_named_counted_and_left_out(sweep):
    corrupt, failed, _ = _folders(sweep)
    (corrupt / "trials.parquet").write_bytes(b"PAR1 not what was written PAR1")
    origin = record.read_json(failed / "run.json")
    record.write_failure(failed, origin, ValueError("<script>no</script>"))
    plan = record.read_json(sweep / "sweep.json")["runs"]
    record.write_plan(sweep, {**plan, "never_started-000000000000": ["data.d=9"]})
    frames = load(sweep)
    states = dict(zip(frames.runs["run"], frames.runs["state"], strict=True))
    assert states[corrupt.name] == "corrupt"
    assert states[failed.name] == "failed"
    assert states["never_started-000000000000"] == "missing"
    assert list(states.values()).count("done") == 1
    reasons = frames.incomplete.set_index("run")["reason"]
    assert "trials.parquet" in reasons[corrupt.name]
    assert reasons[failed.name] == "ValueError: <script>no</script>"
    assert len(frames.trials) == 3


def test_the_report_command_tells_what_is_missing_and_fails(sweep):
    damaged = _folders(sweep)[0]
    (damaged / "solutions.npz").unlink()
    done = attnsvm(str(sweep), cwd=sweep, command="attnsvm-report")
    assert done.returncode == 1
    assert damaged.name in done.stdout + done.stderr
    assert "corrupt" in done.stdout + done.stderr
    assert (sweep / "report.html").exists()
    for folder in _folders(sweep)[1:]:
        assert record.is_done(folder)  # nothing that was finished is touched


@pytest.mark.full
def test_the_report_command_on_a_sound_sweep_succeeds(sweep):
    done = attnsvm(".", cwd=sweep, command="attnsvm-report")
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_cells_of_an_older_grid_are_not_part_of_the_sweep(sweep):
    plan = record.read_json(sweep / "sweep.json")["runs"]
    kept = dict(list(plan.items())[:2])
    record.write_plan(sweep, kept)
    frames = load(sweep)
    assert set(frames.runs["run"]) == set(kept)
    assert frames.elsewhere == 1
    assert "1 records of other grids" in not_shown(frames)


def test_a_record_in_the_wrong_folder_is_not_counted_twice(sweep):
    one, other, _ = _folders(sweep)
    for path in one.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    frames = load(sweep)
    assert frames.incomplete["run"].tolist() == [other.name]
    assert "holds the record of another run" in frames.incomplete["reason"].iloc[0]
    assert len(frames.trials) == 6


def test_what_cannot_be_read_is_corrupt_and_hides_no_other(sweep):
    one, other, _ = _folders(sweep)
    (one / "trials.parquet").unlink()
    (one / "trials.parquet").mkdir()
    run = record.read_json(other / "run.json")
    record.write_json(other / "run.json", {**run, "files": {}})
    frames = load(sweep)
    assert frames.incomplete["state"].tolist() == ["corrupt"] * 2
    assert len(frames.trials) == 3


def test_a_run_that_gave_up_says_how_many_it_lacks(tmp_path):
    config = composed(
        "head=relu", "selection=multi", "selection.until_accepted=true", "trials=1",
        "optimizer.init=zero", "optimizer.steps=1", "data.n=2", "data.T=2", "data.d=3",
    )  # fmt: skip
    record.write(tmp_path, experiment.parts(config), provenance(config, []))
    assert "1 runs stopped: 0 accepted of 1 wanted instances" in not_shown(load(tmp_path))


def test_a_corrupt_plan_is_named_and_the_records_are_still_found(sweep):
    content = json.loads((sweep / "sweep.json").read_text())
    content["runs"] = {}
    (sweep / "sweep.json").write_text(json.dumps(content))
    frames = load(sweep)
    assert frames.incomplete["run"].tolist() == ["sweep.json"]
    assert len(frames.trials) == 9


def test_a_single_run_is_a_sweep_of_one(sweep):
    assert len(load(_folders(sweep)[0]).trials) == 3


@pytest.mark.parametrize("make", [True, False])
def test_a_folder_without_records_is_an_error(tmp_path, make):
    folder = tmp_path / "empty"
    if make:
        folder.mkdir()
    with pytest.raises(FileNotFoundError, match="empty"):
        load(folder)
