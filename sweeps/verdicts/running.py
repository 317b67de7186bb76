"""The runs of claims, each an ordinary sweep of `attnsvm` in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ..claims import Claim, Runs

QUIET = ("hydra/job_logging=quiet", "hydra/hydra_logging=quiet")


def runs_of(claims: Sequence[Claim]) -> list[Runs]:
    """Return the runs of some claims, those that several share once.

    ValueError: two claims give other runs the same name.
    """
    found: dict[str, Runs] = {}
    for claim in claims:
        for one in claim.runs:
            if found.setdefault(one.name, one) != one:
                raise ValueError(f"{claim.name}: its runs {one.name} must have a name of their own")
    return list(found.values())


def command(runs: Runs, directory: Path, overrides: Sequence[str] = ()) -> list[str]:
    """Return the words after `attnsvm` that make the records of some runs."""
    return ["-m", f"hydra.sweep.dir={directory / runs.name}", *runs.overrides, *overrides]


def perform(
    runs: Sequence[Runs], directory: Path, overrides: Sequence[str], at_once: int
) -> Iterator[tuple[Runs, str]]:
    """Make the records that are missing; yield runs as they end, with their error or "".

    Each is recorded in the folder `directory`/NAME; `overrides` are for all, such as another
    launcher; `at_once` processes run together.
    """
    with ThreadPoolExecutor(at_once) as pool:
        jobs = {pool.submit(_run, command(one, directory, overrides)): one for one in runs}
        for job in as_completed(jobs):
            yield jobs[job], job.result()


def _run(words: Sequence[str]) -> str:
    told = [sys.executable, "-m", "attnsvm", *words, *QUIET]
    done = subprocess.run(told, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""
