"""Training of several layers beside JAX and torch autograd, 100 networks.

All have the softmax whose backward pass does not cancel, in float64: normalised steps of W, of K
and Q, or of W, values, MLPs and head, of every layer; logistic loss, linear head on position 0,
residual connection. As in ours, the last layer has only the query that is read. The peers do less:
they do not carry the differences of rows that become copies of each other, and they underflow
beyond norms of about 700.
"""

from functools import partial
from typing import Any

from torch import Tensor

import attnsvm
from attnsvm.data.problem import ProblemBatch
from attnsvm.transformer import LayerTrajectory
from benchmarks._measure import Program, Work
from benchmarks._peers import LR, Risk, programs

SHAPES = (2, 1, 4, 5, 16), (3, 1, 4, 5, 16), (2, 1, 8, 16, 32), (2, 2, 6, 8, 10)
AXES = "layers, heads, n, T, d"
TRAINED = {"w": "W", "kq": "(K, Q)", "all": "W, values, MLPs and head"}
ALL: dict[str, Any] = {"mlp": 16, "trained": "all"}


def ours(batch: ProblemBatch, model: attnsvm.Transformer, rule: str, steps: int) -> LayerTrajectory:
    every = max(1, steps)
    return attnsvm.train_layers(batch, model, rule, steps=steps, lr=LR, record_every=every)


def risk_of(layers: int, heads: int) -> Risk:
    def risk(W: Any, others: Any, X: Any, Z: Any, Y: Any, v: Any, F: Any) -> Any:
        trained: Any = others if len(others) > 1 else (None, None, None, v)
        V, M1, M2, v = trained
        rows = X
        for layer in range(layers):
            queries, read = rows[:, :1] if layer == layers - 1 else rows, 0
            for h in range(heads):
                mean = F.softmax(queries @ W[layer, h].mT @ rows.mT) @ rows
                read = read + (mean if V is None else mean @ V[layer, h])
            rows = (queries + read / heads**0.5) / 2**0.5
            if M1 is not None:
                hidden = rows @ M1[layer]
                rows = (rows + (hidden > 0) * hidden @ M2[layer]) / 2**0.5
        return F.softplus(-Y * (rows[:, 0] @ v.reshape(-1))).mean()

    return risk


def beside_peers(
    trained: str, B: int, steps: int, layers: int, heads: int, n: int, T: int, d: int
) -> dict[str, Program]:
    """Return ours and its peers."""
    rule, others = (trained, {}) if trained != "all" else ("w", ALL | {"rate": 1.0})
    model = attnsvm.Transformer(layers=layers, heads=heads, **others)
    batch = attnsvm.sample("sphere", n=n, T=T, d=d, trials=B, model=model)
    path = ours(batch, model, rule, 0)
    start = list(path.trained.values()) if path.K is None or path.Q is None else [path.K, path.Q]
    if trained == "all":
        start[-1] = start[-1].unsqueeze(1)  # the head as a matrix: steps divide by norms of those

    def train(batch: ProblemBatch, steps: int) -> Tensor:
        return ours(batch, model, rule, steps).weights.W

    return programs(train, risk_of(layers, heads), batch, start, steps, exact=True)


WORKS = [
    Work(f"a step of {name} of networks", AXES, shape, partial(beside_peers, trained, 100, 300))
    for trained, name in TRAINED.items()
    for shape in SHAPES
]
