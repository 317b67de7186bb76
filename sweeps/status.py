"""The progress of a sweep, read from its folder, so that it works with every launcher.

`attnsvm-status DIR`: the state of every run, and the reason, as a table.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attnsvm import record
from attnsvm.config.words import MEANINGS
from attnsvm.display.pace import doing, say, speaking
from attnsvm.record.plan import or_latest


@contextmanager
def progress(directory: Path, pending: Iterable[str], done: int) -> Iterator[None]:
    """Tell during the block how many of the runs `pending`, by folder name, are finished.

    `done` runs of the sweep in `directory` are done already. At the end a line is printed.
    """
    written = {name: _written(directory / name) for name in pending}
    total, begin = done + len(written), time.monotonic()
    finished: dict[str, Mapping[str, Any]] = {}

    def line() -> str:
        for name in written.keys() - finished.keys():
            if _written(directory / name) not in (None, written[name]):
                with suppress(OSError, record.CorruptRecordError):
                    finished[name] = record.read_run(directory / name)
        elapsed, left = time.monotonic() - begin, written.keys() - finished.keys()
        runs = [*finished.values()]  # another thread may add one
        states = Counter(run["state"] for run in runs)
        instances = sum(run.get("drawn", 0) for run in runs)
        locks = (directory / name / record.LOCK_FILE for name in left)
        running = sum(record.kind_of(lock) == "a file" for lock in locks)
        parts = [f"{done + states.pop('done', 0)} of {total} runs done"]
        parts += [f"{count} {state}" for state, count in sorted(states.items())]
        parts += [f"{running} running"] if running else []
        parts += [f"{instances / elapsed:.3g} instances/s"] if instances else []
        if finished and left:
            parts.append(f"{record.duration(len(left) * elapsed / len(finished))} left")
        return ", ".join(parts)

    try:
        with doing(line):
            yield
    finally:
        if total > done:
            say(f"{line()}, {record.duration(time.monotonic() - begin)} in all", sys.stderr)


def _written(folder: Path) -> int | None:
    try:
        return (folder / record.RUN_FILE).stat().st_mtime_ns
    except OSError:
        return None


def table(
    states: dict[str, record.RunState], everything: bool = False, most: int | None = None
) -> str:
    """Return a line for every run that is not done, or for every run, and the counts.

    There are at most `most` lines of runs. Then comes what to do about records that are kept. The
    last line has the number of runs in each state, and of versions of the code if several.
    """
    rows = []
    for name, state in states.items():
        if everything or state.state != "done":
            place = state.run.get("place") if state.state == "failed" else ""
            reason = f"{state.reason} ({place})" if place else state.reason
            rows.append([record.one_line(word) for word in (state.state, name, reason)])
    rows = rows[:most]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    lines = [f"{s:<{widths[0]}}  {n:<{widths[1]}}  {r}".rstrip() for s, n, r in rows]
    counts = Counter(state.state for state in states.values())
    listed = ", ".join(f"{counts[state]} {state}" for state in record.STATES if counts[state])
    codes = {state.run.get("code") for state in states.values() if state.finished}
    mixed = f"; records of {len(codes)} versions of the code" if len(codes) > 1 else ""
    after = [
        f"{state}: {what}"
        for state, what in MEANINGS["next"].items()
        if counts[state] and state in record.KEPT
    ]
    return "\n".join([*lines, *after, f"{len(states)} runs: {listed}{mixed}"])


@speaking()
def main(argv: Sequence[str] | None = None) -> int:
    """Print the states of the runs of a sweep; 0: all are finished, 1: not, 2: no sweep."""
    parser = argparse.ArgumentParser(
        prog="attnsvm-status",
        description="The state of every run of a sweep, and the reason.",
        epilog="; ".join(f"{state}: {meaning}" for state, meaning in record.STATES.items()),
    )
    add = parser.add_argument
    add("directory", type=Path, nargs="?", help="folder of a sweep, by default multirun/latest")
    add("--all", action="store_true", help="list the runs that are done as well")
    options = parser.parse_args(argv)
    try:
        states = record.states(or_latest(options.directory))
    except FileNotFoundError as error:
        sys.stderr.write(f"attnsvm-status: {error}\n")
        return 2
    sys.stdout.write(table(states, options.all) + "\n")
    return int(any(not (s.finished or s.state == "skipped") for s in states.values()))


if __name__ == "__main__":
    sys.exit(main())
