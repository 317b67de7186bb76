"""Training of several layers against its peers, as ratios of one run: `python -m benchmarks depth`.

Peers (`_measure`): a loop over instances with torch autograd, and JAX, both with the softmax whose
backward pass does not cancel, in float64 on two threads. Normalised steps of W, or of K and Q, of
every layer, logistic loss, linear head on position 0, residual connection. As in ours, the last
layer has only the query that is read. The peers do less: they do not carry the differences of rows
that become copies of each other, and they underflow beyond norms of about 700.

After that: peak memory, of 10 steps and 2 snapshots, against the number of networks, each time in
a process of its own. A run trains as many at once as `networks_at_once` says fit in 1 GiB.
"""

from typing import Any

import torch

import attnsvm
from attnsvm.problem import ProblemBatch
from attnsvm.transformer import LayerTrajectory
from benchmarks._measure import LR, apart, compare, print_head, print_row, with_peak

SHAPE, LAYERS, REPEATS = (4, 5, 16), 2, 3
MODEL = attnsvm.Transformer(layers=LAYERS)
RUNS = (100, 1000, "w"), (100, 1000, "kq"), (1000, 300, "w"), (1000, 300, "kq")
"""Instances, steps, and what is trained."""
MEMORY: dict[str, dict[str, Any]] = {"attention": {}, "all": {"mlp": 16, "trained": "all"}}


def ours(batch: ProblemBatch, rule: str, steps: int) -> LayerTrajectory:
    every = max(1, steps)
    return attnsvm.train_layers(batch, MODEL, rule, steps=steps, lr=LR, record_every=every)


def risk(W: Any, X: Any, Z: Any, Y: Any, v: Any, F: Any) -> Any:
    """Return the risk of an instance, in arrays of torch or JAX."""
    rows = X
    for layer in range(LAYERS):
        queries = rows[:, :1] if layer == LAYERS - 1 else rows
        rows = (queries + F.softmax(queries @ W[layer].mT @ rows.mT) @ rows) / 2**0.5
    return F.softplus(-Y * (rows[:, 0] @ v)).mean()


def peak(size: int, options: dict[str, Any]) -> float:
    """Return the MiB that training of `size` networks takes at most."""
    model = attnsvm.Transformer(layers=LAYERS, **options)

    def train(trials: int) -> None:
        batch = attnsvm.sample("sphere", model=model, n=4, T=5, d=16, trials=trials)
        attnsvm.train_layers(batch, model, steps=10, record_every=10)

    train(2)  # compiled code is not counted
    return with_peak(lambda: train(size))[1]


def main() -> None:
    torch.set_num_threads(2)
    n, T, d = SHAPE
    for B, steps, rule in RUNS:
        batch = attnsvm.sample("sphere", n=n, T=T, d=d, trials=B, model=MODEL)
        path = ours(batch, rule, 0)
        factors = (path.weights.W,) if path.K is None or path.Q is None else (path.K, path.Q)
        compare(
            f"{SHAPE} {LAYERS} layers, {rule}",
            lambda batch, steps, rule=rule: ours(batch, rule, steps).weights.W[:, :, 0],
            risk, batch, [V[:, :, 0].contiguous() for V in factors], steps, REPEATS, exact=True,
        )  # fmt: skip
    print_head("trained", "instances", "peak memory over start", "KiB an instance")
    for name, options in MEMORY.items():
        for size in (100, 1000, 10_000):
            found = apart(peak, size, options)
            print_row(name, size, f"{found:.0f} MiB", f"{1024 * found / size:.0f}")
