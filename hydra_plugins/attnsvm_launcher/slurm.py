"""SLURM through submitit, for clusters with and without accounting.

submitit waits for the result file of a job, or for its end according to `sacct`; without accounting
it waits for a killed job forever. Here a job has ended when its result file exists or when it has
left the queue. Its result is read from its record on disk: nothing is unpickled.
"""

# No `from __future__ import annotations`: see attnsvm_sweeper.

import getpass
import logging
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, filter_overrides

try:
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
except ImportError:  # without the extra `slurm` this launcher does not exist
    SlurmLauncher = object

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two checks for result files."""

SHORT_MIN = 5
"""Time limit in minutes below which the signal before the end costs a large part of the time."""


class Slurm(SlurmLauncher):  # type: ignore[misc]
    """One SLURM job for every run, as arrays."""

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Submit the runs and wait until each has ended or left the queue.

        Raises
        ------
        ConfigError
            If the cluster can never run the jobs; the message is that of SLURM.
        """
        self._check()
        executor = self._executor()
        _try_submission(executor)
        arguments = [
            (list(overrides), "hydra.sweep.dir", i, f"job_id_for_{i}", Singleton.get_state())
            for i, overrides in enumerate(job_overrides, start=initial_job_idx)
        ]
        waiting: dict[str, Any] = {}
        for chunk in _chunks(arguments, _array_size()):
            try:
                jobs = executor.map_array(self, *zip(*chunk, strict=True))
            except Exception as error:
                if not waiting:
                    raise _refused(str(error)) from error
                log.warning("SLURM accepts no more jobs now (%s); waiting for those queued", error)
                _wait(waiting)
                jobs = executor.map_array(self, *zip(*chunk, strict=True))
            for job, (overrides, *_) in zip(jobs, chunk, strict=True):
                log.info("SLURM job %s: %s", job.job_id, " ".join(filter_overrides(overrides)))
                waiting[job.job_id] = job
        try:
            _wait(waiting)
        except KeyboardInterrupt:
            log.warning("%d SLURM jobs keep running; stop them with scancel", len(waiting))
            raise
        return [
            JobReturn(overrides=overrides, status=JobStatus.COMPLETED, _return_value=None)
            for overrides in job_overrides
        ]

    def _check(self) -> None:
        from attnsvm.config import ConfigError

        for name in ("nodes", "tasks_per_node"):
            if self.params[name] != 1:
                raise ConfigError(
                    f"hydra.launcher.{name}={self.params[name]}: must be 1; more tasks would "
                    f"repeat the same run"
                )
        limit_s, delay_s = 60 * self.params["timeout_min"], self.params["signal_delay_s"]
        if delay_s >= limit_s:
            raise ConfigError(
                f"hydra.launcher.signal_delay_s={delay_s}: must be < {limit_s} s, the time "
                f"limit: the run would be stopped at its start"
            )
        if self.params["timeout_min"] < SHORT_MIN:
            log.warning("time limit %d s: runs are stopped after %d s", limit_s, limit_s - delay_s)

    def _executor(self) -> Any:
        """Return submitit's executor with the parameters of hydra.launcher."""
        import submitit

        from attnsvm.config import ConfigError
        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

        shared = set(BaseQueueConf.__dataclass_fields__)
        own = {"submitit_folder", "max_num_timeout"}
        try:
            executor = submitit.AutoExecutor(
                cluster="slurm",
                folder=self.params["submitit_folder"],
                slurm_max_num_timeout=self.params["max_num_timeout"],
            )
        except RuntimeError as error:
            raise ConfigError(f"hydra/launcher: {error}") from error
        executor.update_parameters(
            **{
                name if name in shared else f"slurm_{name}": value
                for name, value in self.params.items()
                if name not in own
            }
        )
        return executor


def _refused(words: str) -> Exception:
    from attnsvm.config import ConfigError

    lines = [line.removeprefix("sbatch: ") for line in words.splitlines() if line.strip()]
    return ConfigError(f"hydra.launcher: SLURM rejects the request: {'; '.join(lines)}")


def _try_submission(executor: Any) -> None:
    """Raise ConfigError if the cluster would reject the job, or never start it."""
    text = executor._executor._make_submission_file_text("true", "trial")
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
        script.write(text)
        script.flush()
        asked = ["sbatch", "--test-only", script.name]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    told = answer.stderr.strip()
    if answer.returncode or "allocation failure" in told:
        raise _refused(told)


def _array_size() -> int:
    """Return the largest number of jobs in one array of the cluster."""
    answer = subprocess.run(
        ["scontrol", "show", "config"], capture_output=True, text=True, check=False
    )
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", answer.stdout)
    return max(1, int(found.group(1)) - 1) if found else 1000


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _wait(waiting: dict[str, Any]) -> None:
    """Wait until every job has ended or left the queue; remove such jobs from `waiting`."""
    begin = asked = time.monotonic()
    told = ""
    while waiting:
        for name in [name for name, job in waiting.items() if _ended(job)]:
            del waiting[name]
        now = time.monotonic()
        if waiting and now - asked >= min(30.0, max(2.0, (now - begin) / 20)):
            asked, queue = now, _queue()
            if queue is not None:
                _drop_gone(waiting, queue)
                if (why := _pending(waiting, queue)) not in ("", told):
                    log.info(why)
                    told = why
        time.sleep(LOOK_S if waiting else 0)


def _ended(job: Any) -> bool:
    ended: bool = job.paths.result_pickle.exists()
    return ended


def _queue() -> dict[str, tuple[str, str]] | None:
    """Return job -> (state, reason) of the user's jobs; None if SLURM does not answer."""
    asked = ["squeue", "--array", "--noheader", "--all", "--user", getpass.getuser()]
    try:
        answer = subprocess.run(
            [*asked, "--format=%i|%T|%r"], capture_output=True, text=True, check=False, timeout=60
        )
    except subprocess.TimeoutExpired:
        return None
    if answer.returncode:
        log.warning("squeue does not answer: %s", answer.stderr.strip())
        return None
    rows = (line.split("|", 2) for line in answer.stdout.splitlines() if line.count("|") >= 2)
    return {name: (state, reason) for name, state, reason in rows}


def _drop_gone(waiting: dict[str, Any], queue: dict[str, tuple[str, str]]) -> None:
    for name, job in list(waiting.items()):
        if name not in queue:
            if not _ended(job):
                stderr = Path(job.paths.stderr)
                log.warning("SLURM job %s left the queue without a result; see %s", name, stderr)
            del waiting[name]


def _pending(waiting: dict[str, Any], queue: dict[str, tuple[str, str]]) -> str:
    """Return why jobs are still pending."""
    reasons = Counter(
        reason for name in waiting for state, reason in [queue.get(name, ("", ""))]
        if state == "PENDING"
    )  # fmt: skip
    return ", ".join(f"{n} SLURM jobs pending ({reason})" for reason, n in reasons.most_common())
