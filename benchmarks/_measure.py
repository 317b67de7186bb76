"""Times and memory of programs, and tables of them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Times = tuple[float, float]
"""Microseconds of a step: on the clock, and of the processors."""


def seconds(work: Callable[[], Any]) -> Times:
    """Return the seconds that a call takes: on the clock, and of the processors."""
    started = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started[0], time.process_time() - started[1]


def best_in_turn(
    works: Mapping[str, tuple[Callable[[], Any], int]], repeats: int
) -> dict[str, Times]:
    """Return the best times of each program, a (call, number of its steps).

    They are taken in turn, so that all meet the same disturbances.
    """
    best = dict.fromkeys(works, (float("inf"), float("inf")))
    for _ in range(repeats):
        for name, (work, count) in works.items():
            spent = [second / count * 1e6 for second in seconds(work)]
            best[name] = min(best[name][0], spent[0]), min(best[name][1], spent[1])
    return best


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return function(*arguments), computed in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def with_peak(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return work() and the MiB of resident memory by which it exceeds what was there (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # or what was before would count as the peak
    start = _most_resident()
    return work(), _most_resident() - start


def _most_resident() -> float:
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) / 1024


def print_row(*cells: Any) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_head(*columns: str) -> None:
    """Print the names of the columns of a table."""
    print_row(*columns)
    print("|---" * len(columns) + "|")
