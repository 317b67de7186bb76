"""Steps of all layers and heads along their normalised gradients: by torch, or compiled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.head import Linear, Relu
from attnsvm.linalg.jit import announced
from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import blocks_of, of_blocks
from attnsvm.loss import Squared
from attnsvm.model import READOUTS
from attnsvm.optimizer.first_order import TINY
from attnsvm.parameterization import Parameterization, Variables
from attnsvm.training import LOSS_CODES
from attnsvm.transformer.compiled import Data, Sizes, descend_layers, work_arrays
from attnsvm.transformer.network import admissible
from attnsvm.transformer.parameters import OtherParameters
from attnsvm.transformer.trained import TrainedNetwork

PROJECTING = Linear, Relu
"""Heads whose one parameter is the projections of `Head.features`."""


def combined(rule: Parameterization, variables: Variables) -> Tensor:
    """Return W, shape (B, L, H, d, d), of variables (B, L, H, ...)."""
    B, L, H = variables[0].shape[:3]
    W = rule.combine(tuple(V.flatten(0, 2) for V in variables))
    return W.view(B, L, H, *W.shape[1:])


def compilable(net: TrainedNetwork) -> bool:
    """Return whether the compiled loop applies."""
    return (
        net.features is not None
        and (not net.model.trains("head") or type(net.batch.head) in PROJECTING)
        and type(net.loss) in LOSS_CODES
        and net.X.device.type == "cpu"
        and net.how == "log_domain"
    )


class TorchSteps:
    """Steps of the torch loop: any network, any device."""

    def __init__(self, net: TrainedNetwork, rule: Parameterization, start: Variables) -> None:
        self.net, self.rule = net, rule
        self.variables = tuple(V.clone() for V in start)

    def advance(self, etas: list[float]) -> Variables:
        """Take a step of each size in `etas`."""
        for eta in etas:
            G = self.net.stepped(combined(self.rule, self.variables), eta)
            if len(self.variables) == 1:
                parts: Variables = (G,)
            else:
                K, Q = self.variables
                parts = G @ Q, G.mT @ K
            self.variables = tuple(
                V - eta * part / (part.norm(dim=(-2, -1), keepdim=True) + TINY)
                for V, part in zip(self.variables, parts, strict=True)
            )
        return self.variables


class CompiledSteps:
    """Steps of the compiled loop, blocks of eight instances in threads."""

    def __init__(self, net: TrainedNetwork, start: Variables, threads: int) -> None:
        model, batch, loss = net.model, net.batch, net.loss
        B, n, T, d = net.X.shape
        assert net.features is not None  # as checked in `compilable`
        F, kinds = net.features
        allowed = admissible(T, model.causal, net.mask).expand(B, 1, n, T, T)
        masked = torch.zeros(B, n, T, T, dtype=torch.float64).masked_fill(
            ~allowed[:, 0], -torch.inf
        )
        others = net.others
        values, first, second = (
            net.X.new_empty(B, *[0] * axes) if P is None else P
            for P, axes in ((others.V, 4), (others.M1, 3), (others.M2, 3))
        )
        X, bias, V, M1, M2, projections = (
            blocks_of(P) for P in (net.X, masked, values, first, second, F[:, 0])
        )
        Y, weights = (blocks_of(P.reshape(B, n, -1)) for P in (net.Y, -net.Y / net.Y[0].numel()))
        of_kinds = LaneArray(blocks_of(kinds.expand(LANES, 3, -1)).array[0])
        self.data = Data(X, bias, V, M1, M2, projections, of_kinds, Y, weights)
        self.variables = [blocks_of(V) for V in start]
        self.blocks, self.threads, self.net = -(-batch.B // LANES), threads, net
        self.sizes = Sizes(
            n=n, T=T, d=d, L=model.layers, H=model.heads, k=F.shape[-1],
            m=start[0].shape[-1] if len(start) == 2 else 0,
            width=model.mlp, residual=model.residual, values=others.V is not None,
            train_values=model.trains("values"), train_mlp=bool(model.mlp) and model.trains("mlp"),
            train_head=model.trains("head"), rate=float(model.rate),
            readout=READOUTS.index(model.readout), loss=LOSS_CODES[type(loss)],
            target=loss.target if isinstance(loss, Squared) else 0.0,
        )  # fmt: skip
        with announced("training loop of a transformer"):
            self._steps(0, 0, np.empty(0))

    def advance(self, etas: list[float]) -> Variables:
        """Take a step of each size in `etas`."""
        lengths = np.array(etas, np.float64)
        with ThreadPoolExecutor(self.threads) as pool:
            parts = [pool.submit(self._steps, b, b + 1, lengths) for b in range(self.blocks)]
            for part in parts:
                part.result()
        self.net.others = self._others()
        return tuple(of_blocks(V, self.net.batch.B).clone() for V in self.variables)

    def _others(self) -> OtherParameters:
        """Return values, MLPs and head at the present step."""
        trained = self.net.others.trained(self.net.model)
        found = {
            name: of_blocks(getattr(self.data, name, self.data.F), len(value))
            .clone()
            .view_as(value)
            for name, value in trained.items()
        }
        return self.net.others.with_trained(found)

    def _steps(self, first: int, last: int, etas: Any) -> None:
        variables = self.variables[0], self.variables[-1]
        work = work_arrays(self.sizes)
        descend_layers(first, last, self.data, work, variables, etas, self.sizes)
