"""Verdicts to read: as a table in the terminal, in Markdown for the documentation, and as HTML."""

import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from attnsvm.config.version import __version__

from ..claims import READINGS, STATED, WITHOUT_TRAINING, Claim
from ..report.render import render
from .derive import Entry, summary
from .running import command, runs_of

FOLDER = Path("multirun/claims")
HUNTED = Path(__file__).parents[2] / "docs/records/hunt"
"""Counterexamples that come with attnsvm, each in a folder with the name of its claim."""


def terminal(claims: Sequence[Claim], entries: Mapping[str, Entry]) -> str:
    """Return a line for every claim, and how many verdicts there are of each kind."""
    rows = [(one.name, one.number, one.title, said(one, entries)) for one in claims]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = []
    for source, part in groupby(zip(claims, rows, strict=True), key=lambda pair: pair[0].source):
        lines.append(source)
        for _, (name, number, title, verdict) in part:
            lines.append(f"  {name:<{widths[0]}}  {number:<{widths[1]}}  {title}")
            lines.append(f"  {'':<{widths[0]}}  {verdict}")
    known = [entries[one.name].verdict for one in claims if one.name in entries]
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
    known = {one.name: entries[one.name].verdict for one in claims if one.name in entries}
    readings = {
        reading: [one.name for one in claims if one.reading == reading] for reading in READINGS
    }
    stated = {*readings[STATED], *readings[WITHOUT_TRAINING]}
    return render(
        "claims.md",
        claims=[(one, entries.get(one.name), said(one, entries)) for one in claims],
        readings=[
            (reading, len(names), summary([known[name] for name in names if name in known]))
            for reading, names in readings.items()
        ],
        failing=[f"[{name}](#{name})" for name in known if name in stated and known[name].fails],
        commands=lambda claim: [shlex.join(command(runs, FOLDER)) for runs in claim.runs],
        hunted=[path.stem for path in HUNTED.glob("*.zip")],
    )


def html(claims: Sequence[Claim], entries: Mapping[str, Entry]) -> str:
    """Return the page beside the records."""
    return render(
        "claims.html",
        claims=[(one, entries.get(one.name), said(one, entries)) for one in claims],
        version=__version__,
        summary=summary([entry.verdict for entry in entries.values()]),
        runs=[one.name for one in runs_of(claims)],
    )
