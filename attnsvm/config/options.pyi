"""The keyword options of `attnsvm.train` and `attnsvm.sample`, for type checkers and completion.

The schema is what counts when a program runs: it has the defaults, the ranges and the fields of
plug-ins, which these types do not know. A test compares the two.
"""

from collections.abc import Sequence
from typing import TypedDict

class OptimizerOptions(TypedDict, total=False):
    """Fields of the optimizers; which of them an optimizer has: `attnsvm --help`."""

    init_scale: float
    init_path: str | None
    init_angle: float
    lr: float
    steps: int
    growth: float
    schedule: str
    decay: float
    gradient: str
    ridge: float
    weight_decay: float
    batch: int | None
    order: str
    order_seed: int
    record_every: int
    record: str
    norm: str
    beta: float
    nesterov: bool
    newton_schulz_steps: int
    polynomial: str
    beta1: float
    beta2: float
    eps: float
    p: float
    normalized: bool
    radii: Sequence[float]
    iterations: int
    cone: float | None

class SampleOptions(TypedDict, total=False):
    """Fields of data, heads and models; which of them an option has: `attnsvm --help`."""

    n: int
    T: int
    d: int
    path: str
    positive: int
    negative: int
    patch: int
    stride: int
    transformer: str
    text: str | None
    at_layer: int
    at_head: int
    control: str
    scores: str
    sinks: bool
    score_gap: float
    signal: float
    held_out: int
    K: int
    graph: str
    embeddings: str
    output: str
    points: str
    margin: float
    condition: float
    bias: bool
    contexts: int
    support: int
    train: bool
    width: int
    lam: float
    v_rate: float
    query: int
    causal: bool
    layers: int
    heads: int
    residual: bool
    values: str
    mlp: int
    readout: str
    trained: str
    rate: float
