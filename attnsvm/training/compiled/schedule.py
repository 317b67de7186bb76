"""Who takes which steps when: the compiled loop's stretches of steps, and the threads' shares."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

SHARE = 2**14
"""Steps times blocks in a share of the work, at least one block: an interrupt waits for a share."""

LONGEST = 2**14
"""Largest number of steps that are submitted at once."""


def stretches(grid: list[int], most: int) -> Iterator[tuple[int, int, list[int]]]:
    """Yield start and end of each stretch, and the stops in it: its part of the grid.

    A stretch has at most LONGEST steps and `most` stops.
    """
    start, stops = grid[0], list[int]()
    for stop in grid[1:]:
        while stop - start > LONGEST:
            yield start, start + LONGEST, stops
            start, stops = start + LONGEST, []
        stops.append(stop)
        if len(stops) == most or stop == grid[-1]:
            yield start, stop, stops
            start, stops = stop, []


class Share(NamedTuple):
    """Blocks first <= b < last and steps begin <= k < end of a stretch."""

    first: int
    last: int
    begin: int
    end: int


def shares(blocks: int, threads: int, steps: int) -> list[list[Share]]:
    """Return the shares of at most so many threads, of equal work, in the order of execution.

    A block is divided where the work does not come out even: a thread begins with the first steps
    of its last block, and ends with the last steps of its first one.
    """
    threads, few = min(threads, blocks), max(1, SHARE // steps)
    found = []
    for thread in range(threads):
        (first, before), (last, after) = (divmod(blocks * k, threads) for k in (thread, thread + 1))
        late, early = steps * before // threads, steps * after // threads
        whole = range(first + (before > 0), last, few)
        mine = [Share(last, last + 1, 0, early)] if early else []
        mine += [Share(b, min(b + few, last), 0, steps) for b in whole]
        found.append(mine + ([Share(first, first + 1, late, steps)] if before else []))
    return found


_idle: deque[ThreadPoolExecutor] = deque()
os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def workers(threads: int) -> Iterator[list[ThreadPoolExecutor]]:
    """Yield one-thread pools; each runs its tasks in the order of submission.

    They are kept for the next call, since to start a thread takes as long as hundreds of steps. If
    the block ends by an exception, for example an interrupt, tasks that have not begun are
    cancelled and the threads end.
    """
    pools = [_idle_pool() for _ in range(threads)]
    try:
        yield pools
    except BaseException:
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in pools:
            pool.shutdown()
        raise
    _idle.extend(pools)


def _idle_pool() -> ThreadPoolExecutor:
    """Return a pool that no one uses, a new one if there is none."""
    try:
        return _idle.pop()
    except IndexError:
        return ThreadPoolExecutor(1)
