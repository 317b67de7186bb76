"""The keyword options of `attnsvm.train` and `attnsvm.sample`, for type checkers.

Written by `python -m attnsvm.cli.generated` from the schemas, without the fields of plug-ins.
"""

from collections.abc import Sequence
from typing import TypedDict

class OptimizerOptions(TypedDict, total=False):
    """Fields of the optimizers; those of an option: `attnsvm --help GROUP=OPTION`."""

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
    beta: float
    nesterov: bool
    beta1: float
    beta2: float
    eps: float
    norm: str
    newton_schulz_steps: int
    polynomial: str
    p: float
    normalized: bool
    radii: Sequence[float]
    iterations: int
    cone: float | None

class SampleOptions(TypedDict, total=False):
    """Fields of data, heads and models; those of an option: `attnsvm --help GROUP=OPTION`."""

    n: int
    T: int
    d: int
    score_gap: float
    signal: float
    held_out: int
    path: str
    positive: int
    negative: int
    patch: int
    stride: int
    K: int
    output: str
    graph: str
    embeddings: str
    text: str | None
    points: str
    margin: float
    condition: float
    bias: bool
    contexts: int
    support: int
    scores: str
    transformer: str
    at_layer: int
    at_head: int
    sinks: bool
    control: str
    train: bool
    lam: float
    width: int
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
