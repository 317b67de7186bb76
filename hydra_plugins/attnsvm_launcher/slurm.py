"""SLURM through submitit, for clusters with and without accounting.

submitit waits for the result file of a job, or for its end according to `sacct`; without accounting
it waits for a killed job forever. Here the queue is asked: a job is over when it has left it. A
result file alone does not tell: a job that was requeued has one from its first start. The result of
a job is read from its record on disk: nothing is unpickled. A cell that is in the queue already,
submitted by another driver, is not submitted again: its job is followed. The name of a job tells
its cells: they are noted under it before the job is submitted, so no kill of a driver hides them.
"""

import getpass
import hashlib
import json
import logging
import re
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, filter_overrides
from hydra.errors import HydraException
from omegaconf import DictConfig

from attnsvm.config import ConfigError
from attnsvm.config.compose import validated
from attnsvm.config.identity import run_name
from attnsvm.record import CorruptRecordError, locked, read_json, write_json
from hydra_plugins.attnsvm_sweeper._cells import Cells, overrides_of

try:
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
except ImportError:  # without the extra `slurm` this launcher does not exist
    SlurmLauncher = object

log = logging.getLogger(__name__)

Job = tuple[int, Cells]
"""Number of a job; and its cells."""

NOTES = ".submitit"
"""The folder in that of the sweep with the logs of the jobs, and notes of the cells they run."""

SUBMISSION_S = 120.0
"""Seconds to wait for another driver that is submitting jobs of the same sweep."""

ASK_S, ATTEMPTS = (2.0, 30.0), 5
"""Least and largest number of seconds between two questions to the queue; and the number of times
that SLURM is asked for its queue before jobs are submitted."""


class Slurm(SlurmLauncher):  # type: ignore[misc]
    """One SLURM job for every run, as arrays."""

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Submit the runs and wait until each has ended or left the queue.

        ConfigError, with SLURM's message, if the cluster can never run the jobs.
        """
        executor, compose = self._executor(), self.hydra_context.config_loader.load_sweep_config
        # jobs of several cells are our own sweeper's
        self.packs: dict[int, Job] = getattr(self.task_function, "packs", {})
        jobs = list[Job]()
        for number, overrides in enumerate(job_overrides, start=initial_job_idx):
            cell = list(overrides)
            cells = (
                self.packs[number][1] if self.packs else _named(compose(self.config, cell), cell)
            )
            jobs.append((number, cells))
        waiting = set[str]()
        try:
            limit = _answer("scontrol", "show", "config").stdout
            match = re.search(r"MaxArraySize\s*=\s*(\d+)", limit)
            size = max(1, int(match[1]) - 1) if match else 1000
            for begin in range(0, len(jobs), size):
                while not self._submitted(executor, jobs[begin : begin + size], waiting):
                    wait(waiting, executor.folder)
            wait(waiting, executor.folder)
        except KeyboardInterrupt:
            log.warning("%d SLURM jobs keep running; stop them with scancel", len(waiting))
            raise
        return [JobReturn(overrides=job, status=JobStatus.COMPLETED) for job in job_overrides]

    def _submitted(self, executor: Any, chunk: list[Job], waiting: set[str]) -> bool:
        """Submit the cells of an array of jobs that no job in the queue is to run.

        The names of all jobs of these cells are added to `waiting`. Return whether SLURM took them;
        else it may when the jobs in `waiting` are over.
        """
        notes = Path(self.config.hydra.sweep.dir) / NOTES
        notes.mkdir(parents=True, exist_ok=True)
        with locked(notes, SUBMISSION_S):
            others = noted(notes, answered_queue())
            for name in sorted(
                {others[cell] for _, cells in chunk for cell in cells.keys() & others.keys()}
            ):
                log.info("SLURM job %s was submitted by another driver: following it", name)
                waiting.add(name)
            of_jobs = (
                (n, {c: of for c, of in cells.items() if c not in others}) for n, cells in chunk
            )
            jobs = [(number, left) for number, left in of_jobs if left]
            if jobs:
                try:
                    name = note(notes, self.params["name"], [list(cells) for _, cells in jobs])
                    executor.update_parameters(name=name)
                    waiting |= self._map(executor, jobs)
                except Exception as error:
                    if not waiting:
                        raise ConfigError(f"hydra.launcher: SLURM rejects it: {error}") from error
                    log.warning("SLURM takes no more jobs now (%s): waiting for others", error)
                    return False
        return True

    def _map(self, executor: Any, jobs: list[Job]) -> set[str]:
        """Submit an array of jobs and return their names in the queue."""
        arguments = []
        for number, cells in jobs:
            overrides = next(iter(cells.values()))
            if self.packs:
                self.packs[number] = self.packs[number][0], cells
                overrides = overrides_of(cells)
            id_, state = f"job_id_for_{number}", Singleton.get_state()
            arguments.append((overrides, "hydra.sweep.dir", number, id_, state))
        submitted = executor.map_array(self, *zip(*arguments, strict=True))
        names = [str(job.job_id) for job in submitted]
        for name, (_, cells) in zip(names, jobs, strict=True):
            cell = " ".join(filter_overrides(next(iter(cells.values()))))
            log.info("SLURM job %s, %d runs: %s", name, len(cells), cell)
        return set(names)

    def _executor(self) -> Any:
        """Return submitit's executor with the parameters of hydra.launcher."""
        import submitit

        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

        params = dict(self.params)
        for name in ("nodes", "tasks_per_node"):
            if params[name] != 1:
                must = "must be 1; more tasks would repeat the same run"
                raise ConfigError(f"hydra.launcher.{name}={params[name]}: {must}")
        limit_s, delay_s = 60 * params["timeout_min"], params["signal_delay_s"]
        if delay_s >= limit_s:
            must = f"must be < {limit_s} s, the time limit"
            raise ConfigError(f"hydra.launcher.signal_delay_s={delay_s}: {must}")
        try:
            executor = submitit.AutoExecutor(
                cluster="slurm",
                folder=params.pop("submitit_folder"),
                slurm_max_num_timeout=params.pop("max_num_timeout"),
            )
        except RuntimeError as error:
            raise ConfigError(f"hydra/launcher: {error}") from error
        shared = BaseQueueConf.__dataclass_fields__
        executor.update_parameters(
            **{name if name in shared else f"slurm_{name}": v for name, v in params.items()}
        )
        return executor


def _named(composed: DictConfig, cell: list[str]) -> Cells:
    """Return a cell by the name of its run."""
    return {run_name(validated(composed)): cell}


def _answer(*command: str, timeout: int | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)


# --- the queue ------------------------------------------------------------------------------------


Queue = dict[str, tuple[str, str, str]]
"""Job -> its state, the reason, and its name."""


def queue() -> Queue | None:
    """Return the user's jobs; None if SLURM does not answer."""
    command = ["squeue", "--array", "--noheader", "--all", "--user", getpass.getuser()]
    try:
        answer = _answer(*command, "--format=%i|%T|%r|%j", timeout=60)
    except subprocess.TimeoutExpired:
        return None
    if answer.returncode:
        log.warning("squeue does not answer: %s", answer.stderr.strip())
        return None
    rows = (line.split("|", 3) for line in answer.stdout.splitlines() if line.count("|") >= 3)
    return {job: (state, reason, name) for job, state, reason, name in rows}


def answered_queue() -> Queue:
    """Return the jobs of the user as soon as SLURM answers.

    HydraException if it does not: cells in the queue could be submitted a second time.
    """
    for _ in range(ATTEMPTS):
        if (in_queue := queue()) is not None:
            return in_queue
        time.sleep(ASK_S[0])
    raise HydraException("squeue does not answer: nothing is submitted; run the command again")


def note(folder: Path, prefix: str, jobs: list[list[str]]) -> str:
    """Write down the cells of each job of an array; return the name to submit it by.

    The name begins with `prefix` and tells the sweep and the cells.
    """
    text = json.dumps([str(folder.resolve()), jobs])
    name = f"{prefix}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    write_json(folder / f"{name}.json", {"jobs": jobs})
    return name


def noted(folder: Path, in_queue: Queue) -> dict[str, str]:
    """Return cell -> job of the cells that jobs in the queue are to run."""
    job_of = dict[str, str]()
    for job, (*_, name) in sorted(in_queue.items()):
        try:
            cells = read_json(folder / f"{name}.json")["jobs"][int(job.partition("_")[2] or 0)]
            job_of |= {str(cell): job for cell in cells}
        except (FileNotFoundError, NotADirectoryError):
            continue  # a job of another sweep
        except (CorruptRecordError, OSError, LookupError, TypeError, ValueError) as error:
            log.warning("a note of submitted jobs cannot be read: %s", error)
    return job_of


def wait(waiting: set[str], folder: Path) -> None:
    """Wait until every job, by its name, is over; remove such jobs from `waiting`.

    submitit's files of the jobs lie in `folder`.
    """
    from submitit.core.utils import JobPaths

    begin, logged = time.monotonic(), ""
    least, most = ASK_S
    while waiting:
        time.sleep(min(most, max(least, (time.monotonic() - begin) / 20)))
        if (in_queue := queue()) is None:
            continue
        for name in waiting - in_queue.keys():
            waiting.remove(name)
            paths = JobPaths(folder, name)
            if not paths.result_pickle.exists():
                message = "SLURM job %s left the queue without a result; see %s"
                log.warning(message, name, paths.stderr)
        reasons = Counter(in_queue[name][1] for name in waiting if in_queue[name][0] == "PENDING")
        words = (f"{n} SLURM jobs pending ({reason})" for reason, n in reasons.most_common())
        if (why := ", ".join(words)) not in ("", logged):
            log.info(why)
            logged = why
