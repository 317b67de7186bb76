"""Verdicts to read: as a table in the terminal, in Markdown for the documentation, and as HTML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from attnsvm.config.version import __version__

from ..claims import READINGS, STATED, Claim
from ..report.render import render
from .derive import summary
from .running import command, runs_of
from .store import Entry

FOLDER = Path("multirun/claims")
HUNTED = Path(__file__).parents[2] / "docs/records/hunt"
"""Counterexamples that come with attnsvm, each in a folder with the name of its claim."""

HEADING = """# The claims of the papers, and what holds

Each claim is declared in `sweeps/claims`, which has a file for each paper or part of it: its
hypotheses, which are decided for every instance, its prediction, and the runs that test it. A
verdict counts instances; nothing is averaged. *holds*: on every instance that meets the hypotheses.
*fails*: on at least one, the smallest of which is named with the command that makes its record.
*never met*: no instance meets the hypotheses. *undecided*: on some, and why.

How a claim reads its paper, as we understand it: *stated* there; *stronger*: without one of the
paper's assumptions, or with more than it promises, so that its failures show where the paper's own
statement ends; *carried over* by us from another model or method, as from steps of gradient descent
to normalised ones; *ours*: in no paper.

Hypotheses are counted over all instances of the runs, also those that another hypothesis leaves
out; of networks, over the rows of all layers. On another processor single instances change sides,
most of them trained by (K, Q).

`attnsvm-claims` lists the claims. `attnsvm-claims 2308.16898` or `attnsvm-claims NAME` runs them
and derives the verdicts from the records, which `attnsvm-verify multirun/claims/RUNS` proves.
`attnsvm-claims hunt NAME` draws instances until the claim fails on one, makes that one as small as
it goes, and packs its record into one file. `python -m attnsvm.sweeps.verdicts --docs` writes this
page.
"""


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
    return entry.verdict.sentence + ("" if entry.is_of(claim) else " (the claim has changed since)")


def markdown(claims: Sequence[Claim], entries: Mapping[str, Entry]) -> str:
    """Return the page of the documentation."""
    lines = [HEADING, *_counts(claims, entries), ""]
    lines += [f"Stated, and fails: {_failing(claims, entries) or 'none'}.", ""]
    lines += _row("claim", "verdict", "statement, in words", "of", "reading"), _row(*["---"] * 5)
    for one in claims:
        place, link = f"{one.source}, {one.number}", f"[{one.name}](#{one.name})"
        lines.append(_row(link, said(one, entries), one.title, place, one.reading))
    for one in claims:
        lines += ["", *_section(one, entries.get(one.name))]
    text = "\n".join(lines)
    return text + "\n"


def _counts(claims: Sequence[Claim], entries: Mapping[str, Entry]) -> list[str]:
    """Return for each reading how many verdicts there are of each kind."""
    lines = [_row("reading", "claims", "verdicts"), _row(*["---"] * 3)]
    for reading in READINGS:
        some = [one for one in claims if one.reading == reading]
        known = [entries[one.name].verdict for one in some if one.name in entries]
        lines.append(_row(reading, str(len(some)), summary(known)))
    return lines


def _failing(claims: Sequence[Claim], entries: Mapping[str, Entry]) -> str:
    """Return links to the claims that a paper states and that fail."""
    stated = [one.name for one in claims if one.reading == STATED and one.name in entries]
    failing = [name for name in stated if entries[name].verdict.kind == "fails"]
    return ", ".join(f"[{name}](#{name})" for name in failing)


def _row(*cells: str) -> str:
    """Return a row of a Markdown table; a bar in a cell would end it."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _section(claim: Claim, entry: Entry | None) -> list[str]:
    lines = [
        f"## {claim.name}",
        "",
        f"{claim.source}, {claim.number}: {claim.title}.",
        "",
        f"    {claim.statement}",
        "",
        f"Near enough: {claim.tolerance}.",
        "",
        *(f"    attnsvm {shlex.join(command(runs, FOLDER))}" for runs in claim.runs),
    ]
    if entry is None:
        return [*lines, "", "Not tested yet."]
    verdict = entry.verdict
    lines += ["", _row("hypothesis", "yes", "no", "undecided"), _row(*["---"] * 4)]
    for name, count in verdict.hypotheses.items():
        lines.append(_row(name, *(str(count[answer]) for answer in ("yes", "no", "undecided"))))
    lines += ["", f"**Verdict** of {verdict.drawn} instances: {verdict.sentence}."]
    if verdict.smallest is not None:
        size = ", ".join(f"{key}={verdict.smallest[key]}" for key in verdict.smallest
                         if key != "command")  # fmt: skip
        lines += ["", f"Smallest of these instances on which it fails: {size}", ""]
        lines += [f"    {verdict.smallest['command']}"]
    if (HUNTED / f"{claim.name}.zip").is_file():
        lines += ["", "Found by `attnsvm-claims hunt`, smaller and proved by its record:", ""]
        lines += [f"    attnsvm-verify --retrain 1 docs/records/hunt/{claim.name}.zip"]
    return lines


def html(claims: Sequence[Claim], entries: Mapping[str, Entry]) -> str:
    """Return the page beside the records."""
    return render(
        "claims.html",
        claims=[(one, entries.get(one.name), said(one, entries)) for one in claims],
        version=__version__,
        summary=summary([entry.verdict for entry in entries.values()]),
        runs=[one.name for one in runs_of(claims)],
    )
