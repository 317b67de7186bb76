"""The token-priority graphs of a batch, and the risk inside their components (arXiv 2403.08081)."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from attnsvm.attention import Risk
from attnsvm.loss import Loss
from attnsvm.optimizer.lbfgs import Objective, minimise
from attnsvm.parameterization import W
from attnsvm.problem import ProblemBatch
from attnsvm.selection import optimal_tokens


def label_components(batch: ProblemBatch) -> tuple[Tensor, Tensor]:
    """Return which tokens are in the component of the label, and which are kept, (B, n, T) bool.

    Samples of equal queries share a token-priority graph. Its nodes are the tokens of the instance,
    equal ones being one; edges go from the label of a sample, its token of best score, to all of
    its tokens. Components are the strongly connected ones. Kept is the first of equal tokens: of
    those inside of the component in each sample, of those below it in the instance.
    """
    from scipy.sparse import coo_array  # imports are slow
    from scipy.sparse.csgraph import connected_components

    found, labels = [], optimal_tokens(batch)[0]
    arrays = (V.cpu() for V in (batch.X, batch.Z, labels, batch.mask))
    for X, Z, best, mask in zip(*arrays, strict=True):
        ids = torch.unique(X.flatten(0, 1), dim=0, return_inverse=True)[1].view(mask.shape)
        nodes = ids + torch.unique(Z, dim=0, return_inverse=True)[1][:, None] * (ids.amax() + 1)
        label = nodes.gather(1, best[:, None]).expand_as(nodes)
        edges = label[mask].numpy(), nodes[mask].numpy()
        graph = coo_array((np.ones(len(edges[0])), edges), 2 * (int(nodes.max()) + 1,))
        component = torch.from_numpy(connected_components(graph, connection="strong")[1])
        inside = (component[nodes] == component[label]) & mask
        owner = torch.where(inside, -1 - torch.arange(len(mask))[:, None], component[label])
        pairs = torch.stack([owner, nodes])[:, mask].numpy()
        kept = torch.zeros(pairs.shape[1], dtype=torch.bool)
        kept[np.unique(pairs, axis=1, return_index=True)[1]] = True
        found.append((inside, torch.zeros_like(mask).masked_scatter(mask, kept)))
    inside, first = (torch.stack(part).to(batch.X.device) for part in zip(*found, strict=True))
    return inside, first


def least_risk(batch: ProblemBatch, inside: Tensor, loss: Loss) -> Tensor:
    """Return log s (B, n, T) at the W of least risk with attention to the tokens `inside` alone.

    W is in the cyclic subspace, the span of (x_it - x_iu) z_i^T for t, u inside. There the risk is
    convex if the loss is `log` and the head reads off the attention that the label has.
    """
    B, d = batch.X.shape[::3]
    w, _ = minimise(risk_inside(batch, inside, loss), batch.X.new_zeros(B, d * d), 1000, 1e-8)
    risk = Risk(dataclasses.replace(batch, mask=inside), W(), loss)
    return risk.forward((w.view(B, d, d),)).log_softmax


def risk_inside(batch: ProblemBatch, inside: Tensor, loss: Loss) -> Objective:
    """Return the map of W, (B, d d), to that risk and its gradient."""
    risk = Risk(dataclasses.replace(batch, mask=inside), W(), loss)
    B, d = batch.X.shape[::3]

    def objective(w: Tensor) -> tuple[Tensor, Tensor]:
        variables = (w.view(B, d, d),)
        forward = risk.forward(variables)
        gradient = risk.gradient(variables, forward)
        size = gradient.log_scales[0].exp()[:, None]
        return risk.value(forward), size * gradient.parts[0].flatten(1)

    return objective
