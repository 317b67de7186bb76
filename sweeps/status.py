"""`attnsvm-status DIR`: how far every run of a sweep is, and why, as a table."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attnsvm.state import PLAN_FILE, RUN_FILE, STATES, RunState, planned, run_state
from attnsvm.storage import CorruptRecordError


def states(directory: Path) -> dict[str, RunState]:
    """Return the state of every run of the sweep in `directory`, or of the run in it.

    Raises
    ------
    FileNotFoundError
        If there is neither a plan nor a record.
    """
    if (directory / RUN_FILE).exists():
        directory = directory.resolve()  # "." has no name
        return {directory.name: run_state(directory)}
    found: dict[str, RunState] = {}
    try:
        names = planned(directory)
    except CorruptRecordError as error:
        names, found[PLAN_FILE] = None, RunState("corrupt", str(error))
    if names is None:
        names = {path.parent.name: [] for path in directory.glob(f"*/{RUN_FILE}")}
    if not names and not found:
        raise FileNotFoundError(f"{directory}: holds no sweep (no {PLAN_FILE}, no */{RUN_FILE})")
    return found | {name: run_state(directory / name) for name in sorted(names)}


def table(found: dict[str, RunState], everything: bool = False) -> str:
    """Return the runs that are not done, or all, as lines of text, counts last."""
    rows = [
        (state.state, name, _reason(state))
        for name, state in found.items()
        if everything or state.state != "done"
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    lines = [f"{s:<{widths[0]}}  {n:<{widths[1]}}  {r}".rstrip() for s, n, r in rows]
    return "\n".join([*lines, summary(found)])


def _reason(state: RunState) -> str:
    place = f" ({state.run['place']})" if state.state == "failed" and state.run["place"] else ""
    return "".join(c if c.isprintable() else " " for c in state.reason + place)


def summary(found: dict[str, RunState]) -> str:
    """Return how many runs are in which state; how many codes they come from if not one."""
    counts = Counter(state.state for state in found.values())
    listed = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    codes = {state.run.get("code") for state in found.values() if state.state == "done"}
    mixed = f"; records of {len(codes)} versions of the code" if len(codes) > 1 else ""
    return f"{len(found)} runs: {listed}{mixed}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the states of a sweep's runs; return 0 if all are done, 1 if not, 2 without a sweep."""
    parser = argparse.ArgumentParser(
        prog="attnsvm-status",
        description="How far the runs of a sweep are, and why.",
        epilog="; ".join(f"{state}: {meaning}" for state, meaning in STATES.items()),
    )
    parser.add_argument("directory", type=Path, help="folder of a sweep, e.g. multirun/rank_vs_d")
    parser.add_argument("--all", action="store_true", help="list the runs that are done as well")
    options = parser.parse_args(argv)
    try:
        found = states(options.directory)
    except FileNotFoundError as error:
        sys.stderr.write(f"attnsvm-status: {error}\n")
        return 2
    sys.stdout.write(table(found, options.all) + "\n")
    return int(any(state.state != "done" for state in found.values()))


if __name__ == "__main__":
    sys.exit(main())
