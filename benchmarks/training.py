"""Normalised gradient descent of W and (K, Q) beside JAX and a loop with torch autograd.

All in float64; logistic loss and linear head, or the log loss of next tokens and of linear
classifiers. JAX's compilation is left out. `thousand`: batches of 1000 instances.
"""

from functools import partial
from typing import Any

from torch import Tensor

import attnsvm
from attnsvm.data.problem import ProblemBatch
from benchmarks._measure import Work
from benchmarks._peers import programs


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


SHAPES = (3, 4, 10), (5, 5, 5), (6, 8, 10), (15, 5, 20), (8, 16, 32), (2, 64, 64), (32, 8, 8)
DATA: dict[str, tuple[str, Any, str, tuple[tuple[int, int, int], ...]]] = {
    "sphere": ("logistic", risk, "T", SHAPES),
    "token_graph": ("log", risk_of_labels, "T", ((6, 4, 8), (24, 4, 8))),
    "classes": ("log", risk_of_classes, "K", ((10, 3, 5), (50, 4, 10))),
}
"""Data -> loss, risk for the peers, field of the second number of a shape, shapes."""
STEPS = 1000


def beside_peers(data: str, rule: str, B: int, steps: int, n: int, T: int, d: int) -> Any:
    """Return ours and its peers."""
    loss, peers_risk, field, _ = DATA[data]
    sizes: dict[str, Any] = {field: T}
    batch = attnsvm.sample(data, n=n, d=d, trials=B, **sizes)

    def ours(batch: ProblemBatch, steps: int) -> Tensor:
        return attnsvm.train(batch, rule, loss=loss, steps=steps).W

    path = attnsvm.train(batch, rule, steps=0)
    start = (path.W,) if path.K is None or path.Q is None else (path.K, path.Q)
    return programs(ours, peers_risk, batch, start, steps)


def _work(B: int, data: str, rule: str, shape: tuple[int, int, int]) -> Work:
    name = f"a step of {'W' if rule == 'w' else '(K, Q)'}, {data}, {B} instances"
    make = partial(beside_peers, data, rule, B, STEPS if B <= 100 else STEPS // 10)
    return Work(name, f"n, {DATA[data][2]}, d", shape, make)


TABLE = [
    (data, rule, shape)
    for data in DATA
    for rule in (("w",) if data == "classes" else ("w", "kq"))
    for shape in DATA[data][3]
]
WORKS = [_work(100, *row) for row in TABLE]
THOUSAND = [_work(1000, *row) for row in TABLE]
