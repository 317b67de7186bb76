"""Times of several programs, taken in turn so that all meet the same disturbances."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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
    """Return the best times of each program, a (call, number of its steps)."""
    best = dict.fromkeys(works, (float("inf"), float("inf")))
    for _ in range(repeats):
        for name, (work, count) in works.items():
            spent = [second / count * 1e6 for second in seconds(work)]
            best[name] = min(best[name][0], spent[0]), min(best[name][1], spent[1])
    return best


def print_ratios(best: Mapping[str, Times]) -> None:
    """Print the times of each program, and their ratios to those of "ours"."""
    for name, spent in best.items():
        ratios = [one / mine for one, mine in zip(spent, best["ours"], strict=True)]
        print(
            f"  {name:8} {spent[0]:9.3f} us on the clock, {spent[1]:9.3f} of the processors;"
            f" {ratios[0]:.2f} and {ratios[1]:.2f} times ours",
            flush=True,
        )
