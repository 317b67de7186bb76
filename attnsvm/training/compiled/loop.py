"""The compiled training loop, where it applies: the same steps as the torch loop, much faster.

It applies to W and (K, Q) on the CPU with gradient descent, with or without momentum, steepest
descent in five norms, and Muon; the exact gradient (for gradient descent of W without ridge the
published one as well), heads that are sums of functions of projections, and the four losses.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.attention import Risk, View, log_attention
from attnsvm.linalg import orthonormal
from attnsvm.linalg.jit import announced
from attnsvm.linalg.simd.arithmetic import BYTES_OF_ENTRY, LANES
from attnsvm.linalg.simd.blocks import from_lanes, to_lanes
from attnsvm.optimizer.base import Report
from attnsvm.optimizer.first_order import FirstOrder
from attnsvm.parameterization import Variables
from attnsvm.problem import ProblemBatch
from attnsvm.training.compiled.gradient import (
    Instance,
    Sizes,
    Space,
    space_entries,
)
from attnsvm.training.compiled.rule import update_of
from attnsvm.training.compiled.schedule import Share, shares, stretches, workers
from attnsvm.training.compiled.steps import train_kq, train_w
from attnsvm.training.compiled.weights import Placement, write_kq, write_w
from attnsvm.training.trajectory import SnapshotRecorder

TOGETHER = 2**18
"""Numbers that are kept of the stops of a stretch, at most: 2 MiB."""

AHEAD = 3
"""Largest number of stretches by which the threads may be ahead of the evaluation of snapshots."""


class Stretch(NamedTuple):
    """Step sizes of a stretch; its stops, in steps, and the number of the first one's snapshot.

    `seen` are the logits and margins at the stops, in lanes, (stops, blocks, ...), once all
    `futures` are done.
    """

    etas: NDArray[np.float64]
    stops: NDArray[np.int64]
    at: int
    seen: list[Tensor]
    futures: list[Future[None]]


def run(
    optimizer: FirstOrder,
    threads: int,
    risk: Risk,
    variables: Variables,
    recorder: SnapshotRecorder,
    report: Report,
) -> Variables:
    """Take the steps of `optimizer` in `threads` threads; otherwise as `Optimizer.run`.

    The threads write the weights of the snapshots to the recorder's arrays.
    """
    loop = (_LoopW if len(variables) == 1 else _LoopKQ)(risk, optimizer, variables, recorder)
    with announced(f"training loop of {loop.trained}"):
        loop.take_steps(0, 0, np.empty(0), np.empty(0, np.int64), 0)
    grid = [int(stop) for stop in optimizer.grid()]
    most = max(1, TOGETHER // loop.numbers)
    with workers(threads) as pools:
        submitted = (
            (end, stops, loop.advance(optimizer, start, end, stops, pools))
            for start, end, stops in stretches(grid, most)
        )
        begun = deque(islice(submitted, AHEAD))
        recorder.take(variables, risk.forward(variables))
        report(0)
        while begun:
            end, stops, stretch = begun.popleft()
            for future in stretch.futures:
                future.result()
            begun.extend(islice(submitted, 1))
            if stops:
                recorder.take_views(loop.view(stretch))
            for done in stops or [end]:
                report(done)
        recorder.finite &= torch.from_numpy(loop.finite)
    return loop.last()


class _Loop:
    """Base of both parameterizations: the tokens in their span, in blocks of eight lanes."""

    kernel: Any
    trained: str
    write: Callable[..., None]
    last: Callable[[], Variables]
    placed: tuple[Any, ...]
    updated: tuple[Tensor, ...]
    fixed: tuple[Tensor, ...]
    m = 0

    def __init__(self, risk: Risk, optimizer: FirstOrder, recorder: SnapshotRecorder) -> None:
        self.batch = batch = risk.batch
        self.B, self.n, self.T, d = batch.X.shape
        self.blocks = -(-self.B // LANES)
        self.update = update_of(risk, optimizer)
        self.W, self.finite, self.begun = recorder.snapshots.numpy(), np.ones(self.B, np.bool_), 1
        self.latest: dict[int, Future[None]] = {}
        if self.update.triangular:
            self.basis, X = _in_token_span(batch)
            self.queries, R = orthonormal(batch.Z.mT)
        else:
            self.basis, X = None, batch.X
            self.queries, R = torch.eye(d, dtype=X.dtype).expand(self.B, d, d), batch.Z.mT
        self.r, self.c = X.shape[-1], R.shape[1]
        # of the tokens as given: in another basis equal scores would differ by rounding
        features = batch.head.features(batch.X, batch.head_parameters)
        assert features is not None  # as checked in `applies`
        F, kinds = features
        self.k = F.shape[-1]
        bias = torch.zeros_like(X[..., 0]).masked_fill(~batch.mask, -torch.inf)
        weights = batch.Y * batch.has_query / -self.n
        data = (X, F, kinds.expand(LANES, 3, -1), R, bias, batch.Y, weights)
        self.data = tuple(to_lanes(tensor) for tensor in data)

    def inside(self, V: Tensor) -> Tensor:
        """Return V (B, d, ...) in the basis of the span of the tokens, (B, r, ...)."""
        if self.basis is None:
            return V
        flat = V.reshape(len(V), V.shape[1], -1)
        return torch.bmm(self.basis.mT, flat).reshape(len(V), self.r, *V.shape[2:])

    def back(self, V: Tensor) -> Tensor:
        """Undo `inside`, of V (B, r, c)."""
        return V if self.basis is None else torch.bmm(self.basis, V)

    def squares(self, count: int, outside: Callable[[], tuple[Tensor, ...]]) -> Tensor:
        """Return the squared norms of what is `outside` of the spans of `count` starts, in lanes.

        Only a ridge shrinks it; without one it is not computed.
        """
        if self.update.log_ridge == -math.inf:
            return torch.zeros(self.blocks, count * LANES, dtype=torch.float64)
        return to_lanes(torch.cat([_squares(V) for V in outside()], 1))

    def momenta(self, *updated: Tensor) -> tuple[Tensor, ...]:
        """Return the momenta of `updated` at the start, and their log-scales, all in lanes.

        Without momentum they are not used.
        """
        if not self.update.beta:
            return (torch.empty(0),) * (len(updated) + 1)
        none = torch.full((self.blocks, len(updated) * LANES), -torch.inf, dtype=torch.float64)
        return (*(torch.zeros_like(V) for V in updated), none)

    @property
    def numbers(self) -> int:
        """Numbers that are kept of a stop until its snapshot is written."""
        return sum(V.numel() for V in self.updated) + self.blocks * LANES * self.n * self.T

    def advance(
        self,
        optimizer: FirstOrder,
        start: int,
        end: int,
        stops: list[int],
        pools: list[ThreadPoolExecutor],
    ) -> Stretch:
        """Submit the steps start <= k < end.

        A thread waits for another one only where they share a block, for its earlier steps.
        """
        etas = np.fromiter(map(optimizer.step_size, range(start, end)), np.float64)
        since = np.array(stops, np.int64) - start
        counts = (LANES * self.n * self.T, LANES * self.n)
        seen = [
            torch.empty(len(stops), self.blocks, count, dtype=torch.float64) for count in counts
        ]
        stretch = Stretch(etas, since, self.begun, seen, [])
        self.begun += len(stops)
        for pool, mine in zip(pools, shares(self.blocks, len(pools), end - start), strict=False):
            for share in mine:
                future = pool.submit(self.take_share, stretch, share, self.latest.get(share.first))
                self.latest[share.first] = future
                stretch.futures.append(future)
        return stretch

    def take_share(self, stretch: Stretch, share: Share, earlier: Future[None] | None) -> None:
        """Take the steps of a share of a stretch, after the `earlier` ones of its blocks."""
        if earlier is not None:
            earlier.result()
        first, last, begin, end = share
        done, until = np.searchsorted(stretch.stops, (begin, end), "right")
        stops = stretch.stops[done:until] - begin
        seen = self.take_steps(first, last, stretch.etas[begin:end], stops, stretch.at + done)
        for all_blocks, some in zip(stretch.seen, seen, strict=True):
            all_blocks[done:until, first:last] = some

    def view(self, stretch: Stretch) -> View:
        """Return the view at all stops of a stretch, one batch after the other, (stops B, ...)."""
        logits, margins = stretch.seen
        log_softmax = log_attention(self.instances(logits, self.n, self.T)).flatten(0, 1)
        return View(log_softmax, log_softmax.exp(), self.instances(margins, self.n).flatten(0, 1))

    def instances(self, lanes: Tensor, *shape: int) -> Tensor:
        """Return lanes (stops, blocks, ...) as a tensor (stops, B, *shape)."""
        count, filled = len(lanes), self.blocks * LANES
        flat = from_lanes(lanes.flatten(0, 1), (count * filled, *shape))
        return flat.view(count, filled, *shape)[:, : self.B]

    def take_steps(self, first: int, last: int, etas: Any, stops: Any, at: int) -> list[Tensor]:
        """Take the steps of the blocks first <= b < last.

        Write the weights after as many steps as each of `stops` says, as snapshots from number `at`
        on. Return the logits and the margins there, each (stops, blocks, ...).
        """
        sizes = self.sizes
        space = _space(sizes)
        seen = *(V.shape[1] for V in self.updated), LANES * self.n * self.T, LANES * self.n
        kept = [torch.empty(len(stops), last - first, size, dtype=torch.float64) for size in seen]
        self.kernel(
            first,
            last,
            Instance(*_addresses(self.data)),
            _parts(space, sizes),
            _addresses((*self.updated, *self.fixed)),
            _addresses(kept),
            etas,
            stops,
            sizes,
            self.update,
        )
        *coordinates, logits, margins = kept
        arrays = (V.numpy() for V in coordinates)
        self.write(first, last, *arrays, *self.placed, self.finite, self.W, at)
        return [logits, margins]

    @property
    def sizes(self) -> Sizes:
        """The sizes of an instance."""
        return Sizes(self.n, self.T, self.r, self.k, self.c, self.m)


class _LoopW(_Loop):
    """Of W."""

    kernel, write = staticmethod(train_w), staticmethod(write_w)
    trained = "W"

    def __init__(
        self, risk: Risk, optimizer: FirstOrder, variables: Variables, recorder: SnapshotRecorder
    ) -> None:
        super().__init__(risk, optimizer, recorder)
        (W0,) = variables
        V0 = self.inside(torch.bmm(W0, self.queries))
        squares = self.squares(1, lambda: (W0 - torch.bmm(self.back(V0), self.queries.mT),))
        V0 = V0.mT.contiguous()
        V, share = to_lanes(V0), torch.ones(self.blocks, LANES, dtype=torch.float64)
        self.updated, self.fixed = (V, share), (squares, *self.momenta(V))
        queries = self.queries.mT if self.update.triangular else None
        self.placed = (_placement(W0, V0, self.basis, queries),)

    def last(self) -> Variables:
        """Return (W,) at the last stop."""
        return (torch.from_numpy(self.W[:, -1].copy()),)


class _LoopKQ(_Loop):
    """Of K in the span of the tokens, Q in that of the queries, both in the span of their rows."""

    kernel, write = staticmethod(train_kq), staticmethod(write_kq)
    trained = "(K, Q)"

    def __init__(
        self, risk: Risk, optimizer: FirstOrder, variables: Variables, recorder: SnapshotRecorder
    ) -> None:
        super().__init__(risk, optimizer, recorder)
        K0, Q0 = variables
        K, Q = self.inside(K0), torch.bmm(self.queries.mT, Q0)
        squares = self.squares(2, lambda: (K0 - self.back(K), Q0 - torch.bmm(self.queries, Q)))
        rows = _row_basis(torch.cat([K, Q], 1)) if self.update.triangular else None
        K, Q = (V if rows is None else torch.bmm(V, rows) for V in (K, Q))
        self.m = K.shape[-1]
        coordinates = to_lanes(K), to_lanes(Q)
        shares = torch.ones(self.blocks, 2 * LANES, dtype=torch.float64)
        self.updated = (*coordinates, shares)
        self.fixed = (squares, *self.momenta(*coordinates))
        right = None if rows is None else rows.mT
        queries = self.queries if self.update.triangular else None
        of_both = _placement(K0, K, self.basis, right), _placement(Q0, Q, queries, right)
        kept = recorder.factors or [V.unsqueeze(1).clone() for V in variables]
        self.factors = tuple(V.numpy() for V in kept)
        self.placed = (of_both, self.factors)

    def last(self) -> Variables:
        """Return (K, Q) at the last stop."""
        return tuple(torch.from_numpy(V[:, -1].copy()) for V in self.factors)


def _placement(
    start: Tensor, coordinates: Tensor, left: Tensor | None, right: Tensor | None
) -> Placement:
    """Return the placement with contiguous arrays; None is the identity."""
    none = start.new_empty(0, 0, 0)
    arrays = (start, coordinates, none if left is None else left, none if right is None else right)
    return Placement(*(V.contiguous().numpy() for V in arrays))


def _addresses(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in tensors)


def _space(sizes: Sizes) -> Tensor:
    """Return the memory for the work arrays of a thread; torch aligns it to cache lines."""
    return torch.empty(LANES * sum(space_entries(sizes)), dtype=torch.float64)


def _parts(space: Tensor, sizes: Sizes) -> Space:
    """Return the addresses of the work arrays in their memory."""
    counts, start = space_entries(sizes), space.data_ptr()
    before = list(accumulate(counts, initial=0))[:-1]
    return Space(*(start + BYTES_OF_ENTRY * count for count in before))


def _squares(V: Tensor) -> Tensor:
    """Return the squared norms of V (B, ., .), shape (B, 1)."""
    squares: Tensor = torch.linalg.vector_norm(V, dim=(1, 2)).square().unsqueeze(1)
    return squares


def _in_token_span(batch: ProblemBatch) -> tuple[Tensor | None, Tensor]:
    """Return a basis (B, d, r) of the span of the tokens and X in it; no basis where d is small."""
    B, n, T, d = batch.X.shape
    if d <= n * T:
        return None, batch.X
    basis, coordinates = orthonormal(batch.X.reshape(B, n * T, d).mT)
    return basis, coordinates.mT.reshape(B, n, T, n * T)


def _row_basis(rows: Tensor) -> Tensor | None:
    """Return a basis (B, m, c) of the span of the rows (B, c, m), none where m <= c."""
    return None if rows.shape[2] <= rows.shape[1] else orthonormal(rows.mT)[0]
