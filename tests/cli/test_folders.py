"""The folder of a sweep, the link to the last one, and the exit code of a command."""

from __future__ import annotations

import os

import pytest

from attnsvm.config.identity import plan_digest
from attnsvm.record import read_plan
from tests.command import SMALL, attnsvm
from tests.config.test_config import composed

QUICK = ("optimizer.steps=5", *SMALL[:4])


def ran(*arguments, cwd, code=0):
    done = attnsvm("-m", *QUICK, *arguments, cwd=cwd)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout + done.stderr


@pytest.mark.full
def test_each_plan_has_a_folder_of_its_own_and_finds_it_again(tmp_path):
    latest = tmp_path / "multirun/latest"
    ran("seed=1,2", cwd=tmp_path)
    first = os.readlink(latest)
    ran("seed=1,2", "svm.norms=[frobenius]", cwd=tmp_path)
    second = os.readlink(latest)
    assert first != second
    assert not os.path.isabs(first)
    for folder in (first, second):
        assert len(read_plan(tmp_path / "multirun" / folder).runs) == 2
        assert (tmp_path / "multirun" / folder / "multirun.yaml").exists()
        assert (tmp_path / "multirun" / folder / "report.html").exists()
    assert f"2 runs: 2 done in multirun/{first}" in ran("seed=2,1", "device=cpu", cwd=tmp_path)
    assert os.readlink(latest) == first
    assert "2 runs, 0 of them pending" in ran(
        "seed=1,2", "svm.norms=[frobenius]", "dry_run=true", cwd=tmp_path
    )
    assert os.readlink(latest) == first  # a dry run is no sweep
    assert set(os.listdir(tmp_path / "multirun")) == {first, second, "latest"}
    assert os.listdir(tmp_path) == ["multirun"]


@pytest.mark.full
def test_a_folder_that_is_given_or_named_is_kept(tmp_path):
    ran("seed=1,2", "hydra.sweep.dir=elsewhere/mine", cwd=tmp_path)
    assert os.readlink(tmp_path / "multirun/latest") == "../elsewhere/mine"
    ran("seed=1,2", "hydra.sweep.dir=multirun/adhoc", cwd=tmp_path)
    assert os.readlink(tmp_path / "multirun/latest") == "adhoc"
    for grid in (["data.d=4", "data.n=2"], ["data.d=4,5", "data.n=2"]):
        ran("sweep=rank_vs_d", "data.T=2", *grid, "svm=certified", cwd=tmp_path)
    assert os.readlink(tmp_path / "multirun/latest") == "rank_vs_d"
    assert len(read_plan(tmp_path / "multirun/rank_vs_d").runs) == 2
    assert set(os.listdir(tmp_path / "multirun")) == {"adhoc", "rank_vs_d", "latest"}


def test_the_digest_of_a_plan_is_that_of_its_cells():
    one, other, file = (
        composed(*QUICK, "seed=1"),
        composed(*QUICK, "seed=2"),
        composed("data=file", "data.path=/nowhere.npz"),
    )
    assert plan_digest([one, other]) == plan_digest([other, one, one])
    assert plan_digest([one]) == plan_digest([composed(*QUICK, "seed=1", "dry_run=true")])
    assert len({plan_digest(cells) for cells in ([one], [other], [one, other], [file])}) == 4


def test_a_data_file_that_appears_does_not_move_the_sweep(tmp_path):
    def digest():
        return plan_digest([composed("data=file", f"data.path={tmp_path}/there.npz")])

    before = digest()
    (tmp_path / "there.npz").write_bytes(b"something")
    assert digest() == before


REPLACED = """
import shutil
from pathlib import Path
from attnsvm.record import write_plan
from hydra.experimental.callback import Callback

class Mine(Callback):
    def on_job_end(self, config, job_return, **kwargs):
        folder = Path(config.hydra.runtime.output_dir)
        if config.seed == {seed}:
            {act}
"""


@pytest.mark.full
def test_the_exit_code_is_that_of_the_runs_of_this_command(tmp_path):
    """Another command replaces the plan by one that is done, and removes a run."""
    act = "shutil.rmtree(folder); write_plan(folder.parent, {other: [] for other in names})"
    act = "names = [p.name for p in folder.parent.glob('*-*') if p != folder]; " + act
    (tmp_path / "mine.py").write_text(REPLACED.format(seed=2, act=act))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    grid = ["-m", *QUICK, "seed=1,2", "+hydra.callbacks.mine._target_=mine.Mine"]
    done = attnsvm(*grid, cwd=tmp_path, env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 missing of 2 runs" in done.stderr
    assert "is not that of this command" in done.stdout


@pytest.mark.full
def test_records_that_were_removed_meanwhile_are_missing(tmp_path):
    (tmp_path / "mine.py").write_text(REPLACED.format(seed=2, act="shutil.rmtree(folder.parent)"))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    grid = ["-m", *QUICK, "seed=1,2", "+hydra.callbacks.mine._target_=mine.Mine"]
    done = attnsvm(*grid, cwd=tmp_path, env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 missing of 2 runs" in done.stderr
    assert "Traceback" not in done.stderr
