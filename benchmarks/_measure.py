"""Works that several programs do, ours first, and how their times and memory are measured.

All programs of a work have the same processors, one unless the work says more, and take turns, so
that all meet the same disturbances. What they compute is compared with ours.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

OURS = "ours"
PAUSE_S = 0.1
"""Seconds ahead of each call: the threads of the one before may wait for work in a loop."""
ROUNDS = 40
"""Most calls of a program that are timed."""


@dataclass(frozen=True)
class Program:
    """A call that solves `count` instances, or takes `count` steps of instances.

    `value` computes what is compared, a number or array with an axis of instances; `context` is
    what runs around the call.
    """

    call: Callable[[], Any]
    count: int = 1
    value: Callable[[], Any] | None = None
    context: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True)
class Work:
    """What programs do: `make(*shape)` returns them by name, ours first.

    Attributes
    ----------
    name, axes : str
        For the table: the work, and what the numbers of its shape are.
    small : tuple, optional
        Peak memory is measured: what this shape loads and compiles is not counted.
    cores : int, optional
        Processors of each program; None means all.
    """

    name: str
    axes: str
    shape: tuple[Any, ...]
    make: Callable[..., Mapping[str, Program]]
    small: tuple[Any, ...] | None = None
    cores: int | None = 1


def measure(work: Work, budget_s: float) -> Iterator[dict[str, Any]]:
    """Yield a row for each program: median us, ratio to ours, error, peak memory."""
    everything = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(everything)[: work.cores])
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    try:
        programs = work.make(*work.shape)
        times = in_turn(programs, budget_s)
        values = {name: program.value() for name, program in programs.items() if program.value}
        for name, (clock, processors) in times.items():
            row: dict[str, Any] = {"work": work.name, "axes": work.axes, "program": name}
            row |= {"shape": ", ".join(map(str, work.shape)), "count": programs[name].count}
            row |= {"us": clock, "processor_us": processors, "ratio": clock / times[OURS][0]}
            if name in values and name != OURS:
                row["error"] = difference(values[name], values[OURS])
            if work.small is not None:
                row["peak_MiB"] = apart(peak, work, name)
            yield row
    finally:
        os.sched_setaffinity(0, everything)


def difference(value: Any, ours: Any) -> float:
    """Return the largest difference over our largest value, of the instances that both have."""
    a, b = (np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in (value, ours))
    b = b[: len(a)]
    return float(np.abs(a - b).max() / np.abs(b).max())


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that a call takes: on the clock, and of the processors."""
    started = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started[0], time.process_time() - started[1]


def in_turn(programs: Mapping[str, Program], budget_s: float) -> dict[str, tuple[float, ...]]:
    """Return the median microseconds of each program, for each of its `count`: clock, processors.

    A first call of each, which may compile, is not timed. Rounds end after `budget_s` seconds.
    """
    for program in programs.values():
        program.call()
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    started = time.perf_counter()
    while len(spent[OURS]) < ROUNDS:
        for name, program in programs.items():
            with program.context():
                time.sleep(PAUSE_S)
                spent[name].append(seconds(program.call))
        if time.perf_counter() - started > budget_s:
            break
    return {
        name: tuple(
            1e6 * statistics.median(column) / programs[name].count
            for column in zip(*times, strict=True)
        )
        for name, times in spent.items()
    }


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return function(*arguments), computed in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def peak(work: Work, name: str) -> float:
    """Return the MiB of resident memory by which a program exceeds what was there (Linux)."""
    assert work.small is not None
    work.make(*work.small)[name].call()
    program = work.make(*work.shape)[name]
    Path("/proc/self/clear_refs").write_text("5")  # or what was before would count as the peak
    start = _most_resident()
    program.call()
    return _most_resident() - start


def _most_resident() -> float:
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) / 1024
