"""The token-priority graphs of a batch, and the risk inside their components (arXiv 2403.08081)."""

import dataclasses
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from attnsvm.data.problem import ProblemBatch
from attnsvm.linalg import own_settings
from attnsvm.loss import Loss
from attnsvm.nn.risk import Risk
from attnsvm.optimizer.lbfgs import minimise
from attnsvm.parameterization import W
from attnsvm.selection import optimal_tokens


@dataclasses.dataclass(frozen=True, eq=False)
class PriorityGraph:
    """The token-priority graphs of an instance, one for each query, as one graph.

    A node is a token in the graph of a query: `nodes` (n, T) are those of the samples' tokens,
    `labels` (n,) those of the labels, which are the tokens at `best` (n,), and `component` (nodes,)
    has the strongly connected component of each node. `edges` (2, E) go from labels to the other
    tokens of their samples, each once. `queries` (n,) numbers the different queries.
    """

    queries: Tensor
    nodes: Tensor
    labels: Tensor
    best: Tensor
    mask: Tensor
    edges: np.ndarray
    component: Tensor

    @classmethod
    def of(cls, X: Tensor, Z: Tensor, best: Tensor, mask: Tensor) -> "PriorityGraph":
        """Return the graphs of tokens X (n, T, d), equal ones being one, and queries Z (n, d)."""
        from scipy.sparse import coo_array, csgraph  # imports are slow

        ids = torch.unique(X.flatten(0, 1), dim=0, return_inverse=True)[1].view(mask.shape)
        queries = torch.unique(Z, dim=0, return_inverse=True)[1]
        nodes = ids + queries[:, None] * (ids.amax() + 1)
        labels = nodes.gather(1, best[:, None])[:, 0]
        pairs = torch.stack([labels[:, None].expand_as(nodes), nodes])[:, mask].numpy()
        edges = np.unique(pairs[:, pairs[0] != pairs[1]], axis=1)
        graph = coo_array((np.ones(edges.shape[1]), edges), 2 * (int(nodes.max()) + 1,))
        component = torch.from_numpy(csgraph.connected_components(graph, connection="strong")[1])
        return cls(queries, nodes, labels, best, mask, edges, component)

    @cached_property
    def inside(self) -> Tensor:
        """Which tokens are in the component of the label, (n, T) bool."""
        return (self.component[self.nodes] == self.component[self.labels][:, None]) & self.mask

    def kept(self) -> Tensor:
        """Return which tokens have a row in the Graph-SVM, or are the label, (n, T) bool."""
        from scipy.sparse import coo_array, csgraph

        labels = self.labels[:, None].expand_as(self.nodes)
        below, joining = self.mask & ~self.inside, self.inside & (self.nodes != labels)
        pairs = torch.stack([self.component[labels], self.nodes])[:, below].numpy()
        first = np.unique(pairs, axis=1, return_index=True)[1]
        pairs = torch.stack([labels, self.nodes])[:, joining].sort(dim=0).values.numpy()
        ends, order = np.unique(pairs, axis=1, return_index=True)
        weighted = coo_array((order + 1.0, ends), 2 * (len(self.component),))
        forest = csgraph.minimum_spanning_tree(weighted)
        kept = torch.zeros_like(self.mask).scatter(1, self.best[:, None], True)
        for tokens, index in ((below, first), (joining, forest.data.astype(int) - 1)):
            kept.view(-1)[tokens.view(-1).nonzero()[index, 0]] = True
        return kept

    @cached_property
    def sizes(self) -> dict[str, float]:
        """The components and edges of a query, mean, and the tokens of the largest one."""
        met = self.component[np.unique(self.nodes[self.mask])].numpy()
        tokens, queries = np.unique(met, return_counts=True)[1], len(np.unique(self.queries))
        return {
            "components": len(tokens) / queries,
            "largest": float(tokens.max()),
            "edges": self.edges.shape[1] / queries,
        }


@lru_cache(maxsize=1)  # a probe asks at every snapshot
def priority_graphs(batch: ProblemBatch) -> list[PriorityGraph]:
    """Return the token-priority graphs of each instance.

    Samples of equal queries share a graph. Its nodes are the tokens of the instance, equal ones
    being one; edges go from the label of a sample, its token of best score, to all of its tokens.
    """
    arrays = (V.cpu() for V in (batch.X, batch.Z, optimal_tokens(batch)[0], batch.mask))
    return [PriorityGraph.of(*instance) for instance in zip(*arrays, strict=True)]


@own_settings()
def label_components(batch: ProblemBatch) -> tuple[Tensor, Tensor]:
    """Return which tokens are in the component of the label, and which are kept, (B, n, T) bool.

    Kept are the label, the tokens inside of its component that connect it first (a spanning forest:
    all equalities follow from theirs), and the first of equal tokens below a component.
    """
    graphs, device = priority_graphs(batch), batch.X.device
    inside = torch.stack([graph.inside for graph in graphs])
    return inside.to(device), torch.stack([graph.kept() for graph in graphs]).to(device)


FLAT = 1e-7
"""Largest norm of the gradient of a risk at its minimiser."""


class RiskInside:
    """The risk of W (B, d d) with attention to the tokens `inside`, (B, n, T), alone.

    The cyclic subspace is the span of (x_it - x_iu) z_i^T for t, u inside. There the risk is convex
    if the loss is `log` and the head reads off the attention that the label has. Else it may fall
    for ever, as attention to a token inside goes to zero.
    """

    def __init__(self, batch: ProblemBatch, inside: Tensor, loss: Loss) -> None:
        self.risk = Risk(dataclasses.replace(batch, mask=inside), W(), loss)

    def least(self) -> Tensor:
        """Return log s (B, n, T) at the W of least risk, in the cyclic subspace.

        It is searched in units of W at which the largest tokens and queries have logits of one.
        """
        X, Z = self.risk.batch.X, self.risk.batch.Z
        unit = (X.norm(dim=3).flatten(1).amax(1) * Z.norm(dim=2).amax(1))[:, None]
        unit = torch.where(unit > 0, unit, 1.0)

        def scaled(w: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = self(w / unit)
            return value, gradient / unit

        w, _ = minimise(scaled, X.new_zeros(len(X), X.shape[3] ** 2), 1000, 1e-8)
        return self.risk.forward(self._variables(w / unit)).log_softmax

    def __call__(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return risk and gradient, (B,) and (B, d d)."""
        forward = self.risk.forward(self._variables(w))
        gradient = self.risk.gradient(self._variables(w), forward)
        size = gradient.log_scales[0].exp()[:, None]
        return self.risk.value(forward), size * gradient.parts[0].flatten(1)

    def falls(self, w: Tensor, several: Tensor) -> Tensor:
        """Return where W is stationary only because attention to some tokens is negligible, (B,).

        The gradient of its logit joins a token of a sample to the one that has the largest. Where
        sums above FLAT do not join the whole component, its parts go on moving apart. `several`
        (B, n, T) are the tokens of components of more than one; a query of zeros moves none.
        """
        from scipy.sparse import coo_array, csgraph

        batch, forward = self.risk.batch, self.risk.forward(self._variables(w))
        *_, q, scale = self.risk.gradient(self._variables(w), forward).of_logits
        falling, size = [], (q.abs() * scale.exp()[:, None, None]).cpu()
        several = (several & (batch.has_query > 0)[..., None]).cpu()
        for graph, own, among in zip(priority_graphs(batch), size, several, strict=True):
            to = graph.nodes.gather(1, own.argmax(1, keepdim=True)).expand_as(own)
            ends, shape = (to.flatten(), graph.nodes.flatten()), 2 * (len(graph.component),)
            held = coo_array((own.flatten(), ends), shape).tocsr()  # adds what occurs twice
            part = torch.from_numpy(csgraph.connected_components(held > FLAT, directed=False)[1])
            falling.append((part[graph.nodes] != part[graph.labels][:, None])[among].any())
        return torch.stack(falling)

    def _variables(self, w: Tensor) -> tuple[Tensor]:
        return (w.view(len(w), -1, self.risk.batch.d),)
