"""Several cells in one job: each with its own record, log, failure and lock."""

import json
import os
import signal
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from attnsvm.record.state import TABLES
from tests.command import LATEST, SMALL, ran, with_callback
from tests.faults import run_states

QUICK = ("optimizer.steps=5", *SMALL[:4])


@pytest.mark.full
def test_packed_cells_leave_what_single_ones_leave(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    number = 'open("jobs", "a").write(f"{config.seed} {config.hydra.job.num}\\n")'
    mine = with_callback(number)
    grid = ["-m", *QUICK, "seed=0,10,20,10"]
    ran(*grid, "hydra.sweep.dir=single")
    more = ["hydra.sweeper.cells_per_job=2", "hydra/launcher=joblib", mine]
    done = ran(*grid, *more, "hydra.sweep.dir=packed", path=Path())
    assert "1 of 4 runs are equal to others: each runs once" in done.stdout
    assert "3 runs in 2 jobs" in done.stdout
    jobs = sorted((tmp_path / "jobs").read_text().splitlines())
    assert jobs == ["0 0", "10 1", "20 2"]  # once for each cell
    assert set(os.listdir(tmp_path / "packed")) == set(os.listdir(tmp_path / "single"))
    runs = [path.parent for path in sorted((tmp_path / "single").glob("*/run.json"))]
    for run in runs:
        other = tmp_path / "packed" / run.name
        assert set(os.listdir(other)) == set(os.listdir(run))
        for name in TABLES:
            assert (other / name).read_bytes() == (run / name).read_bytes()
        overrides = OmegaConf.load(other / ".hydra/overrides.yaml")
        assert json.loads((run / "run.json").read_text())["overrides"] == list(overrides)
        log = (other / "attnsvm.log").read_text()
        assert [cell.name for cell in runs if f"{cell.name}: 3" in log] == [run.name]


@pytest.mark.full
def test_a_signal_between_two_cells_ends_the_job():
    mine = with_callback("if config.seed == 99: import os; os.kill(os.getpid(), 15)")
    grid = ["-m", *QUICK, "seed=99,1,2", "hydra.sweeper.cells_per_job=3", mine]
    ran(*grid, path=Path(), code=128 + signal.SIGTERM)
    assert run_states(LATEST) == ["done", "missing", "missing"]
