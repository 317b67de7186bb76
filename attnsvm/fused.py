"""Training by the fused kernel, where it applies: the same steps as the torch loop, much faster.

It applies to W and (K, Q) on the CPU with normalised or plain gradient descent, the exact
gradient (for W without ridge the published one as well), heads that are sums of functions of
projections, and the three losses.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm import loss as losses
from attnsvm.kernel import EXPONENTIAL, LOGISTIC, train_kq, train_w
from attnsvm.optimizer import GD, FirstOrder, NormalizedGD, Optimizer, Report, Visit
from attnsvm.parameterization import KQ, Variables, W
from attnsvm.problem import ProblemBatch
from attnsvm.risk import Risk
from attnsvm.simd import LANES

LOSS_CODES = {losses.Logistic: LOGISTIC, losses.Exponential: EXPONENTIAL, losses.Linear: 2}

Array = np.ndarray[Any, np.dtype[np.float64]]


def applies(risk: Risk, optimizer: Optimizer) -> bool:
    """Return whether the kernel can take the steps of `optimizer` on `risk`."""
    batch, one = risk.batch, risk.batch.take(slice(1))
    return (
        type(optimizer) in (NormalizedGD, GD)
        and isinstance(optimizer, FirstOrder)
        and (optimizer.gradient == "log_domain" or _published_w(risk, optimizer))
        and type(risk.rule) in (W, KQ)
        and type(risk.loss) in LOSS_CODES
        and batch.X.device.type == "cpu"
        and not batch.head.train
        and batch.head.features(one.X, one.head_parameters) is not None
    )


def _published_w(risk: Risk, optimizer: FirstOrder) -> bool:
    """Return whether this is the published update of W; that of (K, Q) amplifies last bits."""
    return type(risk.rule) is W and not optimizer.ridge


def run(
    risk: Risk, optimizer: FirstOrder, variables: Variables, visit: Visit, report: Report
) -> Variables:
    """Take the steps of `optimizer` from `variables`; arguments as those of `Optimizer.run`."""
    loop = (_LoopW if len(variables) == 1 else _LoopKQ)(risk, optimizer, variables)
    done = 0
    for stop in optimizer.grid():
        if stop > done:
            loop.advance([optimizer.step_size(k) for k in range(done, int(stop))])
            variables = loop.variables()
        done = int(stop)
        visit(variables, risk.forward(variables))
        report(done)
    return variables


class _Loop:
    """What both parameterizations share: the tokens in their span, in blocks of eight lanes."""

    def __init__(self, risk: Risk, optimizer: FirstOrder) -> None:
        batch = risk.batch
        self.B, self.n, self.T, _ = batch.X.shape
        self.basis, X = _in_span(batch)
        self.r = X.shape[-1]
        rotated = {name: self.inside(p) for name, p in batch.head_parameters.items()}
        features = batch.head.features(X, rotated)
        assert features is not None  # `applies` has seen to it
        F, kinds = features
        self.Z, self.kinds, self.k = batch.Z, kinds.numpy(), F.shape[-1]
        bias = torch.zeros_like(X[..., 0]).masked_fill(~batch.mask, -torch.inf)
        data = (X, F, torch.bmm(batch.Z, batch.Z.mT), bias, batch.Y)
        self.X, self.F, self.gram, self.bias, self.Y = (to_lanes(tensor) for tensor in data)
        self.loss = LOSS_CODES[type(risk.loss)]
        self.log_ridge = math.log(2 * optimizer.ridge) if optimizer.ridge else -math.inf
        self.normalized = isinstance(optimizer, NormalizedGD)
        self.exact = optimizer.gradient == "log_domain"

    def inside(self, V: Tensor) -> Tensor:
        """Return V (B, d, ...) in the basis of the span of the tokens, (B, r, ...)."""
        if self.basis is None:
            return V
        flat = V.reshape(len(V), V.shape[1], -1)
        return torch.bmm(self.basis.mT, flat).reshape(len(V), self.r, *V.shape[2:])

    def back(self, V: Tensor) -> Tensor:
        """Return V (B, r, c) in the coordinates of the tokens, (B, d, c)."""
        return V if self.basis is None else torch.bmm(self.basis, V)

    def spread(self, kernel: Any, etas: list[float], *arrays: Any, sizes: tuple[int, ...]) -> None:
        """Call the kernel on all blocks, a share of them in each of torch's threads."""
        steps = np.array(etas)
        blocks, threads = len(self.X), torch.get_num_threads()
        bounds = np.linspace(0, blocks, min(threads, blocks) + 1).astype(int)
        shared = (self.X, self.F, self.kinds, self.gram, self.bias, self.Y, *arrays, steps)
        rest = (self.loss, self.log_ridge, self.normalized, self.n, self.T, self.r, self.k, *sizes)
        with ThreadPoolExecutor(threads) as pool:
            tasks = [
                pool.submit(kernel, int(first), int(last), *shared, *rest)
                for first, last in pairwise(bounds)
            ]
            for task in tasks:
                task.result()


class _LoopW(_Loop):
    """W = a W0 + sum_i V_i z_i^T."""

    def __init__(self, risk: Risk, optimizer: FirstOrder, variables: Variables) -> None:
        super().__init__(risk, optimizer)
        (self.W0,) = (V.clone() for V in variables)
        U0 = torch.bmm(self.Z, self.inside(self.W0).mT)
        self.U, self.U0, self.V = to_lanes(U0), to_lanes(U0), to_lanes(torch.zeros_like(U0))
        self.a = to_lanes(U0.new_ones(self.B, 1))
        self.square0 = to_lanes(self.W0.square().sum((1, 2)).unsqueeze(1))

    def advance(self, etas: list[float]) -> None:
        """Take one step for each size in `etas`."""
        arrays = (self.U, self.U0, self.V, self.a, self.square0)
        self.spread(train_w, etas, *arrays, sizes=(self.exact,))

    def variables(self) -> Variables:
        """Return (W,)."""
        V = from_lanes(self.V, (self.B, self.n, self.r))
        share = from_lanes(self.a, (self.B, 1, 1))
        return (share * self.W0 + torch.bmm(self.back(V.mT), self.Z),)


class _LoopKQ(_Loop):
    """K in the span of the tokens, Q = a[1] Q0 + sum_i z_i VQ_i^T, both in the rows' span."""

    def __init__(self, risk: Risk, optimizer: FirstOrder, variables: Variables) -> None:
        super().__init__(risk, optimizer)
        self.K0, self.Q0 = (V.clone() for V in variables)
        K, B = self.inside(self.K0), torch.bmm(self.Z, self.Q0)
        self.outside = self.K0 - self.back(K)
        self.columns = _row_basis(torch.cat([K, B], 1))
        K, B = self.narrow(K), self.narrow(B)
        self.m = K.shape[-1]
        self.K, self.B0, self.Bz = to_lanes(K), to_lanes(B), to_lanes(B)
        self.VQ, self.a = to_lanes(torch.zeros_like(B)), to_lanes(K.new_ones(self.B, 2))
        squares = [V.square().sum((1, 2)) for V in (self.outside, self.Q0)]
        self.square0 = to_lanes(torch.stack(squares, 1))

    def narrow(self, V: Tensor) -> Tensor:
        """Return the columns of V (B, ., m) in their basis."""
        return V if self.columns is None else torch.bmm(V, self.columns)

    def widen(self, V: Tensor) -> Tensor:
        """Undo `narrow`."""
        return V if self.columns is None else torch.bmm(V, self.columns.mT)

    def advance(self, etas: list[float]) -> None:
        """Take one step for each size in `etas`."""
        arrays = (self.K, self.Bz, self.B0, self.VQ, self.a, self.square0)
        self.spread(train_kq, etas, *arrays, sizes=(self.m,))

    def variables(self) -> Variables:
        """Return (K, Q)."""
        share = from_lanes(self.a, (self.B, 2, 1, 1))
        K = self.widen(from_lanes(self.K, (self.B, self.r, self.m)))
        VQ = self.widen(from_lanes(self.VQ, (self.B, self.n, self.m)))
        return share[:, 0] * self.outside + self.back(K), share[:, 1] * self.Q0 + torch.bmm(
            self.Z.mT, VQ
        )


def to_lanes(tensor: Tensor) -> Array:
    """Return a tensor (B, ...) as blocks (ceil(B / 8), entries * 8), the last instance repeated."""
    B = len(tensor)
    blocks = -(-B // LANES)
    index = torch.arange(blocks * LANES).clamp(max=B - 1)
    flat = tensor.reshape(B, -1)[index].view(blocks, LANES, -1)
    lanes: Array = flat.mT.reshape(blocks, -1).contiguous().numpy()
    return lanes


def from_lanes(array: Array, shape: tuple[int, ...]) -> Tensor:
    """Return the tensor of this shape, (B, ...), that `to_lanes` made into blocks."""
    blocks = len(array)
    flat = torch.from_numpy(array).view(blocks, -1, LANES).mT.reshape(blocks * LANES, -1)
    return flat[: shape[0]].reshape(shape)


def _in_span(batch: ProblemBatch) -> tuple[Tensor | None, Tensor]:
    """Return a basis (B, d, r) of the span of the tokens and X in it; no basis where d is small."""
    B, n, T, d = batch.X.shape
    if d <= n * T:
        return None, batch.X
    basis, coordinates = torch.linalg.qr(batch.X.reshape(B, n * T, d).mT)
    return basis, coordinates.mT.reshape(B, n, T, n * T)


def _row_basis(rows: Tensor) -> Tensor | None:
    """Return a basis (B, m, c) of the span of the rows (B, c, m), none where m <= c."""
    if rows.shape[2] <= rows.shape[1]:
        return None
    basis: Tensor = torch.linalg.qr(rows.mT)[0]
    return basis
