"""`attnsvm-status DIR`: the state of every run of a sweep, and the reason, as a table."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attnsvm.record import STATES, RunState, one_line, states
from attnsvm.record.plan import or_latest


def table(found: dict[str, RunState], everything: bool = False) -> str:
    """Return a line for every run that is not done, or for every run, and the counts."""
    rows = [
        tuple(map(one_line, (state.state, name, _reason(state))))
        for name, state in found.items()
        if everything or state.state != "done"
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    lines = [f"{s:<{widths[0]}}  {n:<{widths[1]}}  {r}".rstrip() for s, n, r in rows]
    return "\n".join([*lines, summary(found)])


def _reason(state: RunState) -> str:
    place = state.run.get("place") if state.state == "failed" else ""
    return f"{state.reason} ({place})" if place else state.reason


def summary(found: dict[str, RunState]) -> str:
    """Return the number of runs in each state, and of versions of the code if several."""
    counts = Counter(state.state for state in found.values())
    listed = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    codes = {state.run.get("code") for state in found.values() if state.state == "done"}
    mixed = f"; records of {len(codes)} versions of the code" if len(codes) > 1 else ""
    return f"{len(found)} runs: {listed}{mixed}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the states of a sweep's runs; return 0 if all are done, 1 if not, 2 without a sweep."""
    parser = argparse.ArgumentParser(
        prog="attnsvm-status",
        description="The state of every run of a sweep, and the reason.",
        epilog="; ".join(f"{state}: {meaning}" for state, meaning in STATES.items()),
    )
    add = parser.add_argument
    add("directory", type=Path, nargs="?", help="folder of a sweep, by default multirun/latest")
    add("--all", action="store_true", help="list the runs that are done as well")
    options = parser.parse_args(argv)
    try:
        found = states(or_latest(options.directory))
    except FileNotFoundError as error:
        sys.stderr.write(f"attnsvm-status: {error}\n")
        return 2
    sys.stdout.write(table(found, options.all) + "\n")
    return int(any(state.state != "done" for state in found.values()))


if __name__ == "__main__":
    sys.exit(main())
