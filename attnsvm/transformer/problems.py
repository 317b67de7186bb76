"""Every layer and head of a trained network as a one-layer problem of its own.

In the limit a layer's input and the adjoints of its output no longer change, so its attention
weights see a fixed one-layer problem: the samples are the rows of its input that the readout sees,
as queries; the keys are the rows of the same sequence; and the score of a token is linear,

    gamma_kt = -(dL/do_k)^T V^T x_t,

how much the risk falls, to first order, if row k attends more to token t.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.data.problem import ProblemBatch
from attnsvm.head import RowScores
from attnsvm.linalg import own_settings
from attnsvm.model import Transformer
from attnsvm.nn.risk import log_attention
from attnsvm.optimizer.base import broadcast
from attnsvm.parameterization import W
from attnsvm.training import Trajectory
from attnsvm.transformer.network import Layer, forward
from attnsvm.transformer.trained import TrainedNetwork, in_weights
from attnsvm.transformer.training import LayerTrajectory


@dataclass(frozen=True, eq=False)
class LayerProblems:
    """One-layer problems of every instance, layer and head, in this order: B L H of them.

    Attributes
    ----------
    batch : ProblemBatch
        n T samples each, one for every position of every sequence; a position that the readout
        does not see has one admissible token, the one that it attends to, hence no constraint.
    path : Trajectory
        The weights of this layer and head over the steps, and its attention at the samples.
    layer, head : Tensor
        Their indices, shape (B L H,).
    visible : Tensor
        Which samples the readout sees, shape (B L H, n T), bool.
    positions_seen : Tensor
        Positions at this layer's input that the readout sees, mean over the sequences, (B L H,).
    log_adjoint : Tensor
        Log of the norm of r_k of every sample, -inf where the risk does not depend on the row,
        shape (B L H, n T).
    reached : Tensor
        Admissible tokens of the samples that the risk depends on, seen or not; of the others the
        one that they attend to, shape (B L H, n T, T), bool.
    unseen_softmax : Tensor
        Least top softmax of the samples that the risk depends on and the readout does not see,
        shape (B L H,).
    unseen_gradient : Tensor
        Share of the gradient in W, at the last step, of positions that the readout does not see,
        shape (B L H,): ||G'|| / (||G|| + ||G'||) with G of those that it sees and G' of the others.
    network : dict of str to Tensor
        What of the network was trained: W of all layers and heads, shape (B L H, L, H, d, d), then
        V, M1, M2 and the parameters of the prediction head, where these were trained.
    selected_since : Tensor
        First step of a snapshot since which every sample attends most to the token that it selects,
        shape (B L H,).
    """

    batch: ProblemBatch
    path: Trajectory
    layer: Tensor
    head: Tensor
    visible: Tensor
    positions_seen: Tensor
    log_adjoint: Tensor
    reached: Tensor
    unseen_softmax: Tensor
    unseen_gradient: Tensor
    network: dict[str, Tensor]
    selected_since: Tensor


def visible_rows(model: Transformer, layers: list[Layer], attended: float) -> list[Tensor]:
    """Return which rows the readout sees: of the input, and after each layer; (B, n, T) bool.

    It sees a row through the layers above if on some path every attention is at least `attended`;
    a residual connection passes every row on.
    """
    B, n, T, _ = layers[0].X.shape
    seen = torch.ones(B, n, T, dtype=torch.bool, device=layers[0].X.device)
    if model.readout == "first":
        seen[..., 1:] = False
    visible = [seen]
    for layer in reversed(layers):
        through = (layer.log_s.exp() >= attended) & seen[:, None, :, :, None]
        below = through.any(1).any(2)
        seen = below | seen if model.residual else below
        visible.append(seen)
    return visible[::-1]


@own_settings()
def layer_problems(
    batch: ProblemBatch, path: LayerTrajectory, attended: float = 1e-3
) -> LayerProblems:
    """Return the one-layer problem of every layer and head at the end of training.

    `path` is that of `train_layers` on the batch, and `attended` the smallest attention through
    which the readout sees a row.
    """
    model, net = path.model, TrainedNetwork(path.model, batch, path.loss, W())
    X, parts, weights = net.X, path.trained, path.weights
    layers = forward(model, weights, X, net.mask)
    checked = [*(layer.rows for layer in layers), *parts.values()]
    finite = torch.stack([part.isfinite().flatten(1).all(1) for part in checked]).all(0)
    if not finite.all():  # zeros in their place: their problems are not used
        parts = {name: V.masked_fill(~broadcast(finite, V), 0.0) for name, V in parts.items()}
        weights = weights.replaced(parts)
        layers = forward(model, weights, X, net.mask)
    adjoints = net.adjoints(weights)
    B, n, T, d = X.shape
    L, H, S = model.layers, model.heads, len(path.steps)
    stack = B * L * H

    def per_head(V: Tensor) -> Tensor:
        """Return (B L H, ...) of a tensor (B, L, ...)."""
        return V[:, :, None].expand(B, L, H, *V.shape[2:]).flatten(0, 2)

    inputs = torch.stack([layer.X for layer in layers], 1)
    keys = per_head(inputs[:, :, :, None].expand(B, L, n, T, T, d)).flatten(1, 2)
    seen = torch.stack(visible_rows(model, layers, attended), 1)
    of_layers = (V.unbind(1) for V in (adjoints.P, adjoints.P_exponent, seen[:, 1:]))
    shares = [
        _unseen(P, exponent, layer.X, rows)
        for layer, P, exponent, rows in zip(layers, *of_layers, strict=True)
    ]
    visible = per_head(seen[:, 1:]).flatten(1)
    log_s = path.log_softmax.movedim(1, 3).reshape(stack, S, n * T, T)
    last = torch.stack([layer.log_s for layer in layers], 1).reshape(stack, n * T, T)
    chosen = torch.arange(T, device=X.device) == last.argmax(-1, keepdim=True)
    size = adjoints.r.abs().amax(-1, keepdim=True)
    scores = -adjoints.r / torch.where(size > 0, size, 1.0)
    log_adjoint = (scores.norm(dim=-1) * size[..., 0]).log() + adjoints.r_exponent[:, :, None]
    log_adjoint = log_adjoint.reshape(stack, n * T)
    depends = log_adjoint > -torch.inf
    reached, admitted = (
        torch.where(some[..., None], last > -torch.inf, chosen) for some in (depends, visible)
    )
    unseen_top = torch.where(depends & ~visible, last.amax(-1), 0.0)
    log_s = log_attention(log_s.masked_fill(~admitted[:, None], -torch.inf))
    snapshots = path.snapshots.movedim(1, 3).reshape(stack, S, d, d)
    indices = torch.cartesian_prod(torch.arange(B), torch.arange(L), torch.arange(H))
    instance, layer, head = indices.view(stack, 3).to(X.device).unbind(1)
    problems = ProblemBatch(
        X=keys,
        Z=per_head(inputs).flatten(1, 2),
        Y=torch.ones(stack, n * T, dtype=X.dtype, device=X.device),
        mask=admitted,
        head=RowScores(),
        head_parameters={"v": scores.reshape(stack, n * T, d) * visible[..., None]},
        seeds=batch.seeds[instance],
    )
    K, Q = (None if V is None else V.reshape(stack, d, -1) for V in (path.K, path.Q))
    trained = Trajectory(
        steps=path.steps,
        snapshots=snapshots,
        loss=path.risk[instance],
        softmax=log_s.exp(),
        log_softmax=log_s[:, -1],
        W=snapshots[:, -1].clone(),
        K=K,
        Q=Q,
        diverged=~finite[instance],
        head_parameters=problems.head_parameters,
        direction_error=path.direction_error.reshape(stack),
        finite_optimum=torch.zeros(stack, dtype=torch.bool, device=X.device),
    )
    return LayerProblems(
        problems,
        trained,
        layer=layer,
        head=head,
        visible=visible,
        positions_seen=per_head(seen[:, :-1]).sum(-1).to(X.dtype).mean(-1),
        log_adjoint=log_adjoint,
        reached=reached,
        unseen_softmax=unseen_top.amin(-1).exp(),
        unseen_gradient=torch.stack(shares, 1).flatten(),
        network={name: array[instance] for name, array in path.trained.items()},
        selected_since=_since(path.steps, log_s.argmax(-1)),
    )


def _since(steps: Tensor, tops: Tensor) -> Tensor:
    """Return since which step the tops (B, S, N) are the last ones."""
    other = (tops != tops[:, -1:]).any(-1)
    since: Tensor = (other * torch.arange(1, len(steps) + 1, device=tops.device)).amax(-1)
    return steps.to(tops.device)[since].double()


def _unseen(P: Tensor, exponent: Tensor, X: Tensor, seen: Tensor) -> Tensor:
    """Return the share of the gradient that rows which are not `seen` (B, n, T) have, (B, H)."""

    def log_norm(chosen: Tensor) -> Tensor:
        G, c = in_weights(P, exponent.masked_fill(~chosen[:, None], -torch.inf), X)
        return c + G.flatten(2).norm(dim=-1).log()

    log_seen, log_unseen = log_norm(seen), log_norm(~seen)
    return torch.where(log_unseen > -torch.inf, (log_unseen - log_seen).sigmoid(), 0.0)
