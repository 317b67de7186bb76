"""Sweeps on a real SLURM: two nodes, no accounting, every way in which a job can end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnsvm.record import states
from attnsvm.record.run import TABLES
from tests.command import DRIVER_LOG, LATEST, SMALL, begun, environment, ran, until
from tests.faults import owners, run_states
from tests.quick import refusals
from tests.slurm.cluster import NODES, cluster, empty_queue, lacking

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(bool(lacking()), reason=f"no SLURM here: {lacking()}"),
]

ON_CPUS = ("hydra/launcher=slurm_cpu", "hydra.launcher.mem_gb=1")
LONG = ("optimizer.steps=100000000", "optimizer.record_every=100000000", "trials=1")
"""A run of hours."""


@pytest.fixture(scope="module")
def of_cluster(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def slurm(of_cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield of_cluster
    empty_queue(of_cluster)  # a test that failed leaves jobs to no other one


def output(slurm, *command):
    return subprocess.run(
        command, env=slurm, capture_output=True, text=True, check=True, timeout=30
    ).stdout


def started(slurm, *words):
    """Begin a sweep; return its driver, and process and job of its first run."""
    driver = begun(*words, *ON_CPUS, env=slurm)
    until(lambda: LATEST.exists() and owners(LATEST))
    return driver, *owners(LATEST)[0]


def test_a_sweep_is_the_same_as_with_the_basic_launcher(slurm):
    grid = ["-m", "data.d=3,4", *SMALL[:3], SMALL[4]]
    ran(*grid, "hydra.sweep.dir=basic")
    ran(*grid, *ON_CPUS, "hydra.sweep.dir=slurm", env=slurm)
    files = [f"{run}/{name}" for run in states(Path("basic")) for name in TABLES]
    files += [f"tables/{path.name}" for path in Path("basic/tables").iterdir()]
    assert len(files) >= 8
    for name in files:
        assert Path("basic", name).read_bytes() == Path("slurm", name).read_bytes(), name
    again = ran(*grid, *ON_CPUS, "hydra.sweep.dir=slurm", env=slurm)
    assert "SLURM job" not in again.stdout


def test_the_gpu_preset_is_scheduled_on_gpus_of_both_nodes(slurm, tmp_path):
    grid = ["-m", "data.d=3,4", *SMALL[:3], SMALL[4], "hydra/launcher=slurm_gpu"]
    grid += ["hydra.sweeper.cells_per_job=1", "device=cpu"]
    ran(*grid, "hydra.launcher.mem_gb=1", env=slurm)
    used = [json.loads(p.read_text())["slurm"] for p in tmp_path.rglob("run.json")]
    assert {run["node"] for run in used} == set(NODES)
    assert [run["gpus"] for run in used] == ["0", "0"]
    assert [run["cpus"] for run in used] == ["2", "2"]


def test_jobs_that_are_killed_are_lost_and_the_others_are_not(slurm):
    grid = ["-m", "data.d=3,4", "data.n=2", "data.T=2", "trials=1", "optimizer.steps=20,100000000"]
    grid += ["optimizer.record_every=100000000", "device=cpu"]
    driver = begun(*grid, *ON_CPUS, env=slurm)
    # the two short runs end, the two long ones are in work at once, on two nodes
    until(lambda: (LATEST / "sweep.json").exists() and run_states(LATEST).count("done") == 2)
    until(lambda: len(owners(LATEST)) == 2)
    for pid, _ in owners(LATEST):
        os.kill(pid, signal.SIGKILL)
    assert driver.wait(60) == 1
    assert run_states(LATEST) == ["done", "done", "lost", "lost"]
    lost = [s for s in states(LATEST).values() if s.state == "lost"]
    assert all("SLURM job" in s.reason for s in lost)
    log = DRIVER_LOG.read_text()
    assert "left the queue without a result" in log
    assert "4 runs: 2 done, 2 lost" in log


def test_scancel_of_a_running_and_of_a_pending_job(slurm):
    grid = ["-m", "seed=0,1", *LONG, "hydra.launcher.array_parallelism=1"]
    driver, _, job = started(slurm, *grid)
    for run in (1, 0):
        output(slurm, "scancel", f"{job.split('_')[0]}_{run}")
    assert driver.wait(60) == 1
    assert run_states(LATEST) == ["interrupted", "missing"]


def start_again(slurm, job):
    """Start a job that was requeued; by itself SLURM waits for two minutes."""
    asked = ("squeue", f"--jobs={job}", "--noheader", "--format=%T %r")
    until(lambda: output(slurm, *asked).strip() == "PENDING BeginTime", 60)
    output(slurm, "scontrol", "update", f"JobId={job}", "StartTime=now")


@pytest.mark.parametrize("cause", ["scontrol", "node"])
def test_a_driver_follows_a_job_that_is_requeued(cause, slurm):
    """By hand, or by SLURM as its node goes down, which returns by itself.

    The first start leaves a record and, as it is not in a compiled call, a result file; neither is
    the end of the job.
    """
    driver, pid, job = started(slurm, "-m", "head=mlp", "seed=0", *LONG)
    if cause == "scontrol":
        output(slurm, "scontrol", "requeue", job)
    else:
        node = output(slurm, "scontrol", "show", "job", job).partition("BatchHost=")[2].split()[0]
        output(slurm, "scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    until(lambda: run_states(LATEST) == ["interrupted"], 60)
    if cause == "scontrol":
        until(lambda: list(LATEST.glob(".submitit/**/*_result.pkl")), 30)
    time.sleep(10)  # the driver asks the queue several times
    assert driver.poll() is None
    start_again(slurm, job)
    until(lambda: owners(LATEST) and owners(LATEST)[0][0] != pid, 90)
    output(slurm, "scancel", job)
    assert driver.wait(60) == 1
    assert run_states(LATEST) == ["interrupted"]


@pytest.mark.parametrize("pack", [1, 2])
@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
def test_a_second_driver_follows_what_is_in_the_queue(is_killed, pack, slurm, tmp_path):
    """The first one is killed just after its submission, or goes on."""
    grid = ["-m", "seed=0,10,20", *SMALL, *ON_CPUS, f"hydra.sweeper.cells_per_job={pack}"]
    grid.append("+hydra.launcher.additional_parameters={hold:true}")
    jobs, log = (3 if pack == 1 else 2), DRIVER_LOG
    if is_killed:
        (tmp_path / "kill.py").write_text(KILLED)
        words, env = [sys.executable, "kill.py", *grid], environment(slurm)
        done = subprocess.run(words, env=env, check=False, timeout=120)
        assert done.returncode == -signal.SIGKILL
        drivers = []
    else:
        drivers = [begun(*grid, env=slurm)]
    until(lambda: len(output(slurm, "squeue", "--array", "--noheader").splitlines()) == jobs)
    drivers.append(begun(*grid, env=slurm))
    until(lambda: log.read_text().count("following it") == jobs)
    (array,) = set(output(slurm, "squeue", "--noheader", "--format=%F").split())
    output(slurm, "scontrol", "release", array)
    assert {driver.wait(120) for driver in drivers} == {0}
    assert run_states(LATEST) == ["done"] * 3


KILLED = """
import os, signal, submitit
from attnsvm.cli.app import main

submit = submitit.AutoExecutor.map_array

def killed(*args):
    submit(*args)
    os.kill(os.getpid(), signal.SIGKILL)

submitit.AutoExecutor.map_array = killed
main()
"""


def test_a_job_that_reaches_its_time_limit_is_interrupted(slurm):
    # SLURM may send its signal a minute early: with one minute, before the run has begun
    limit = ["hydra.launcher.timeout_min=2", "hydra.launcher.signal_delay_s=20"]
    driver = begun("-m", "seed=0", *LONG, *ON_CPUS, *limit, env=slurm)
    assert driver.wait(300) == 1
    assert run_states(LATEST) == ["interrupted"]


@pytest.mark.parametrize(("request_", "words"), refusals("slurm"))
def test_what_the_cluster_cannot_give_is_refused_at_once(request_, words, slurm):
    done = ran("-m", "seed=0,1", *SMALL, *ON_CPUS, request_, env=slurm, code=2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not output(slurm, "squeue", "--noheader")
