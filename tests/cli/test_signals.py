"""A signal to stop ends a run, on record; the same command goes on."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnsvm import experiment
from attnsvm.cli import job, signals
from attnsvm.cli.signals import SIGNALS
from attnsvm.record import states
from attnsvm.sweeps.status import main as status
from tests.command import BIN, DRIVER_LOG, LATEST, SMALL, begun, environment, ran, until
from tests.faults import configs, finished, in_child, litter, owners, run_states, sweep
from tests.quick import quick, quick_rows

LONG = ("optimizer.record_every=100000000", "data.n=2", "data.T=3", "data.d=3")
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
END_S = 60.0  # a process that has not ended by then never does


def pids(folder):
    """Return the processes that hold a run of the sweep."""
    return [pid for pid, _ in owners(folder)]


def stop(process, signum):
    """Send a signal; assert that the process ends by it."""
    process.send_signal(signum)
    assert process.wait(END_S) == 128 + signum


@pytest.mark.parametrize(("signum", "cells"), quick_rows((signal.SIGUSR2, 1), (signal.SIGTERM, 3)))
def test_a_sweep_is_interrupted_on_record_and_resumed(signum, cells, capsys):
    """Also within a job of several cells."""
    grid = ["-m", *LONG, "trials=1", f"hydra.sweeper.cells_per_job={cells}", "hydra.sweep.dir=it"]
    folder, states = Path("it"), ["done", "missing", "running"]
    driver = begun(*grid, "optimizer.steps=10,1000000000,20")
    until(lambda: (folder / "sweep.json").exists() and run_states(folder) == states)
    time.sleep(0.5)  # into the training
    stop(driver, signum)
    assert "run the same command again to resume" in DRIVER_LOG.read_text()
    assert status([str(folder)]) == 1
    printed = capsys.readouterr().out
    assert f"Interrupted: {signum.name}" in printed
    assert "3 runs: 1 done, 1 interrupted, 1 missing" in printed
    resumed = ran(*grid, "optimizer.steps=10,20")
    assert "2 runs: 1 done, 1 missing" in resumed.stdout


def alive(pids):
    return any(os.path.exists(f"/proc/{pid}") for pid in pids)


def joblib_sweep(steps, *more):
    """Begin a sweep of four runs by two workers; return the driver, and workers at work."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    grid = ["-m", *LONG, "trials=1", f"optimizer.steps={steps}", *more]
    driver = begun(*grid, *JOBLIB)
    until(lambda: len(pids(LATEST)) == 2)
    return driver, pids(LATEST)


def children(pid):
    """Return the processes that a process has started."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in files for child in path.read_text().split()]


@pytest.mark.full
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_the_runs_of_a_claim_end_with_its_command(signum, tmp_path):
    words = ["fixed_step", "--run", "--override", "optimizer.steps=1000000"]
    command, log = [str(BIN / "attnsvm-claims"), *words], tmp_path / "log"
    with log.open("w") as stream:
        claims = subprocess.Popen(command, env=environment(), stderr=stream)
    until(lambda: list(tmp_path.glob("multirun/claims/*/*/.lock")))  # a run has begun
    runs = children(claims.pid)
    assert runs
    claims.send_signal(signum)
    code = claims.wait(60)
    until(lambda: not alive(runs))
    assert not list(tmp_path.glob("multirun/claims/report.html"))
    if signum == signal.SIGKILL:
        assert code == -signum
    else:
        assert code == 128 + signum
        assert "run the same command again to resume" in log.read_text()


@pytest.mark.full
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_the_workers_of_joblib_end_with_their_driver(is_killed):
    more = ["seed=0,1,2,3", f"hydra.sweeper.cells_per_job={1 + is_killed}"]
    driver, workers = joblib_sweep(1_000_000_000, *more)
    if is_killed:
        driver.kill()
        driver.wait()
    else:
        time.sleep(2)
        stop(driver, signal.SIGTERM)
    until(lambda: not alive(workers), 10)
    assert run_states(LATEST) == ["interrupted", "interrupted", "missing", "missing"]
    assert not [path for path in litter(LATEST) if path.name == ".lock"]


IDLE = """
import os, signal
from joblib import Parallel, delayed
from attnsvm.cli.signals import follow_by_joblib
follow_by_joblib()
print(*set(Parallel(2)(delayed(os.getpid)() for _ in range(4))), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_idle_workers_end_with_a_killed_driver():
    pytest.importorskip("joblib")
    driver = subprocess.run([sys.executable, "-c", IDLE], capture_output=True, check=False)
    workers = driver.stdout.split()
    assert workers
    until(lambda: not alive(map(int, workers)), END_S)


@pytest.mark.full
def test_killed_workers_cost_the_runs_they_had_begun():
    """joblib gives up the whole sweep when a worker is killed; the sweep does not."""
    driver, workers = joblib_sweep("1000000000,2000000000,10,20")
    os.kill(workers[0], signal.SIGKILL)
    assert driver.wait(90) == 1
    assert run_states(LATEST) == ["done", "done", "lost", "lost"]
    assert "2 runs had not started" in DRIVER_LOG.read_text()


@pytest.mark.full
def test_a_hangup_is_ignored_under_nohup():
    grid = ["-m", *SMALL[:4], "seed=0,1", "optimizer.steps=300000", "optimizer.record_every=300000"]
    words = ["nohup", str(BIN / "attnsvm"), *grid]
    nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    driver = subprocess.Popen(words, env=environment(), **nowhere)
    until(lambda: pids(LATEST))
    driver.send_signal(signal.SIGHUP)
    assert driver.wait(120) == 0
    assert run_states(LATEST) == ["done", "done"]


@pytest.mark.full
def test_two_drivers_share_a_sweep():
    grid = ["-m", *SMALL, "seed=0,10,20"]
    drivers = [begun(*grid) for _ in range(2)]
    codes = [driver.wait(120) for driver in drivers]
    assert set(codes) <= {0, 1}  # 1: the other was still at a run when one had no more to do
    assert run_states(LATEST) == ["done"] * 3
    logs = [path.read_text() for path in LATEST.glob("*/attnsvm.log")]
    assert [len(re.findall(r": \d+ \w+$", log, re.M)) for log in logs] == [1] * 3  # each ended once


@pytest.mark.parametrize("signum", quick(signal.SIGUSR2, signal.SIGTERM))
def test_a_run_that_is_stuck_in_compiled_code_is_out_on_record(signum, tmp_path):
    """The main thread neither returns to Python nor takes the signal; submitit's handler is asked.

    A compiled call that the signal does not end is a sleep with the signal blocked.
    """
    cells, asked = configs(1), tmp_path / "asked"

    def stuck(config):
        (tmp_path / "begun").touch()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signum, signal.SIGALRM})
        ctypes.CDLL(None).sleep(120)
        return []

    def drive():
        def requeue(signum, frame):
            asked.touch()
            raise SystemExit(-1)

        experiment.parts, signals.STUCK_S = stuck, 0.2
        signal.signal(signal.SIGUSR2, requeue)
        sweep(tmp_path / "sweep", cells)

    child = in_child(drive)
    until((tmp_path / "begun").exists)
    time.sleep(0.2)  # into the sleep
    os.kill(child, signum)
    assert finished(child) == 128 + signum
    (state,) = states(tmp_path / "sweep").values()
    reason = f"Interrupted: {signal.Signals(signum).name}"
    assert (state.state, state.reason) == ("interrupted", reason)
    assert asked.exists() == (signum == signal.SIGUSR2)
    assert finished(in_child(lambda: sweep(tmp_path / "sweep", cells))) == 0
    assert run_states(tmp_path / "sweep") == ["done"]
    assert not litter(tmp_path / "sweep")


@pytest.mark.parametrize(
    ("signum", "before"), [(signal.SIGTERM, False), *((signum, True) for signum in SIGNALS)]
)
def test_a_signal_ends_a_run_on_record_and_after_its_last_write_undoes_nothing(
    signum, before, tmp_path
):
    def drive():
        write = job.write

        def met_by_a_signal(*args):
            if before:
                os.kill(os.getpid(), signum)
            write(*args)
            os.kill(os.getpid(), signum)

        job.write = met_by_a_signal
        signal.signal(signum, lambda signum, frame: os._exit(3))
        sweep(tmp_path / "sweep", configs(1))

    assert finished(in_child(drive)) == 3
    (state,) = states(tmp_path / "sweep").values()
    assert state.state == ("interrupted" if before else "done")
    assert state.reason == (f"Interrupted: {signum.name}" if before else "")
    assert not litter(tmp_path / "sweep")
