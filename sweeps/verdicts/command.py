"""`attnsvm-claims`: list the claims of the papers with their verdicts, show, or run them."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from attnsvm.cli.errors import INTERRUPTED
from attnsvm.cli.signals import SIGNALS, stopping_with_children
from attnsvm.config.names import did_you_mean
from attnsvm.display.pace import doing, each, speaking
from attnsvm.record import one_line, write_atomically

from ..claims import Claim, all_claims
from .derive import COMMITTED, FILE, Entry, latest, read, verdict, write
from .page import FOLDER, cost_of, perform, rendered, runs_of

_tell = partial(print, flush=True)


@speaking()
def main(argv: Sequence[str] | None = None) -> int:
    """List the claims, show some of them, or run and judge these.

    Returns 0 if every run has a record, 1 if not, 2 if the command cannot be followed, and after a
    signal 128 and its number.
    """
    options = _parser().parse_args(argv)
    claims = all_claims()
    try:
        if options.docs:
            return _write_docs(claims, options.directory)
        if options.run and not options.claim:
            raise ValueError("--run: must be given the names of claims")
        if not options.claim:
            _tell(rendered("claims.txt", claims, latest(options.directory)))
            return 0
        chosen = _chosen(options.claim, claims)
    except (ValueError, RuntimeError) as error:
        sys.stderr.write(f"attnsvm-claims: {one_line(error)}\n")
        return 2
    try:
        with stopping_with_children((*SIGNALS, signal.SIGINT)):
            return _judge(chosen, options) if options.run else _show(chosen, options)
    except KeyboardInterrupt as stop:
        sys.stderr.write(f"attnsvm-claims: {INTERRUPTED}\n")
        return 128 + getattr(stop, "signum", signal.SIGINT)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attnsvm-claims",
        description="The claims of the papers with their verdicts; with names, all about them.",
        epilog="With --run, runs that are on record are not run again; attnsvm-verify DIR/RUNS "
        "proves them.",
    )
    add = parser.add_argument
    add("claim", nargs="*", help="names of claims, or of papers as 2308.16898; none: list all")
    add("--run", action="store_true", help="run and judge the claims that are named")
    add("--directory", type=Path, default=FOLDER, help="folder of the runs, %(default)s")
    cores, processes = len(os.sched_getaffinity(0)), "processes at once, by default one a core"
    add("--at-once", type=int, default=cores, metavar="N", help=processes)
    runs = "for all runs, such as hydra/launcher=slurm_cpu"
    add("--override", action="append", default=[], metavar="FIELD=VALUE", help=runs)
    add("--docs", action="store_true", help="write the verdicts that come with attnsvm")
    return parser


def _chosen(words: Sequence[str], claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims that the words name; ValueError: a word names none."""
    known = [*(claim.name for claim in claims), *sorted({claim.paper for claim in claims})]
    for word in words:
        if word not in known:
            raise ValueError(
                f"{word}: {did_you_mean(word, known)}must be one of {', '.join(known)}"
            )
    return [claim for claim in claims if {claim.name, claim.paper} & set(words)]


def _show(claims: Sequence[Claim], options: argparse.Namespace) -> int:
    """Print what the claims say, their verdicts, and what it takes to judge them again."""
    _tell(rendered("claim.txt", claims, latest(options.directory)))
    for sweep in runs_of(claims):
        _tell(f"{sweep.name}: {cost_of(sweep, options.directory, options.override)}")
    _tell(f"attnsvm-claims {' '.join(options.claim)} --run   runs and judges")
    return 0


def _judge(claims: Sequence[Claim], options: argparse.Namespace) -> int:
    """Run what is missing, derive the verdicts, and write them and their page."""
    sweeps, count, failed = runs_of(claims), 0, 0
    ending = perform(sweeps, options.directory, options.override, max(1, options.at_once))
    with doing(lambda: f"{count} of {len(sweeps)} sweeps done"), closing(ending):
        for sweep, error in ending:
            count, failed = count + 1, failed + bool(error)
            outcome = f"{sweep.name} failed\n{error}" if error else sweep.name
            _tell(f"{count} of {len(sweeps)} sweeps: {outcome}")
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    judged = {
        claim.name: Entry(verdict(claim, options.directory), at, claim.digest)
        for claim in each("claim", claims)
    }
    write(options.directory / FILE, judged)
    entries = read(options.directory / FILE)
    known = [claim for claim in all_claims() if claim.name in entries]
    page = options.directory / "report.html"
    write_atomically(page, rendered("claims.html", known, entries).encode())
    _tell(rendered("claims.txt", claims, judged))
    _tell(f"wrote {options.directory / FILE} and {page}")
    return int(failed > 0)


def _write_docs(claims: Sequence[Claim], directory: Path) -> int:
    """Write the verdicts that come with attnsvm from the latest ones."""
    entries = latest(directory)
    names = [claim.name for claim in claims]
    COMMITTED.unlink(missing_ok=True)  # a claim that is gone has no verdict
    write(COMMITTED, {name: entries[name] for name in names if name in entries})
    _tell(f"wrote {COMMITTED}")
    return 0
