"""Solving and training beside busy programs: time over that on an idle machine.

100 instances; neighbours are processes that count. Median of the times on the clock.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import attnsvm
from benchmarks._measure import print_head, print_row, seconds

SHAPES = (6, 8, 10), (15, 5, 20)
NEIGHBOURS = 0, 1, 2
REPEATS = 40


def main() -> None:
    """Print milliseconds an instance without neighbours, and the ratios with one and two."""
    print_head("program", "(n, T, d)", "idle, ms", "one neighbour", "two neighbours")
    for shape in SHAPES:
        for name, work in _programs(*shape).items():
            _milliseconds(work, 0)  # compiles, and wakes a processor that rested
            alone, *busy = (_milliseconds(work, count) for count in NEIGHBOURS)
            ratios = (f"{spent / alone:.1f}" for spent in busy)
            print_row(name, shape, f"{alone:.2f}", *ratios)


def _programs(n: int, T: int, d: int) -> dict[str, Callable[[], Any]]:
    batch = attnsvm.sample("sphere", n=n, T=T, d=d, trials=100)
    tokens = attnsvm.optimal_tokens(batch)[0]
    return {
        "Frobenius SVM": lambda: attnsvm.solve_svm(batch.X, batch.Z, tokens, "frobenius"),
        "nuclear SVM": lambda: attnsvm.solve_svm(batch.X, batch.Z, tokens, "nuclear"),
        "training of W, 500 steps": lambda: attnsvm.train(batch, "w", steps=500),
        "training of (K, Q), 500 steps": lambda: attnsvm.train(batch, "kq", steps=500),
    }


def _milliseconds(work: Callable[[], Any], neighbours: int) -> float:
    with _busy(neighbours):
        return median(seconds(work)[0] for _ in range(REPEATS)) * 10


@contextmanager
def _busy(count: int) -> Iterator[None]:
    command = sys.executable, "-c", "while True: pass"
    running = [subprocess.Popen(command) for _ in range(count)]
    time.sleep(0.2 * count)
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
