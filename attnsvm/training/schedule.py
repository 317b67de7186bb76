"""Steps of a batch in blocks of eight instances: stretches of steps, and the threads' shares."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import chain, islice, zip_longest
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.optimizer.base import FirstOrder, Report

Share = tuple[int, int, int, int]
"""first, last, begin, end: blocks first <= b < last and steps begin <= k < end of a stretch."""


class Stretch(NamedTuple):
    """Steps start <= k < end, their plan, and their stops: numbers of steps, relative to `start`.

    Rows of the plan are `FirstOrder.plan` of a step and, with batches, the samples' weights.
    What is `seen` at the stops are tensors (stops, B, ...), once all `futures` are done.
    """

    start: int
    end: int
    plan: NDArray[np.float64]
    stops: NDArray[np.int64]
    seen: list[Tensor]
    futures: list[Future[None]]


class BlockSteps(ABC):
    """A batch in blocks of eight instances, of which compiled code takes steps."""

    LONGEST: ClassVar[int] = 2**14
    """Largest number of steps that are submitted at once."""

    SHARE: ClassVar[int] = 2**14
    """Steps times blocks in a share, at least one block: an interrupt waits for a share."""

    AHEAD: ClassVar[int] = 3
    """Number of stretches that are begun before the snapshots of the first one are evaluated."""

    blocks: int
    """Number of blocks."""

    n: int
    """Number of samples of an instance."""

    def most_stops(self) -> int:
        """Return the largest number of stops of a stretch, at least 1: what is kept fits memory."""
        return 1

    @abstractmethod
    def kept(self, stops: int, at: int) -> list[Tensor]:
        """Return tensors (stops, B, ...) for what is kept at stops, of snapshots from `at` on."""

    @abstractmethod
    def take(
        self, first: int, last: int, plan: NDArray[np.float64], stops: NDArray[np.int64]
    ) -> list[Tensor]:
        """Take a step for each row of the plan in the blocks first <= b < last.

        Return what is kept after as many steps as each of `stops` says: (stops, instances, ...).
        """

    @abstractmethod
    def record(self, stretch: Stretch) -> None:
        """Take the snapshots at the stops of a stretch; called for one after the other."""

    def run(self, optimizer: FirstOrder, threads: int, report: Report) -> None:
        """Take all steps of `optimizer` in `threads` threads; report how many are done.

        If an exception ends it, for example an interrupt, shares that are not begun are cancelled.
        """
        self.take(0, 0, optimizer.plan(0, 0), np.empty(0, np.int64))  # compiles in this thread
        latest: dict[int, Future[None]] = {}
        pool = ThreadPoolExecutor(threads)
        try:
            stretches = self._stretches(optimizer)
            submitted = (self._submit(stretch, threads, pool, latest) for stretch in stretches)
            begun = deque(islice(submitted, self.AHEAD))
            while begun:
                stretch = begun.popleft()
                for future in stretch.futures:
                    future.result()
                begun.extend(islice(submitted, 1))
                stops = [stretch.start + int(stop) for stop in stretch.stops]
                if stops:
                    self.record(stretch)
                for done in stops or [stretch.end]:
                    report(done)
        finally:
            pool.shutdown(cancel_futures=True)

    def _stretches(self, optimizer: FirstOrder) -> Iterator[Stretch]:
        """Yield all stretches; each ends at a stop, or after LONGEST steps."""
        weights, longest, at = optimizer.weights(self.n), self.LONGEST, 0
        if optimizer.batch:
            longest = min(longest, max(1, self.LONGEST * 2**6 // self.n))
        for start, end, stops in _cut(optimizer.grid(), self.most_stops(), longest):
            plan = optimizer.plan(start, end)
            if optimizer.batch and len(plan):
                plan = np.hstack([plan, np.stack([*islice(weights, len(plan))])])
            since = np.array(stops, np.int64) - start
            yield Stretch(start, end, plan, since, self.kept(len(stops), at), [])
            at += len(stops)

    def _submit(
        self, stretch: Stretch, threads: int, pool: Executor, latest: dict[int, Future[None]]
    ) -> Stretch:
        """Return the stretch with its shares submitted; `latest` are the futures of each block."""
        of_threads = shares(self.blocks, threads, stretch.end - stretch.start, self.SHARE)
        for share in filter(None, chain.from_iterable(zip_longest(*of_threads))):
            blocks = range(*share[:2])
            earlier = {latest[b] for b in blocks if b in latest}
            future = pool.submit(self._take_share, stretch, share, earlier)
            latest |= dict.fromkeys(blocks, future)
            stretch.futures.append(future)
        return stretch

    def _take_share(self, stretch: Stretch, share: Share, earlier: set[Future[None]]) -> None:
        """Take the steps of a share of a stretch, after the `earlier` ones of its blocks."""
        for future in earlier:
            future.result()
        first, last, begin, end = share
        # a stop between two shares belongs to the first one
        done, until = np.searchsorted(stretch.stops, (begin or -1, end), "right")
        stops = stretch.stops[done:until] - begin
        seen = self.take(first, last, stretch.plan[begin:end], stops)
        for all_blocks, some in zip(stretch.seen, seen, strict=True):
            all_blocks[done:until, LANES * first : LANES * last] = some


def _cut(grid: Sequence[float], most: int, longest: int) -> Iterator[tuple[int, int, list[int]]]:
    """Yield begin, end and stops of stretches, of at most so many stops and steps.

    The first stretch has no steps.
    """
    start, stops = 0, list[int]()
    for stop in map(int, grid):
        while stop - start > longest:
            yield start, start + longest, stops
            start, stops = start + longest, []
        stops.append(stop)
        if len(stops) == most or stop in (0, grid[-1]):
            yield start, stop, stops
            start, stops = stop, []


def shares(blocks: int, threads: int, steps: int, most: int) -> list[list[Share]]:
    """Return the shares of at most so many threads, of equal work, in the order of execution.

    A block is divided where the work does not come out even: a thread begins with the first steps
    of its last block, and ends with the last steps of its first one. `most` is the largest number
    of steps times blocks in a share of several blocks.
    """
    threads, few = min(threads, blocks), max(1, most // max(steps, 1))
    of_threads = []
    for thread in range(threads):
        (first, before), (last, after) = (divmod(blocks * k, threads) for k in (thread, thread + 1))
        late, early = steps * before // threads, steps * after // threads
        own = [(last, last + 1, 0, early)] if early else []
        own += [(b, min(b + few, last), 0, steps) for b in range(first + (before > 0), last, few)]
        of_threads.append(own + ([(first, first + 1, late, steps)] if before else []))
    return of_threads
