"""The runs of claims and their verdicts to read: in the terminal, in Markdown, and as HTML.

Each of the runs is an ordinary sweep of `attnsvm` in a process of its own.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from attnsvm.config.version import __version__

from ..claims import READINGS, Claim, Runs
from ..report.page import render
from .derive import Entry, summary

QUIET = ("hydra/job_logging=quiet", "hydra/hydra_logging=quiet")


def runs_of(claims: Sequence[Claim]) -> list[Runs]:
    """Return the runs of some claims, those that several share once.

    ValueError: two claims give other runs the same name.
    """
    known: dict[str, Runs] = {}
    for claim in claims:
        for runs in claim.runs:
            if known.setdefault(runs.name, runs) != runs:
                must = "must have a name of their own"
                raise ValueError(f"{claim.name}: its runs {runs.name} {must}")
    return list(known.values())


def command(runs: Runs, directory: Path, overrides: Sequence[str] = ()) -> list[str]:
    """Return the words after `attnsvm` that make the records of some runs."""
    return ["-m", f"hydra.sweep.dir={directory / runs.name}", *runs.overrides, *overrides]


def perform(
    runs: Sequence[Runs], directory: Path, overrides: Sequence[str], at_once: int
) -> Generator[tuple[Runs, str], None, None]:
    """Make the records that are missing; yield runs as they end, with their error or "".

    Each is recorded in the folder `directory`/NAME; `overrides` are for all, such as another
    launcher; `at_once` processes run together, and end when this process does.
    """
    pool = ThreadPoolExecutor(at_once)
    try:
        jobs = {pool.submit(_run, command(sweep, directory, overrides)): sweep for sweep in runs}
        for job in as_completed(jobs):
            yield jobs[job], job.result()
    finally:
        pool.shutdown(cancel_futures=True)


FOLLOWER = "from attnsvm.cli.signals import follow; follow({parent}); " + (
    "from attnsvm.cli.app import main; main()"
)
"""The command `attnsvm` as a program that ends with its parent, even if that is killed."""


def _finished(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Return how a command ended."""
    return subprocess.run(
        [sys.executable, "-c", FOLLOWER.format(parent=os.getpid()), *words],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on
    )


def _run(words: Sequence[str]) -> str:
    """Run a sweep; return what it says if it fails."""
    finished = _finished([*words, *QUIET])
    return finished.stderr.strip() if finished.returncode else ""


def cost_of(runs: Runs, directory: Path, overrides: Sequence[str]) -> str:
    """Return what the dry run of some runs says of those that are not on record, and their time."""
    finished = _finished([*command(runs, directory, overrides), "dry_run=true"])
    if finished.returncode:
        return finished.stderr.strip()
    estimates = re.findall(
        r"(\d+ runs, \d+ of them pending|about .*|no estimate .*)", finished.stdout
    )
    return "; ".join(estimates)


FOLDER = Path("multirun/claims")


def sentence_of(claim: Claim, entries: Mapping[str, Entry]) -> str:
    """Return the verdict of a claim in a sentence, and whether the claim has changed since."""
    if claim.name not in entries:
        return "not tested yet"
    entry = entries[claim.name]
    changed = "" if entry.digest == claim.digest else " (the claim has changed since)"
    return entry.verdict.sentence + changed


def rendered(template: str, claims: Sequence[Claim], entries: Mapping[str, Entry]) -> str:
    """Return claims with their verdicts.

    In `claims.txt` for the terminal, `claims.md` for the site, or `claims.html`; `claim.txt` has
    all that is known of each.
    """
    return render(
        template,
        rows=[
            {
                "claim": claim,
                "entry": entries.get(claim.name),
                "sentence": sentence_of(claim, entries),
            }
            for claim in claims
        ],
        readings=READINGS,
        summary=summary,
        commands=lambda claim: [shlex.join(command(runs, FOLDER)) for runs in claim.runs],
        version=__version__,
    )
