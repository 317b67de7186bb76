"""A network during training: its risk, and the exact gradient in everything that is trained."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnsvm.data.problem import ProblemBatch
from attnsvm.head import Projections, Relu
from attnsvm.linalg import unit
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import blocks_of, of_blocks
from attnsvm.loss import LOSS_CODES, Loss
from attnsvm.model import READOUTS, Transformer
from attnsvm.optimizer.base import TINY
from attnsvm.parameterization import Parameterization, Variables
from attnsvm.transformer.compiled import Data, Sizes, descend_layers, work_arrays
from attnsvm.transformer.network import Weights, admissible, forward, of_head, read


@dataclass(frozen=True, eq=False)
class Adjoints:
    """Derivatives of the risk in rows and weights.

    V dL/do_k / sqrt(H) of the rows o_k that attention gives is r e^r_exponent, shapes
    (B, L, H, n, T, d) and (B, L, n, T); 0 for rows that nothing reads. dL/dU_k of U_k = W x_k is
    P e^P_exponent, P_exponent of shape (B, L, H, n, T); dL/dW is the sum of P_k x_k^T. The
    gradients in W and in what else is trained, by the names of `Weights.others`, are each up to a
    factor for each matrix.
    """

    r: Tensor
    r_exponent: Tensor
    P: Tensor
    P_exponent: Tensor
    gradients: dict[str, Tensor]


class TrainedNetwork:
    """The objective of a training, as `Risk` is that of one layer.

    The variables of attention are those of the parameterization `rule`, of all layers and heads
    (B, L, H, ...). What else the model trains are matrices of `Weights`.
    """

    def __init__(
        self, model: Transformer, batch: ProblemBatch, loss: Loss, rule: Parameterization
    ) -> None:
        self.model, self.batch, self.loss, self.rule = model, batch, loss, rule
        X, Y, mask = model.sequences(batch.X, batch.Y, batch.mask)
        self.X, self.Y = X.contiguous(), Y.contiguous()
        self.mask = None if bool(mask.all()) else mask.contiguous()
        self.stack = batch.B, model.layers, model.heads
        zero = X.new_zeros(*self.stack, batch.d, batch.d)
        self.drawn = Weights.drawn(model, batch.seeds, zero, batch.head_parameters)

    def combined(self, attention: Variables) -> Tensor:
        """Return W, (B, L, H, d, d), of the variables of attention."""
        W = self.rule.combine(tuple(V.flatten(0, 2) for V in attention))
        return W.view(*self.stack, *W.shape[1:])

    def risk(self, rows: Tensor, weights: Weights) -> Tensor:
        """Return the risk, (B,), of the rows after the last layer."""
        margins = self.Y * self.batch.head.value(read(self.model, rows), weights.head)
        return self.loss.value(margins).flatten(1).mean(1)

    def recorded(self, weights: Weights) -> tuple[Tensor, Tensor]:
        """Return the risk (B,), and log s of every layer (B, L, H, n, T, T)."""
        layers = forward(self.model, weights, self.X, self.mask)
        log_s = torch.stack([layer.log_s for layer in layers], 1)
        return self.risk(layers[-1].rows, weights), log_s

    def stepped(
        self, attention: Variables, weights: Weights, eta: float, how: str
    ) -> tuple[Variables, Weights]:
        """Return variables and weights after a step along the gradient, `direct` or exact."""
        if how == "direct":
            gradients = {"W": self.direct(weights)}
        else:
            exact = self.adjoints(weights).gradients
            gradients = {name: _unit_size(G) for name, G in exact.items()}
        in_W = gradients["W"].flatten(0, 2)
        unit = torch.eye(in_W.shape[-1], dtype=in_W.dtype, device=in_W.device).expand_as(in_W)
        parts = self.rule.pullback(tuple(V.flatten(0, 2) for V in attention), in_W.mT, unit)
        pairs = zip(attention, parts, strict=True)
        moved = tuple(_descended(V, G.view_as(V), eta) for V, G in pairs)
        trained = {
            name: _descended(V, gradients[name], self.model.rate * eta)
            for name, V in weights.others(self.model).items()
        }
        return moved, weights.replaced({"W": self.combined(moved), **trained})

    def direct(self, weights: Weights) -> Tensor:
        """Return the gradient in W by torch's own backward pass."""
        with torch.enable_grad():
            W = weights.W.detach().requires_grad_()
            tracked = weights.replaced({"W": W})
            layers = forward(self.model, tracked, self.X, self.mask, published=True)
            (value,) = torch.autograd.grad(self.risk(layers[-1].rows, weights).sum(), W)
        return value

    def direction_error(self, weights: Weights) -> Tensor:
        """Return the relative error of the direction of the direct gradient, (B, L, H)."""
        exact = unit(self.adjoints(weights).gradients["W"])
        return (unit(self.direct(weights)) - exact).norm(dim=(-2, -1))

    # --- exact adjoints, compiled -----------------------------------------------------------------

    def in_blocks(
        self, weights: Weights, head: Projections | None = None, m: int = 0
    ) -> tuple[Data, Sizes]:
        """Return what is given to the compiled code, with m columns of K, and its sizes.

        Without the head the adjoints of the last rows are given.
        """
        (B, n, T, d), model, loss = self.X.shape, self.model, self.loss
        F, kinds = self.X.new_empty(B, d, 0), self.X.new_empty(3, 0)
        if head is not None:
            F, kinds = head.projections(weights.head)
        allowed = admissible(T, model.causal, self.mask).expand(B, 1, n, T, T)[:, 0]
        bias = torch.zeros(B, n, T, T, dtype=torch.float64).masked_fill(~allowed, -torch.inf)
        matrices = (
            self.X.new_empty(B, 0, 0, 0, 0)
            if V is None
            else V.reshape(B, model.layers, -1, *V.shape[-2:])
            for V in (weights.V, weights.M1, weights.M2)
        )
        others = (model.rate * model.trains(part) for part in ("values", "mlp", "mlp", "head"))
        Y = self.Y.view(B, n, -1)
        arrays = (
            self.X,
            bias,
            *matrices,
            F[:, None, None],
            kinds.expand(B, 3, -1),
            Y,
            -Y / Y[0].numel(),
        )
        kept = math.sqrt(0.5)
        sizes = Sizes(
            n=n,
            T=T,
            d=d,
            L=model.layers,
            H=model.heads,
            k=F.shape[-1],
            m=m,
            width=model.mlp,
            residual=model.residual,
            values=weights.V is not None,
            kept=kept if model.residual else 0.0,
            share=(kept if model.residual else 1.0) / math.sqrt(model.heads),
            rates=(1.0, float(m > 0), *others),
            readout=READOUTS.index(model.readout),
            loss=LOSS_CODES.get(type(loss), 0),
            target=getattr(loss, "target", 0.0),
            with_adjoints=head is None,
        )
        return Data(*(blocks_of(V.cpu()) for V in arrays)), sizes

    def adjoints(self, weights: Weights) -> Adjoints:
        """Return the exact adjoints, of any head and loss.

        They are computed on the processor, whatever the device of the weights.
        """
        rows = forward(self.model, weights, self.X, self.mask)[-1].rows
        *of_rows, in_head = self._readout(rows, weights)
        W, g, c = (blocks_of(V.cpu()) for V in (weights.W, *of_rows))
        data, sizes = self.in_blocks(weights)
        work = work_arrays(sizes)
        work.r[:], work.P[:], work.P_exponent[:] = 0.0, 0.0, -torch.inf  # of rows that none reads
        trained = ["W", *(name for name in weights.others(self.model) if hasattr(weights, name))]
        names = ["r", "r_exponent", "P", "P_exponent", *(f"d{name}" for name in trained)]
        kept = []
        for b in range(len(data.X)):
            work.g[:], work.c[:] = g[b], c[b]
            descend_layers(b, b + 1, data, work, (W, W), np.zeros(1), sizes)
            kept.append([getattr(work, name).array.copy() for name in names])
        r, r_exponent, P, P_exponent, *gradients = (
            of_blocks(LaneArray(np.stack(arrays)), len(rows)).to(rows.device)
            for arrays in zip(*kept, strict=True)
        )
        pairs = zip(trained, gradients, strict=True)
        in_matrices = {name: G.view_as(getattr(weights, name)) for name, G in pairs}
        return Adjoints(r, r_exponent, P, P_exponent, in_matrices | in_head)

    def _readout(self, rows: Tensor, weights: Weights) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return g (B, n, T, d) and c (B, n, T) of dL/dx_k = g e^c of the last rows x_k.

        c is -inf where g is 0. And return the gradient in the parameters of the head, up to a
        factor, if it is trained.
        """
        o, head, T, in_head = read(self.model, rows), self.batch.head, rows.shape[2], {}
        slope, exponent = self.loss.slope(self.Y * head.value(o, weights.head))
        slope = -slope * self.Y / self.Y[0].numel()
        slopes = head.gradient(o, weights.head)
        if self.model.trains("head"):
            of_rows = exponent
            if isinstance(head, Relu):  # a row without active projections adds nothing
                of_rows = exponent.masked_fill((slopes == 0).all(-1), -torch.inf)
            largest = of_rows.flatten(1).amax(-1).view(-1, *[1] * (exponent.ndim - 1))
            weighed = slope * _relative(of_rows, largest)
            parts = head.parameter_gradient(o, weights.head, weighed)
            in_head = {of_head(name): part for name, part in parts.items()}
        g = slopes * slope.unsqueeze(-1)
        if self.model.readout != "every":
            share = [1 / T] * T if self.model.readout == "mean" else [1.0] + [0.0] * (T - 1)
            g = g.unsqueeze(2) * g.new_tensor(share).unsqueeze(-1)
            exponent = exponent.unsqueeze(2).expand(-1, -1, T)
        return g, exponent.masked_fill((g == 0).all(-1), -torch.inf), in_head


def in_weights(P: Tensor, exponent: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of P_k e^(exponent_k) x_k^T over all rows of one layer as G e^c.

    P (B, H, n, T, d) and exponent (B, H, n, T) are as in `Adjoints`, X (B, n, T, d) is the input of
    the layer. G is (B, H, d, d), c (B, H).
    """
    adds_nothing = (P == 0).all(-1) | (X == 0).all(-1)[:, None]
    exponent = exponent.masked_fill(adds_nothing, -torch.inf)
    c = exponent.flatten(2).amax(-1)
    rows = P * _relative(exponent, c[..., None, None]).unsqueeze(-1)
    return rows.flatten(2, 3).mT @ X.flatten(1, 2)[:, None], c


def _relative(exponent: Tensor, largest: Tensor) -> Tensor:
    """Return e^(exponent - largest), 0 where both are -inf."""
    return torch.where(exponent == -torch.inf, 0.0, (exponent - largest).exp())


def _of_matrix(G: Tensor) -> tuple[int, ...]:
    """Return the axes of a matrix, or of a vector of each instance."""
    return (-2, -1) if G.ndim > 2 else (-1,)


def _unit_size(G: Tensor) -> Tensor:
    """Return G, each matrix over its largest entry; 0 where it is 0: squares do not underflow."""
    size = G.abs().amax(_of_matrix(G), keepdim=True)
    return G / torch.where(size > 0, size, 1.0)


def _descended(V: Tensor, G: Tensor, eta: float) -> Tensor:
    """Return V - eta G / ||G|| of each matrix.

    In this order of operations, which direct steps on record have: saturation leaves their rounding
    noise only.
    """
    return V - eta * G / (torch.linalg.vector_norm(G, dim=_of_matrix(G), keepdim=True) + TINY)
