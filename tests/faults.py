"""Sweeps in a child process that is killed: the machinery of the tests of crash safety.

The runs are real but for their numbers, which are prepared: a kill is to meet the writing, which
takes milliseconds, and not the computing.
"""

import fcntl
import itertools
import os
import re
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm import experiment, record
from attnsvm.cli.job import perform
from attnsvm.config import RunConfig
from attnsvm.config.identity import run_name
from attnsvm.record import files
from attnsvm.record import folder as stream
from attnsvm.record import states as states_of
from attnsvm.record.plan import tidy
from attnsvm.record.run import TABLES
from attnsvm.record.schema import RunRecord, trial_table
from attnsvm.record.state import LOCK_FILE, NEW, holder, run_state
from tests.config.test_config import composed

STEPS = (
    *((os, name) for name in ("fsync", "replace", "chmod", "write", "mkdir", "unlink", "rmdir")),
    (fcntl, "flock"),
    (files.tempfile, "mkstemp"),
)
"""What changes the disk while a record is written."""


def configs(count: int = 3) -> list[RunConfig]:
    """Return the cells of a small sweep."""
    first = composed("data.n=2", "data.T=3", "data.d=3", "trials=3")
    return [RunConfig(**{**vars(first), "seed": 10 * k}) for k in range(count)]


def prepared(config: RunConfig) -> RunRecord:
    """Return a record that depends on the seed only."""
    rng = np.random.default_rng(config.seed)
    seeds = config.seed + np.arange(config.trials)
    history = pd.DataFrame({"seed": seeds, "step": 0, "quantity": "loss", "value": rng.random(3)})
    solutions = {"frobenius_W": rng.normal(size=(config.trials, 3, 3))}
    trials = trial_table(
        seeds, {"status": ["ok", "infeasible", "ok"], "frobenius_objective": rng.random(3)}
    )
    return RunRecord(trials, history, solutions, timings={"svm": 0.1})


def parts(config: RunConfig) -> list[RunRecord]:
    """Return the same record instance by instance."""
    return [cut(prepared(config), slice(k, k + 1)) for k in range(config.trials)]


def cut(whole: RunRecord, rows: slice) -> RunRecord:
    """Return the part of a record with these instances."""
    arrays = {name: array[rows] for name, array in whole.solutions.items()}
    return RunRecord(whole.trials[rows], whole.history[rows], arrays, whole.timings)


def sweep(folder: Path, cells: list[RunConfig]) -> None:
    """Do what the driver does with the cells that are not done, one after the other."""
    plan = {run_name(config): [f"seed={config.seed}"] for config in cells}
    record.write_plan(folder, plan)
    record.remove_orphans(folder, older_s=0)  # no other process writes there
    for config in cells:
        run = folder / run_name(config)
        run.mkdir(exist_ok=True)
        if run_state(run).state == "done":
            tidy(run)
        else:
            perform(config, run, plan[run.name], in_sweep=True, rerun=True)


def in_child(work: Callable[[], None]) -> int:
    """Start `work` in a child process; return its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        experiment.parts = parts
        stream.IN_MEMORY_BYTES = 64  # the arrays of a large run wait in a file
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def finished(child: int) -> int:
    """Wait for a child; return its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(step: int) -> None:
    """Make this process kill itself before the `step`-th step."""
    steps = itertools.count(1)

    def deadly(original):
        def call(*args, **kwargs):
            if next(steps) == step:
                _torn(original, args)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return call

    for owner, name in STEPS:
        setattr(owner, name, deadly(getattr(owner, name)))


def _torn(original, args) -> None:
    """Leave half of what is being written: what a machine that loses power may leave."""
    if original.__name__ == "fsync":
        with suppress(OSError):
            os.ftruncate(args[0], os.fstat(args[0]).st_size // 2)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the tables of all runs of a sweep."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for name in TABLES
        for path in sorted(folder.glob(f"*/{name}"))
    }


def written(folder: Path) -> dict[Path, int]:
    """Return when the record of each run of a sweep was written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("*/run.json")}


def litter(folder: Path) -> list[Path]:
    """Return temporary files and locks that were left."""
    left = (LOCK_FILE, NEW)
    return [p for p in folder.rglob("*") if p.name.endswith(".tmp") or p.name in left]


OWNER = re.compile(r"process (\d+) on .*?(?:, SLURM job (\w+))?, started")


def owners(folder: Path) -> list[tuple[int, str]]:
    """Return process and SLURM job of every run of a sweep that is in work."""
    paths = folder.iterdir() if folder.exists() else ()
    locks = [holder(path) for path in paths if path.is_dir() and not path.name.startswith(".")]
    run_states = [OWNER.match(lock[0]) for lock in locks if lock is not None and lock[1]]
    return [(int(first[1]), first[2] or "") for first in run_states if first]


def states(folder: Path, cells: list[RunConfig]) -> list[str]:
    """Return the states of the runs."""
    return [run_state(folder / run_name(config)).state for config in cells]


def run_states(folder: Path) -> list[str]:
    """Return the states of all runs of a sweep, sorted."""
    return sorted(state.state for state in states_of(folder).values())


def refusing(monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    """Let the system refuse to open files of that name."""
    original = os.open

    def opened(path, *arguments, **options):
        if Path(os.fspath(path)).name == name:
            raise OSError(code, os.strerror(code), os.fspath(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", opened)
