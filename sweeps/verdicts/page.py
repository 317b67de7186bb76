"""The runs of claims and their verdicts to read: in the terminal, in Markdown, and as HTML.

Each of the runs is an ordinary sweep of `attnsvm` in a process of its own.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import groupby
from pathlib import Path

from attnsvm.config.version import __version__

from ..claims import READINGS, STATED, WITHOUT_TRAINING, Claim, Runs
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


def _run(words: Sequence[str]) -> str:
    """Run a sweep; return what it says if it fails."""
    finished = subprocess.run(
        [sys.executable, "-c", FOLLOWER.format(parent=os.getpid()), *words, *QUIET],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on
    )
    return finished.stderr.strip() if finished.returncode else ""


FOLDER = Path("multirun/claims")


def terminal(claims: Sequence[Claim], entries: Mapping[str, Entry]) -> str:
    """Return a line for every claim, and how many verdicts there are of each kind."""
    rows = [(claim.name, claim.number, claim.title, said(claim, entries)) for claim in claims]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = []
    for source, part in groupby(zip(claims, rows, strict=True), key=lambda pair: pair[0].source):
        lines.append(source)
        for _, (name, number, title, verdict) in part:
            lines.append(f"  {name:<{widths[0]}}  {number:<{widths[1]}}  {title}")
            lines.append(f"  {'':<{widths[0]}}  {verdict}")
    known = [entries[claim.name].verdict for claim in claims if claim.name in entries]
    return "\n".join([*lines, f"{len(claims)} claims: {summary(known) or 'no verdict yet'}"])


def said(claim: Claim, entries: Mapping[str, Entry]) -> str:
    """Return the verdict of a claim in a sentence, and whether the claim has changed since."""
    if claim.name not in entries:
        return "not tested yet"
    entry = entries[claim.name]
    changed = "" if entry.digest == claim.digest else " (the claim has changed since)"
    return entry.verdict.sentence + changed


def markdown(claims: Sequence[Claim], entries: Mapping[str, Entry]) -> str:
    """Return the page of the documentation."""
    known = {claim.name: entries[claim.name].verdict for claim in claims if claim.name in entries}
    readings = {
        reading: [claim.name for claim in claims if claim.reading == reading]
        for reading in READINGS
    }
    verdicts = {
        reading: [known[name] for name in names if name in known]
        for reading, names in readings.items()
    }
    stated = {*readings[STATED], *readings[WITHOUT_TRAINING]}
    return render(
        "claims.md",
        claims=[(claim, entries.get(claim.name), said(claim, entries)) for claim in claims],
        readings=[
            (reading, len(names), summary(verdicts[reading]), verdicts[reading])
            for reading, names in readings.items()
        ],
        failing=[f"[{name}](#{name})" for name in known if name in stated and known[name].fails],
        commands=lambda claim: [shlex.join(command(runs, FOLDER)) for runs in claim.runs],
    )


def html(claims: Sequence[Claim], entries: Mapping[str, Entry]) -> str:
    """Return the page beside the records."""
    return render(
        "claims.html",
        claims=[(claim, entries.get(claim.name), said(claim, entries)) for claim in claims],
        version=__version__,
        summary=summary([entry.verdict for entry in entries.values()]),
        runs=[runs.name for runs in runs_of(claims)],
    )
