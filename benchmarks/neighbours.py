"""Solving and training of 100 instances on all cores, alone and beside busy processes."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from benchmarks import svm, training
from benchmarks._measure import OURS, Program

SHAPES = (6, 8, 10), (15, 5, 20)
NAMES = "Att-SVM, frobenius", "Att-SVM, nuclear", *(work.name for work in training.WORKS[:8:7])


def programs(make: Callable[..., Mapping[str, Program]], *shape: int) -> dict[str, Program]:
    """Return our program alone, and beside one and two processes that count."""
    ours = replace(make(*shape)[OURS], value=None)
    contexts = {f"ours beside {k} busy": partial(_busy, k) for k in (1, 2)}
    others = {name: replace(ours, context=context) for name, context in contexts.items()}
    return {OURS: ours} | others


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


WORKS = [
    replace(work, name=f"{work.name}, all cores", make=partial(programs, work.make), cores=None)
    for work in (*svm.WORKS, *training.WORKS)
    if work.shape in SHAPES and work.name in NAMES
]
