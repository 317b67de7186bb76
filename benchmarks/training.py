"""Speed of training against its peers, as ratios within one run.

Peers (`_measure`): a loop over instances with torch autograd, as it is usually written, and JAX
with the straightforward gradient. All in float64 on two threads, normalised gradient descent with
the logistic loss and the linear head, or of next tokens with loss=log. Times are the best of
several repetitions, on the clock and of the processors, which other programs disturb less;
compilation is apart, and a call of 0 steps is one of the programs. `labels`: only next tokens and
linear classifiers. `dimensions`: the cost of many. `many`: memory and time of a batch in chunks.
`block`: the loop of steps alone.
"""

from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

import attnsvm
from attnsvm.problem import ProblemBatch
from attnsvm.training import train_chunks
from benchmarks._measure import best_in_turn, compare, print_row, seconds, with_peak

BATCHES = (100, 1000)
DIMENSIONS = (48, 512, 4096)


def risk(W: Any, _: Any, X: Any, Z: Any, Y: Any, v: Any, F: Any) -> Any:
    """Return the risk of an instance, in arrays of torch or JAX."""
    s = F.softmax((X @ (Z @ W.mT)[..., None])[..., 0])
    return F.softplus(-Y * ((s[:, None] @ X)[:, 0] @ v)).mean()


def risk_of_labels(W: Any, _: Any, X: Any, Z: Any, Y: Any, v: Any, F: Any) -> Any:
    """Return the risk of next tokens, with a row v_i for each sample."""
    s = F.softmax((X @ (Z @ W.mT)[..., None])[..., 0])
    return -F.log(((s[:, None] @ X)[:, 0] * v).sum(-1)).mean()


def risk_of_classes(W: Any, _: Any, X: Any, Z: Any, Y: Any, v: Any, F: Any) -> Any:
    """Return the cross-entropy of a linear classifier, whose labels are at the ones of v."""
    K = X.shape[-2]
    return -F.log((F.softmax(Z @ W[:K].mT) * v[..., :K]).sum(-1)).mean()


Shape = tuple[int, int, int]
SHAPES = ((3, 4, 10), (5, 5, 5), (6, 8, 10), (15, 5, 20), (8, 16, 32), (2, 64, 64), (32, 8, 8))
DATA: dict[str, tuple[str, Any, tuple[Shape, ...]]] = {
    "sphere": ("logistic", risk, SHAPES),
    "token_graph": ("log", risk_of_labels, ((6, 4, 8), (24, 4, 8))),
    "classes": ("log", risk_of_classes, ((10, 3, 5), (50, 4, 10))),
}
"""Data -> the loss, the risk for the peers, and the shapes."""


def beside_peers(data: str, shape: Shape, B: int, rule: str, steps: int, repeats: int) -> None:
    """Print microseconds per instance-step and ratios."""
    (n, T, d), (loss, peers_risk, _) = shape, DATA[data]
    tokens: dict[str, Any] = {"K" if data == "classes" else "T": T}
    batch = attnsvm.sample(data, n=n, d=d, trials=B, **tokens)

    def ours(batch: ProblemBatch, steps: int) -> Tensor:
        return attnsvm.train(batch, rule, loss=loss, steps=steps).W

    path = attnsvm.train(batch, rule, steps=0)
    start = (path.W,) if path.K is None or path.Q is None else (path.K, path.Q)
    compare(f"{shape}, {rule}, {data}", ours, peers_risk, batch, start, steps, repeats)


def block(steps: int = 1000, repeats: int = 3) -> None:
    """Print processor time of a step of W of eight instances, one thread, and its products' rate.

    Products of a vector and n T tokens give logits and gradient, those with R, which is triangular,
    the vectors at the queries and their pull-back. One in each of eight lanes is 16 flops.
    """
    cases = [(data, *shape) for data in ("sphere", "token_graph") for shape in DATA[data][2]]
    for data, n, T, d in cases:
        batch = attnsvm.sample(data, n=n, T=T, d=d, trials=8)
        train = partial(attnsvm.train, batch, loss=DATA[data][0], record_every=steps)
        calls = {str(k): (partial(train, steps=k), steps) for k in (0, steps)}
        none, spent = (processors for _, processors in best_in_turn(calls, repeats).values())
        flops = 32 * min(d, n * T) * (n * T + sum(min(i, d) for i in range(1, n + 1)))
        us = spent - none
        print_row(data, (n, T, d), f"{us:.2f} us", f"{flops / us / 1e3:.0f} Gflop/s")


def dimensions(steps: int = 1000, repeats: int = 3, trials: int = 100) -> None:
    """Print seconds for (n, T) = (6, 8) in the span of the vectors, finding it included."""
    print(f"\n{trials} instances, n=6, T=8, in_span and {steps} steps, seconds")
    batches = {d: attnsvm.sample("sphere", n=6, T=8, d=d, trials=trials) for d in DIMENSIONS}
    for rule in ("w", "kq"):

        def work(batch: ProblemBatch, rule: str = rule) -> None:
            attnsvm.train(attnsvm.in_span(batch), rule, steps=steps)

        works = {f"d={d}": (partial(work, batch), 10**6) for d, batch in batches.items()}
        best = {name: clock for name, (clock, _) in best_in_turn(works, repeats).items()}
        row = "  ".join(f"{name} {clock:.2f}" for name, clock in best.items())
        ratio = best["d=4096"] / best["d=48"]
        print(f"{rule:2}  {row}  |  d=4096 over d=48 {ratio:.2f}", flush=True)


def many(trials: int = 100_000, steps: int = 1000) -> None:
    """Print time and peak memory of a batch of (6, 8, 10) with 100 snapshots, in chunks."""
    batch = attnsvm.sample("sphere", n=6, T=8, d=10, trials=trials)

    def work() -> None:
        for part, path in train_chunks(batch, steps=steps, record_every=max(1, steps // 100)):
            assert path.snapshots.shape[0] == part.stop - part.start

    (took, _), peak = with_peak(lambda: seconds(work))
    rate = took / (trials * steps) * 1e6
    print(
        f"\n{trials} instances, (6, 8, 10), {steps} steps, 100 snapshots: {took:.0f} s, "
        f"{rate:.3f} microseconds per instance-step, peak {peak / 1024:.2f} GiB over the start",
        flush=True,
    )


def labels(steps: int = 1000, repeats: int = 3) -> None:
    """Print ratios for next tokens and linear classifiers."""
    ratios(("token_graph", "classes"), steps, repeats)


def main(steps: int = 1000, repeats: int = 3) -> None:
    """Print ratios for all data, then the cost of many dimensions."""
    ratios(DATA, steps, repeats)
    dimensions(steps, repeats)


def ratios(names: Iterable[str], steps: int, repeats: int) -> None:
    """Print ratios for the data of these names."""
    torch.set_num_threads(2)
    small = attnsvm.sample(n=1, T=2, d=2, trials=2)
    compiling = seconds(lambda: [attnsvm.train(small, rule, steps=1) for rule in ("w", "kq")])[0]
    print(f"our kernels ready after {compiling:.1f} s (0 when cached)")
    print(f"microseconds per instance-step, {steps} steps")
    for data in names:
        rules = ("w",) if data == "classes" else ("w", "kq")
        for shape, B, rule in product(DATA[data][2], BATCHES, rules):
            beside_peers(data, shape, B, rule, steps, repeats)
