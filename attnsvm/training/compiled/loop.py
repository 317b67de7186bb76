"""The compiled training loop, where it applies: the same steps as the torch loop, much faster.

It applies to W and (K, Q) on the CPU with gradient descent, with or without momentum, steepest
descent in six norms, Muon and Adam; the exact gradient (for gradient descent of W without ridge
the published one as well), heads that are sums of functions of projections, and the five losses.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.linalg import orthonormal
from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import blocks_of
from attnsvm.loss import LOSS_CODES
from attnsvm.nn.risk import Risk, log_attention
from attnsvm.optimizer import GD, FirstOrder, NormalizedGD
from attnsvm.optimizer.base import Optimizer, Report, Rule, log_of
from attnsvm.optimizer.gradient_descent import ADAM
from attnsvm.optimizer.steepest import HYBRID, L1, MAX
from attnsvm.parameterization import KQ, Variables, W
from attnsvm.problem import ProblemBatch
from attnsvm.training.compiled.gradient import Instance, Update, work_arrays
from attnsvm.training.compiled.steps import Kept, Variable, take_steps
from attnsvm.training.schedule import BlockSteps, Stretch
from attnsvm.training.trajectory import SnapshotRecorder


def uncompiled(risk: Risk, optimizer: Optimizer) -> str:
    """Return what of a training the compiled loop has no code for; empty if it can be used."""
    batch, rule, loss = risk.batch, risk.rule, risk.loss
    first = {name: p[:1] for name, p in batch.head_parameters.items()}
    if not isinstance(optimizer, FirstOrder) or _rule(optimizer, risk) is None:
        return f"optimizer {type(optimizer).__name__}"
    # the published update of W has code; that of (K, Q) amplifies rounding
    published = type(optimizer) in (NormalizedGD, GD) and type(rule) is W and not optimizer.ridge
    if optimizer.gradient != "log_domain" and not published:
        return f"gradient={optimizer.gradient}"
    without = {
        f"parameterization {type(rule).__name__}": type(rule) not in (W, KQ),
        f"loss {type(loss).__name__}": type(loss) not in LOSS_CODES,
        f"device {batch.X.device.type}": batch.X.device.type != "cpu",
        "the training of a head": batch.head.train,
        f"head {type(batch.head).__name__}": batch.head.features(batch.X[:1], first) is None,
    }
    return next((what for what, absent in without.items() if absent), "")


def _rule(optimizer: FirstOrder, risk: Risk) -> Rule | None:
    """Return the rule of one of our optimizers; None if the compiled loop has none."""
    ours = type(optimizer).__module__.startswith("attnsvm.optimizer.")
    return optimizer.rule(risk) if ours else None


def _update_of(risk: Risk, optimizer: FirstOrder) -> Update:
    """Return the update; its R is triangular in coordinates of the span of tokens and queries.

    Signs and largest entries depend on the coordinates, and of what a ridge shrinks outside of the
    span only the norm is known.
    """
    rule = _rule(optimizer, risk)
    assert rule is not None  # as checked in `uncompiled`
    of_gradient = rule.direction is None and not rule.beta
    of_entries = rule.direction is not None and rule.direction.code in (ADAM, MAX, L1, HYBRID)
    return Update(
        loss=LOSS_CODES[type(risk.loss)],
        target=getattr(risk.loss, "target", 0.0),
        log_ridge=log_of(2 * optimizer.ridge),
        exact=optimizer.gradient == "log_domain",
        decays=optimizer.weight_decay > 0,
        triangular=not of_entries and (of_gradient or not optimizer.ridge),
        classes=False,
        rule=rule,
    )


# --- the loop -------------------------------------------------------------------------------------

TOGETHER = 2**20
"""Numbers that are kept of the stops of a stretch, at most: 8 MiB."""


def run(
    optimizer: FirstOrder,
    threads: int,
    risk: Risk,
    variables: Variables,
    recorder: SnapshotRecorder,
    report: Report,
) -> Variables:
    """Take the steps of `optimizer` in `threads` threads; otherwise as `Optimizer.run`."""
    loop = _Loop(risk, optimizer, variables, recorder)
    loop.run(optimizer, threads, report)
    return loop.last


class _Loop(BlockSteps):
    """The tokens in their span, the variables in coordinates, in blocks of eight instances.

    Trained are W^T, or K in the span of the tokens and Q in that of the queries, both in the span
    of their rows. At the stops variables, W, logits and margins are kept.
    """

    def __init__(
        self, risk: Risk, optimizer: FirstOrder, variables: Variables, recorder: SnapshotRecorder
    ) -> None:
        batch = risk.batch
        self.B, self.n, self.T, self.d = batch.X.shape
        self.blocks = -(-self.B // LANES)
        self.update = _update_of(risk, optimizer)
        shrinks = optimizer.ridge > 0 and not self.update.triangular
        self.risk, self.start, self.last, self.recorder = risk, variables, variables, recorder
        basis, X = _in_token_span(batch, self.update) if not shrinks else (None, batch.X)
        queries, R = None, batch.Z.mT
        if self.update.triangular:
            queries, R = orthonormal(batch.Z.mT)
        # of the tokens as given: in another basis equal scores would differ by rounding
        features = batch.head.features(batch.X, batch.head_parameters)
        assert features is not None  # as checked in `uncompiled`
        F, kinds = features
        bias = torch.zeros_like(X[..., 0]).masked_fill(~batch.mask, -torch.inf)
        weights = batch.Y * batch.has_query / -self.n
        classes = X.shape[2] == X.shape[3] and bool((X == torch.eye(X.shape[3])).all())
        self.update = self.update._replace(classes=classes)
        of_kinds = LaneArray(blocks_of(kinds.expand(LANES, 3, -1)).array[0])
        tokens, of_tokens, *others = map(blocks_of, (X, F, R, bias, batch.Y, weights))
        self.data = Instance(tokens, of_tokens, of_kinds, *others)
        self.m, self.columns = 0, variables[0].shape[-1]
        if len(variables) == 1:
            W_T = variables[0].mT.contiguous()
            self.Q = self.variable(W_T, queries, None if basis is None else basis.mT)
            self.K = self.Q  # is not used
            return
        K0, Q0 = variables
        rows = None
        if self.update.triangular:
            both = torch.cat([_times(basis, K0), _times(queries, Q0)], 1)
            rows = orthonormal(both.mT)[0].mT if both.shape[2] > both.shape[1] else None
        self.K, self.Q = self.variable(K0, basis, rows), self.variable(Q0, queries, rows)
        self.m = self.K.V.shape[-1]

    def variable(self, start: Tensor, left: Tensor | None, right: Tensor | None) -> Variable:
        """Return a variable from its start (B, p, q), in bases left (B, p, a) and right (B, b, q).

        The squared norm of what is outside of their spans is not computed without a ridge: only
        that shrinks it.
        """
        V = _times(left, start)
        V = (V if right is None else torch.bmm(V, right.mT)).contiguous()
        (p, q), rule = V.shape[1:], self.update.rule
        adam = rule.direction is not None and rule.direction.code == ADAM
        sizes = ((p, q) if needed else (0, 0) for needed in (rule.beta or adam, adam))
        memory = LaneArray.several(*((self.blocks, *size) for size in (*sizes, *[(1,)] * 4)))
        for array, value in zip(memory, (0, 0, 1, 0, -np.inf, -np.inf), strict=True):
            array[:] = value
        M, S, share, square, scale_M, scale_S = memory
        if self.update.log_ridge > -math.inf:
            inside = V if left is None else torch.bmm(left, V)
            rest = start - (inside if right is None else torch.bmm(inside, right))
            square = blocks_of(torch.linalg.vector_norm(rest, dim=(1, 2)).square().unsqueeze(1))
        bases = (start[:, :0, :0] if E is None else E for E in (left, right))
        arrays = map(blocks_of, (V, start, V, *bases))
        return Variable(next(arrays), share, square, M, scale_M, S, scale_S, *arrays)

    def record(self, stretch: Stretch) -> None:
        """Take the views of the snapshots of a stretch, whose weights are stored."""
        *weights, logits, margins = stretch.seen
        self.last = tuple(V[-1].clone() for V in weights[: len(self.start)])
        self.recorder.take_views(log_attention(logits), margins)

    def most_stops(self) -> int:
        """Return the largest number of stops of a stretch."""
        entries = (1 + 2 * bool(self.m)) * self.d**2 + self.n * self.T
        return max(1, TOGETHER // (self.blocks * LANES * entries))

    def kept(self, stops: int, at: int) -> list[Tensor]:
        """Return tensors (stops, B, ...) for the factors, W, logits and margins.

        Those of W, and of factors that are kept, are part of the trajectory.
        """
        recorder = self.recorder
        stored = (*recorder.factors, recorder.snapshots)
        factors = self.start if self.m and not recorder.factors else ()
        shapes = *(V.shape[1:] for V in factors), (self.n, self.T), (self.n,)
        *scratch, logits, margins = (
            torch.empty(stops, self.B, *shape, dtype=torch.float64) for shape in shapes
        )
        parts = (V[:, at : at + stops].transpose(0, 1) for V in stored)
        return [*scratch, *parts, logits, margins]

    def take(self, first: int, last: int, plan: Any, stops: Any) -> list[Tensor]:
        """Take the steps of some blocks; return what is kept at the stops."""
        (_, n, T, r), (_, c, _) = self.data.X.shape, self.data.R.shape
        work = work_arrays(n, T, r, c, self.data.F.shape[-1], self.m, self.columns)
        of_factors = self.K.start.shape[1:] if self.m else (0, 0)
        shapes_kept = of_factors, of_factors, (self.d, self.d), (self.n, self.T), (self.n,)
        here = len(stops), last - first
        kept = Kept(*LaneArray.several(*(here + shape for shape in shapes_kept)))
        take_steps(first, last, self.data, work, self.K, self.Q, kept, plan, stops, self.update)
        count = min(LANES * last, self.B) - LANES * first
        arrays = (torch.from_numpy(lanes.array).movedim(-1, 2).flatten(1, 2) for lanes in kept)
        K, Q, W, logits, margins = (array[:, :count] for array in arrays)
        return [K, Q, W, logits, margins] if self.m else [W.mT, logits, margins]


def _times(basis: Tensor | None, V: Tensor) -> Tensor:
    """Return V (B, d, .) in a basis (B, d, r); None is the identity."""
    return V if basis is None else torch.bmm(basis.mT, V)


def _in_token_span(batch: ProblemBatch, update: Update) -> tuple[Tensor | None, Tensor]:
    """Return a basis (B, d, r) of the span of the tokens and X in it; no basis where d is small.

    Of a linear classifier it is the entries that some token has, whatever the rule of steps.
    """
    B, n, T, d = batch.X.shape
    if d <= n * T or not update.triangular:
        used = (batch.X != 0).flatten(0, 2).any(0)
        if used.all() or not used.any():
            return None, batch.X
        return torch.eye(d, dtype=torch.float64)[:, used].expand(B, -1, -1), batch.X[..., used]
    basis, coordinates = orthonormal(batch.X.reshape(B, n * T, d).mT)
    return basis, coordinates.mT.reshape(B, n, T, n * T)
