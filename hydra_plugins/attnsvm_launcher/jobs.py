"""The jobs of a sweep in SLURM's queue: who runs which cell, and whether a job is over.

A job is over when it has left the queue, on clusters with and without accounting. A result file
alone does not tell: a job that was requeued has one from its first start.
"""

import getpass
import logging
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hydra.errors import HydraException

from attnsvm.record import CorruptRecordError, read_json, write_json

log = logging.getLogger(__name__)

ASK_S = 2.0, 30.0
"""Least and largest number of seconds between two questions to the queue."""

ATTEMPTS = 5
"""Number of times that SLURM is asked for its queue before jobs are submitted."""

Queue = dict[str, tuple[str, str]]


def queue() -> Queue | None:
    """Return job -> (state, reason) of the user's jobs; None if SLURM does not answer."""
    command = ["squeue", "--array", "--noheader", "--all", "--user", getpass.getuser()]
    command.append("--format=%i|%T|%r")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return None
    if answer.returncode:
        log.warning("squeue does not answer: %s", answer.stderr.strip())
        return None
    rows = (line.split("|", 2) for line in answer.stdout.splitlines() if line.count("|") >= 2)
    return {name: (state, reason) for name, state, reason in rows}


def answered_queue() -> Queue:
    """Return the jobs of the user as soon as SLURM answers.

    Raises
    ------
    HydraException
        If it does not: cells in the queue could be submitted a second time.
    """
    for _ in range(ATTEMPTS):
        if (found := queue()) is not None:
            return found
        time.sleep(ASK_S[0])
    raise HydraException("squeue does not answer: nothing is submitted; run the command again")


def note(folder: Path, cells: Mapping[str, list[str]]) -> None:
    """Write down job -> names of its cells, the jobs of one array, beside their logs."""
    if cells:
        write_json(folder / f"{next(iter(cells)).partition('_')[0]}.json", {"jobs": cells})


def noted(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return cell -> job of the cells that jobs in the queue are to run; `names` are these jobs."""
    in_queue, found = set(names), dict[str, str]()
    for array in sorted({name.partition("_")[0] for name in in_queue}):
        try:
            jobs = read_json(folder / f"{array}.json")["jobs"]
            found |= {str(cell): job for job in jobs if job in in_queue for cell in jobs[job]}
        except FileNotFoundError:
            continue  # a job of another sweep
        except (CorruptRecordError, OSError, KeyError, TypeError) as error:
            log.warning("a note of submitted jobs cannot be read: %s", error)
    return found


def wait(waiting: dict[str, Any]) -> None:
    """Wait until every job (name -> submitit's paths) is over; remove such jobs from `waiting`."""
    begin, logged = time.monotonic(), ""
    least, most = ASK_S
    while waiting:
        time.sleep(min(most, max(least, (time.monotonic() - begin) / 20)))
        if (found := queue()) is None:
            continue
        for name in [name for name in waiting if name not in found]:
            paths = waiting.pop(name)
            if not paths.result_pickle.exists():
                message = "SLURM job %s left the queue without a result; see %s"
                log.warning(message, name, paths.stderr)
        if (why := _pending(waiting, found)) not in ("", logged):
            log.info(why)
            logged = why


def _pending(waiting: Mapping[str, Any], found: Queue) -> str:
    """Return why jobs are pending."""
    reasons = Counter(
        found[name][1] for name in waiting if name in found and found[name][0] == "PENDING"
    )
    return ", ".join(f"{n} SLURM jobs pending ({reason})" for reason, n in reasons.most_common())
