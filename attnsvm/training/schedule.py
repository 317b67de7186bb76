"""Steps of a batch in blocks of eight instances: stretches of steps, in threads."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.optimizer.base import FirstOrder, Report


class Stretch(NamedTuple):
    """Steps up to `end`, of which some are `stops`; what is seen there, for a few blocks each."""

    end: int
    stops: list[int]
    seen: list[Future[list[Tensor]]]


class BlockSteps(ABC):
    """A batch in blocks of eight instances, of which compiled code takes steps."""

    LONGEST: ClassVar[int] = 2**14
    """Largest number of steps that are submitted at once."""

    TASK: ClassVar[int] = 2**15
    """Steps times blocks in a task, at least one block: an interrupt waits for a task."""

    AHEAD: ClassVar[int] = 3
    """Number of stretches that are begun before the snapshots of the first one are evaluated."""

    blocks: int
    """Number of blocks."""

    n: int
    """Number of samples of an instance."""

    most_stops: int = 1
    """Largest number of stops of a stretch: what is kept fits memory."""

    @abstractmethod
    def take(
        self, first: int, last: int, plan: NDArray[np.float64], stops: NDArray[np.int64]
    ) -> list[Tensor]:
        """Take a step for each row of the plan in the blocks first <= b < last.

        Rows are `FirstOrder.plan` of a step and, with batches, the samples' weights. Return what is
        kept after as many steps as each of `stops` says: (stops, instances, ...).
        """

    @abstractmethod
    def record(self, seen: list[Tensor]) -> None:
        """Take the next snapshots, of what `take` returns for all instances, (stops, B, ...)."""

    def run(self, optimizer: FirstOrder, threads: int, report: Report) -> None:
        """Take all steps of `optimizer` in `threads` threads; report how many are done.

        If an exception ends it, for example an interrupt, steps that are not begun are cancelled.
        """
        self.take(0, 0, optimizer.plan(0, 0), np.empty(0, np.int64))  # compiles in this thread
        pool = ThreadPoolExecutor(threads)
        try:
            submitted = self._submitted(optimizer, threads, pool)
            begun = deque(islice(submitted, self.AHEAD))
            while begun:
                end, stops, seen = begun.popleft()
                parts = [future.result() for future in seen]
                begun.extend(islice(submitted, 1))
                if stops:
                    self.record([torch.cat(V, 1) for V in zip(*parts, strict=True)])
                for done in stops or [end]:
                    report(done)
        finally:
            pool.shutdown(cancel_futures=True)

    def _submitted(self, optimizer: FirstOrder, threads: int, pool: Executor) -> Iterator[Stretch]:
        """Yield all stretches, their steps submitted: in each a few blocks at a time.

        Several threads have some tasks each, so that the queue balances their work.
        """
        some, weights = min(threads, 2), optimizer.weights(self.n)
        longest = min(self.LONGEST, 1 + optimizer.steps // some)
        if optimizer.batch:
            longest = min(longest, max(1, self.LONGEST * 2**6 // self.n))
        few = max(1, min(-(-self.blocks // (some * threads)), self.TASK // longest))
        parts = [(b, min(b + few, self.blocks)) for b in range(0, self.blocks, few)]
        seen: list[Future[list[Tensor]] | None] = [None] * len(parts)
        for start, end, stops in _cut(optimizer.grid(), self.most_stops, longest):
            plan, since = optimizer.plan(start, end), np.array(stops, np.int64) - start
            if optimizer.batch and len(plan):
                plan = np.hstack([plan, np.stack([*islice(weights, len(plan))])])
            after = zip(parts, seen, strict=True)
            begun = [pool.submit(self._take, earlier, *p, plan, since) for p, earlier in after]
            seen = [*begun]
            yield Stretch(end, stops, begun)

    def _take(self, earlier: Future[list[Tensor]] | None, *arguments: Any) -> list[Tensor]:
        """Take steps after the `earlier` ones of the same blocks."""
        if earlier is not None:
            earlier.result()
        return self.take(*arguments)


def _cut(grid: Sequence[float], most: int, longest: int) -> Iterator[tuple[int, int, list[int]]]:
    """Yield begin, end and stops of stretches, of at most so many stops and steps."""
    start, stops = 0, list[int]()
    for stop in map(int, grid):
        while stop - start > longest:
            yield start, start + longest, stops
            start, stops = start + longest, []
        stops.append(stop)
        if len(stops) == most or stop == grid[-1]:
            yield start, stop, stops
            start, stops = stop, []
