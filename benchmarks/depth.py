"""Training of several layers against its peers, as ratios of one run: `python -m benchmarks depth`.

Peers (`_measure`): a loop over instances with torch autograd, and JAX, both with the softmax whose
backward pass does not cancel, in float64 on two threads. Normalised steps of W, of K and Q, or of
W, values, MLPs and head, of every layer; logistic loss, linear head on position 0, residual
connection. As in ours, the last layer has only the query that is read. The peers do less: they do
not carry the differences of rows that become copies of each other, and they underflow beyond norms
of about 700.

After that: peak memory, of 10 steps and 2 snapshots, against the number of networks, each time in
a process of its own. A run trains as many at once as `networks_at_once` says fit in 1 GiB.
"""

from itertools import product
from typing import Any

import torch
from torch import Tensor

import attnsvm
from attnsvm.problem import ProblemBatch
from attnsvm.transformer import LayerTrajectory
from benchmarks._measure import LR, Risk, apart, compare, print_head, print_row, with_peak

SHAPES = (2, 1, 4, 5, 16), (3, 1, 4, 5, 16), (2, 1, 8, 16, 32), (2, 2, 6, 8, 10)
"""Layers, heads, n, T and d."""
RUNS, REPEATS = ((100, 1000), (1000, 100)), 3
"""Instances and steps."""
MEMORY: dict[str, dict[str, Any]] = {"attention": {}, "all": {"mlp": 16, "trained": "all"}}


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


def beside_peers(shape: tuple[int, ...], B: int, steps: int, trained: str) -> None:
    """Print microseconds per instance-step and ratios."""
    layers, heads, n, T, d = shape
    rule, others = (trained, {}) if trained != "all" else ("w", {**MEMORY["all"], "rate": 1.0})
    model = attnsvm.Transformer(layers=layers, heads=heads, **others)
    batch = attnsvm.sample("sphere", n=n, T=T, d=d, trials=B, model=model)
    path = ours(batch, model, rule, 0)
    start = list(path.trained.values()) if path.K is None or path.Q is None else [path.K, path.Q]
    if trained == "all":
        start[-1] = start[-1].unsqueeze(1)  # the head as a matrix: steps divide by norms of those

    def train(batch: ProblemBatch, steps: int) -> Tensor:
        return ours(batch, model, rule, steps).weights.W

    risk, title = risk_of(layers, heads), f"{shape}, {trained}"
    compare(title, train, risk, batch, start, steps, REPEATS, exact=True)


def peak(size: int, options: dict[str, Any]) -> float:
    """Return the MiB that training of `size` networks takes at most."""
    model = attnsvm.Transformer(layers=2, **options)

    def train(trials: int) -> None:
        batch = attnsvm.sample("sphere", model=model, n=4, T=5, d=16, trials=trials)
        attnsvm.train_layers(batch, model, steps=10, record_every=10)

    train(2)  # compiled code is not counted
    return with_peak(lambda: train(size))[1]


def main() -> None:
    torch.set_num_threads(2)
    for shape, (B, steps), trained in product(SHAPES, RUNS, ("w", "kq", "all")):
        beside_peers(shape, B, steps, trained)
    print_head("trained", "instances", "peak memory over start", "KiB an instance")
    for name, options in MEMORY.items():
        for size in (100, 1000, 10_000):
            most = apart(peak, size, options)
            print_row(name, size, f"{most:.0f} MiB", f"{1024 * most / size:.0f}")
