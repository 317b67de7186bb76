"""The compiled training loop, where it applies: the same steps as the torch loop, much faster.

It applies to W and (K, Q) on the CPU with gradient descent, with or without momentum, steepest
descent in five norms, and Muon; the exact gradient (for gradient descent of W without ridge the
published one as well), heads that are sums of functions of projections, and the four losses.
"""

from __future__ import annotations

import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.attention import Risk, View, log_attention
from attnsvm.linalg import orthonormal
from attnsvm.linalg.jit import announced
from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import blocks_of
from attnsvm.optimizer.base import Report
from attnsvm.optimizer.first_order import FirstOrder
from attnsvm.parameterization import Variables
from attnsvm.problem import ProblemBatch
from attnsvm.training.compiled.gradient import Instance, Work
from attnsvm.training.compiled.rule import update_of
from attnsvm.training.compiled.schedule import Share, shares, stretches, workers
from attnsvm.training.compiled.steps import Kept, Variable, take_steps
from attnsvm.training.trajectory import SnapshotRecorder

TOGETHER = 2**20
"""Numbers that are kept of the stops of a stretch, at most: 8 MiB."""

AHEAD = 3
"""Largest number of stretches by which the threads may be ahead of the evaluation of snapshots."""


class Stretch(NamedTuple):
    """Step sizes of a stretch; its stops, in steps, and the number of the first one's snapshot.

    `seen` are the logits and margins at the stops, (stops, B, ...), once all `futures` are done.
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
    loop = _Loop(risk, optimizer, variables, recorder)
    with announced(f"training loop of {'W' if len(variables) == 1 else '(K, Q)'}"):
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
        recorder.finite &= loop.finite
    return loop.last()


class _Loop:
    """The tokens in their span, the variables in coordinates, in blocks of eight instances.

    Trained are W^T, or K in the span of the tokens and Q in that of the queries, both in the span
    of their rows.
    """

    def __init__(
        self, risk: Risk, optimizer: FirstOrder, variables: Variables, recorder: SnapshotRecorder
    ) -> None:
        batch = risk.batch
        self.B, self.n, self.T, self.d = batch.X.shape
        self.blocks = -(-self.B // LANES)
        self.update = update_of(risk, optimizer)
        self.W, self.finite, self.begun = recorder.snapshots, torch.ones_like(recorder.finite), 1
        self.latest: dict[int, Future[None]] = {}
        basis, X = _in_token_span(batch) if self.update.triangular else (None, batch.X)
        queries, R = None, batch.Z.mT
        if self.update.triangular:
            queries, R = orthonormal(batch.Z.mT)
        # of the tokens as given: in another basis equal scores would differ by rounding
        features = batch.head.features(batch.X, batch.head_parameters)
        assert features is not None  # as checked in `applies`
        F, kinds = features
        bias = torch.zeros_like(X[..., 0]).masked_fill(~batch.mask, -torch.inf)
        weights = batch.Y * batch.has_query / -self.n
        of_kinds = LaneArray(blocks_of(kinds.expand(LANES, 3, -1)).array[0])
        given = (blocks_of(tensor) for tensor in (X, F, R, bias, batch.Y, weights))
        self.data = Instance(next(given), next(given), of_kinds, *given)
        self.m, self.columns = 0, variables[0].shape[-1]
        if len(variables) == 1:
            W_T = variables[0].mT.contiguous()
            self.variables: tuple[Variable, ...] = (
                self.variable(W_T, queries, None if basis is None else basis.mT),
            )
            self.factors: list[Tensor] = []
            return
        K0, Q0 = variables
        rows = None
        if self.update.triangular:
            rows = _row_basis(torch.cat([_times(basis, K0), _times(queries, Q0)], 1))
        self.variables = self.variable(K0, basis, rows), self.variable(Q0, queries, rows)
        self.m = self.variables[0].V.shape[-1]
        self.factors = recorder.factors or [V.unsqueeze(1).clone() for V in variables]

    def variable(self, start: Tensor, left: Tensor | None, right: Tensor | None) -> Variable:
        """Return a variable from its start (B, p, q), in bases left (B, p, a) and right (B, b, q).

        The squared norm of what is outside of their spans is not computed without a ridge: only
        that shrinks it.
        """
        V = _times(left, start)
        V = (V if right is None else torch.bmm(V, right.mT)).contiguous()
        square, share = torch.zeros(self.B, 1, dtype=V.dtype), torch.ones(self.B, 1, dtype=V.dtype)
        if self.update.log_ridge > -math.inf:
            inside = V if left is None else torch.bmm(left, V)
            rest = start - (inside if right is None else torch.bmm(inside, right))
            square = torch.linalg.vector_norm(rest, dim=(1, 2)).square().unsqueeze(1)
        momentum = torch.zeros_like(V if self.update.beta else V[:, :0, :0])
        scale = torch.full_like(share, -torch.inf)
        left, right = (start[:, :0, :0] if E is None else E for E in (left, right))
        arrays = V, share, square, momentum, scale, start, V, left, right
        return Variable(*map(blocks_of, arrays))

    @property
    def numbers(self) -> int:
        """Numbers that are kept of a stop until its snapshot is written."""
        return self.blocks * LANES * ((1 + 2 * bool(self.m)) * self.d**2 + self.n * self.T)

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
        shapes = (len(stops), self.B, self.n, self.T), (len(stops), self.B, self.n)
        seen = [torch.empty(shape, dtype=torch.float64) for shape in shapes]
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
            all_blocks[done:until, LANES * first : LANES * last] = some

    def view(self, stretch: Stretch) -> View:
        """Return the view at all stops of a stretch, one batch after the other, (stops B, ...)."""
        logits, margins = stretch.seen
        log_softmax = log_attention(logits).flatten(0, 1)
        return View(log_softmax, log_softmax.exp(), margins.flatten(0, 1))

    def take_steps(self, first: int, last: int, etas: Any, stops: Any, at: int) -> list[Tensor]:
        """Take the steps of the blocks first <= b < last.

        Write the weights after as many steps as each of `stops` says, as snapshots from number `at`
        on. Return the logits and the margins there, each (stops, instances, ...).
        """
        shapes = self.data.shapes_of_work(self.m, self.columns)
        work = Work(**dict(zip(shapes, LaneArray.several(*shapes.values()), strict=True)))
        here, of_W = (len(stops), last - first), (self.d, self.d) if self.m else (0, 0)
        of_kept = [v.start.shape[1:] for v in self.variables]
        of_kept += [of_W, (self.n, self.T), (self.n,)]
        *several, W_lanes, logits, margins = LaneArray.several(*(here + shape for shape in of_kept))
        kept = Kept(tuple(several), W_lanes, logits, margins)
        take_steps(
            first, last, self.data, work, self.variables, kept, etas, stops, self.update
        )  # fmt: skip
        part = slice(LANES * first, min(LANES * last, self.B))
        count = part.stop - part.start
        factors = [_instances(V, count) for V in kept.variables]
        W = _instances(kept.W, count) if self.m else factors[0].mT
        self.W[part, at : at + len(stops)] = W.transpose(0, 1)
        self.finite[part] &= W.isfinite().flatten(2).all(2).all(0)
        for V, value in zip(self.factors, factors, strict=False):
            if len(stops):  # in arrays for one stop the last one stays
                all_stops = V.shape[1] > 1
                there = slice(at, at + len(stops)) if all_stops else slice(0, 1)
                V[part, there] = (value if all_stops else value[-1:]).transpose(0, 1)
        return [_instances(kept.logits, count), _instances(kept.margins, count)]

    def last(self) -> Variables:
        """Return (W,) or (K, Q) at the last stop."""
        return tuple(V[:, -1].clone() for V in self.factors or [self.W])


def _instances(kept: LaneArray, count: int) -> Tensor:
    """Return (stops, blocks, ...) as a tensor (stops, count, ...)."""
    return torch.from_numpy(kept.array).movedim(-1, 2).flatten(1, 2)[:, :count]


def _times(basis: Tensor | None, V: Tensor) -> Tensor:
    """Return V (B, d, .) in a basis (B, d, r); None is the identity."""
    return V if basis is None else torch.bmm(basis.mT, V)


def _in_token_span(batch: ProblemBatch) -> tuple[Tensor | None, Tensor]:
    """Return a basis (B, d, r) of the span of the tokens and X in it; no basis where d is small."""
    B, n, T, d = batch.X.shape
    if d <= n * T:
        return None, batch.X
    basis, coordinates = orthonormal(batch.X.reshape(B, n * T, d).mT)
    return basis, coordinates.mT.reshape(B, n, T, n * T)


def _row_basis(rows: Tensor) -> Tensor | None:
    """Return a basis (B, c, m) of the span of the rows (B, c, m), none where m <= c."""
    return None if rows.shape[2] <= rows.shape[1] else orthonormal(rows.mT)[0].mT
