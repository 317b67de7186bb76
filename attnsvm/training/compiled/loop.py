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

from attnsvm.data.problem import ProblemBatch
from attnsvm.linalg import orthonormal
from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import blocks_of
from attnsvm.loss import LOSS_CODES
from attnsvm.nn.risk import Risk, log_attention
from attnsvm.optimizer import GD, FirstOrder, NormalizedGD
from attnsvm.optimizer.base import Optimizer, Rule, log_of
from attnsvm.optimizer.gradient_descent import ADAM
from attnsvm.parameterization import KQ, Variables, W
from attnsvm.training.compiled.gradient import Instance, Update, work_arrays
from attnsvm.training.compiled.steps import Kept, Variable, take_steps
from attnsvm.training.schedule import BlockSteps
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


TOGETHER = 2**20
"""Numbers that are kept of the stops of a stretch, at most: 8 MiB."""


class _Coordinates:
    """A variable (B, p, q): `share` times its start, plus left (V - share V0) right.

    So it is its start to the last bit without an update. V (B, a, b) are coordinates in orthonormal
    bases left (B, p, a) and right (B, b, q), V0 those of the start; None is the identity.
    """

    def __init__(self, start: Tensor, left: Tensor | None, right: Tensor | None) -> None:
        self.start, self.left, self.right = start, left, right
        V = _times(left, start)
        self.V0 = (V if right is None else torch.bmm(V, right.mT)).contiguous()

    def outside(self, V: Tensor) -> Tensor:
        """Return left V right, of V (..., B, a, b)."""
        V = V if self.right is None else V @ self.right
        return V if self.left is None else self.left @ V

    def weights(self, V: Tensor, share: Tensor) -> Tensor:
        """Return the variable (stops, B, p, q), of V (stops, B, a, b) and share (stops, B, 1)."""
        share = share.unsqueeze(-1)
        return share * self.start + self.outside(V - share * self.V0)

    def in_blocks(self, update: Update) -> Variable:
        """Return what compiled code updates.

        The squared norm of what is outside of the spans is not computed without a ridge: only that
        shrinks it.
        """
        V, rule = blocks_of(self.V0), update.rule
        adam = rule.direction is not None and rule.direction.code == ADAM
        sizes = (V.shape[1:] if needed else (0, 0) for needed in (rule.beta or adam, adam))
        memory = LaneArray.several(*((len(V), *size) for size in (*sizes, *[(1,)] * 4)))
        for array, value in zip(memory, (0, 0, 1, 0, -np.inf, -np.inf), strict=True):
            array[:] = value
        M, S, share, square, scale_M, scale_S = memory
        if update.log_ridge > -math.inf:
            rest = torch.linalg.vector_norm(self.start - self.outside(self.V0), dim=(1, 2))
            square = blocks_of(rest.square().unsqueeze(1))
        return Variable(V, share, square, M, scale_M, S, scale_S)


class CompiledLoop(BlockSteps):
    """The tokens in their span, the variables in coordinates, in blocks of eight instances.

    Trained are W^T, or K in the span of the tokens and Q in that of the queries, both in the span
    of their rows. At the stops coordinates, logits and margins are kept.
    """

    def __init__(
        self, risk: Risk, optimizer: FirstOrder, variables: Variables, recorder: SnapshotRecorder
    ) -> None:
        batch = risk.batch
        self.B, self.n, self.T, d = batch.X.shape
        self.blocks, self.recorder = -(-self.B // LANES), recorder
        rule, shrinks = _rule(optimizer, risk), optimizer.ridge > 0
        assert rule is not None  # as checked in `uncompiled`
        of_gradient = rule.direction is None and not rule.beta
        # of what a ridge shrinks outside of the spans only the norm is known
        in_spans = (of_gradient or not shrinks) and (not rule.direction or rule.direction.turns)
        basis, X = (None, batch.X) if shrinks and not in_spans else _in_token_span(batch, in_spans)
        queries, R = orthonormal(batch.Z.mT) if in_spans else (None, batch.Z.mT)
        # of the tokens as given: in another basis equal scores would differ by rounding
        features = batch.head.features(batch.X, batch.head_parameters)
        assert features is not None  # as checked in `uncompiled`
        F, kinds = features
        bias = torch.zeros_like(X[..., 0]).masked_fill(~batch.mask, -torch.inf)
        weights = batch.Y * batch.has_query / -self.n
        self.update = Update(
            loss=LOSS_CODES[type(risk.loss)],
            target=getattr(risk.loss, "target", 0.0),
            log_ridge=log_of(2 * optimizer.ridge),
            exact=optimizer.gradient == "log_domain",
            decays=optimizer.weight_decay > 0,
            triangular=in_spans,  # R is
            classes=X.shape[2] == X.shape[3] and bool((X == torch.eye(X.shape[3])).all()),
            rule=rule,
        )
        arrays = X, F, kinds.expand(self.B, 3, -1), R, bias, batch.Y, weights
        self.data = Instance(*map(blocks_of, arrays))
        bases = [(queries, None if basis is None else basis.mT)]
        starts = [V.mT.contiguous() for V in variables]
        if len(variables) == 2:
            rows, starts = None, [*variables]
            if in_spans:
                both = torch.cat([_times(basis, starts[0]), _times(queries, starts[1])], 1)
                rows = orthonormal(both.mT)[0].mT if both.shape[2] > both.shape[1] else None
            bases = [(basis, rows), (queries, rows)]
        self.variables = [_Coordinates(V, *E) for V, E in zip(starts, bases, strict=True)]
        blocks = [V.in_blocks(self.update) for V in self.variables]
        self.K, self.Q = blocks[0], blocks[-1]
        self.m = self.K.V.shape[-1] * (len(variables) - 1)
        entries = len(variables) * d * d + self.n * self.T
        self.most_stops = max(1, TOGETHER // (self.blocks * LANES * entries))

    def record(self, seen: list[Tensor]) -> None:
        """Take the next snapshots."""
        *coordinates, logits, margins = seen
        pairs = zip(self.variables, coordinates[::2], coordinates[1::2], strict=True)
        weights = [variable.weights(V, share) for variable, V, share in pairs]
        weights = weights if self.m else [weights[0].mT]
        self.recorder.take_all(weights, log_attention(logits), margins)

    def take(self, first: int, last: int, plan: Any, stops: Any) -> list[Tensor]:
        """Take the steps of some blocks; return what is kept at the stops."""
        (_, n, T, r), (_, c, _) = self.data.X.shape, self.data.R.shape
        work = work_arrays(n, T, r, c, self.data.F.shape[-1], self.m)
        of_K = self.K.V.shape[1:] if self.m else (0, 0)
        shapes = of_K, (1,), self.Q.V.shape[1:], (1,), (n, T), (n,)
        kept = Kept(*LaneArray.several(*((len(stops), last - first, *shape) for shape in shapes)))
        take_steps(first, last, self.data, work, self.K, self.Q, kept, plan, stops, self.update)
        count = min(LANES * last, self.B) - LANES * first
        arrays = (torch.from_numpy(lanes.array).movedim(-1, 2).flatten(1, 2) for lanes in kept)
        return [array[:, :count] for array in arrays][0 if self.m else 2 :]


def _times(basis: Tensor | None, V: Tensor) -> Tensor:
    """Return V (B, d, .) in a basis (B, d, r); None is the identity."""
    return V if basis is None else torch.bmm(basis.mT, V)


def _in_token_span(batch: ProblemBatch, turns: bool) -> tuple[Tensor | None, Tensor]:
    """Return a basis (B, d, r) of the span of the tokens and X in it; no basis where d is small.

    Of a linear classifier it is the entries that some token has, whatever the rule of steps.
    """
    B, n, T, d = batch.X.shape
    if d <= n * T or not turns:
        used = (batch.X != 0).flatten(0, 2).any(0)
        if used.all() or not used.any():
            return None, batch.X
        return torch.eye(d, dtype=torch.float64)[:, used].expand(B, -1, -1), batch.X[..., used]
    basis, coordinates = orthonormal(batch.X.reshape(B, n * T, d).mT)
    return basis, coordinates.mT.reshape(B, n, T, n * T)
