"""SLURM through submitit, for clusters with and without accounting.

submitit waits for the result file of a job, or for its end according to `sacct`; without accounting
it waits for a killed job forever. Here the queue is asked: a job is over when it has left it. A
result file alone does not tell: a job that was requeued has one from its first start. The result of
a job is read from its record on disk: nothing is unpickled. The jobs of a sweep have one name: if
another driver has submitted some, they are followed, and what they leave is submitted then.
"""

import getpass
import hashlib
import logging
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, filter_overrides
from hydra.errors import HydraException

from attnsvm.config import ConfigError
from attnsvm.config.compose import validated
from attnsvm.config.identity import run_name
from attnsvm.record import locked, run_state

try:
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
except ImportError:  # without the extra `slurm` this launcher does not exist
    SlurmLauncher = object

log = logging.getLogger(__name__)

Job = tuple[int, Sequence[str]]
"""Number and overrides of a job."""

LOGS = ".submitit"
"""The folder in that of the sweep with the logs of the jobs."""

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
        executor, jobs = self._executor(), list(enumerate(job_overrides, start=initial_job_idx))
        _try_submission(executor)
        self.follows, waiting = False, set[str]()
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

    def _submitted(self, executor: Any, jobs: list[Job], waiting: set[str]) -> bool:
        """Submit an array of jobs, if no other driver's are in the queue and SLURM takes it.

        Return whether it was; else it may be when the jobs in `waiting`, by their names, are over.
        """
        folder = Path(self.config.hydra.sweep.dir)
        name = f"{self.params['name']}-{hashlib.sha256(bytes(folder.resolve())).hexdigest()[:12]}"
        (folder / LOGS).mkdir(parents=True, exist_ok=True)
        with locked(folder / LOGS, SUBMISSION_S):
            others = {job for job, (*_, of) in answered_queue().items() if of == name} - waiting
            for job in sorted(others):
                log.info("SLURM job %s was submitted by another driver: following it", job)
            self.follows |= bool(others)
            waiting |= others
            if others:
                return False
            left = [job for job in jobs if not (self.follows and self._is_done(folder, *job))]
            try:
                executor.update_parameters(name=name)
                waiting |= self._map(executor, left) if left else set()
            except Exception as error:
                if not waiting:
                    raise _refused(error) from error
                log.warning("SLURM takes no more jobs now (%s): waiting for others", error)
                return False
        return True

    def _is_done(self, folder: Path, number: int, overrides: Sequence[str]) -> bool:
        """Whether all cells of a job are on record."""
        cells = getattr(self.task_function, "packs", {}).get(number, (0, ()))[1]  # of our sweeper
        if not cells:
            compose = self.hydra_context.config_loader.load_sweep_config
            cells = [run_name(validated(compose(self.config, list(overrides))))]
        return all(run_state(folder / cell, verify=False).state == "done" for cell in cells)

    def _map(self, executor: Any, jobs: list[Job]) -> set[str]:
        """Submit an array of jobs and return their names in the queue."""
        state = Singleton.get_state()
        arguments = [(words, "hydra.sweep.dir", n, f"job_id_for_{n}", state) for n, words in jobs]
        submitted = executor.map_array(self, *zip(*arguments, strict=True))
        names = [str(job.job_id) for job in submitted]
        for name, (_, words) in zip(names, jobs, strict=True):
            log.info("SLURM job %s: %s", name, " ".join(filter_overrides(words)))
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


def _refused(words: object) -> ConfigError:
    return ConfigError(f"hydra.launcher: SLURM rejects it: {words}")


def _try_submission(executor: Any) -> None:
    """Raise ConfigError if the cluster would reject the job, or never start it."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write(executor._executor._make_submission_file_text("true", "trial"))
        script.flush()
        answer = _answer("sbatch", "--test-only", script.name)
    if answer.returncode or "allocation failure" in answer.stderr:
        raise _refused(answer.stderr.strip())


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
