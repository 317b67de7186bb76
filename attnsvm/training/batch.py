"""Training of a whole batch at once, and of a large one in chunks."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from inspect import signature
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.instantiate import named
from attnsvm.data.problem import ProblemBatch
from attnsvm.display.pace import doing, speaking
from attnsvm.linalg import own_settings
from attnsvm.loss import Loss
from attnsvm.nn.risk import Risk
from attnsvm.optimizer import FirstOrder, Optimizer
from attnsvm.optimizer.base import Report
from attnsvm.optimizer.regularization_path import RegularizationPath
from attnsvm.parameterization import Parameterization, Variables
from attnsvm.training.compiled import CompiledLoop, uncompiled
from attnsvm.training.start import initial
from attnsvm.training.trajectory import SnapshotRecorder, Trajectory

if TYPE_CHECKING:
    from attnsvm.config.options import OptimizerOptions

ROWS = 1000
"""Most rows of an SVM that is solved from its Gram matrix."""


@own_settings()
def train(
    batch: ProblemBatch,
    /,
    parameterization: str | Parameterization = "w",
    optimizer: str | Optimizer = "normalized_gd",
    loss: str | Loss = "logistic",
    *,
    m: int | None = None,
    init: str | Tensor | Variables | None = None,
    progress: bool | Report = False,
    compiled: bool = True,
    keep_factors: bool = False,
    **options: Unpack["OptimizerOptions"],
) -> Trajectory:
    """Minimise the risk (1/n) sum_i l(Y_i f_i) of every instance over its attention weights.

    The numbers of an instance do not depend on the batch, its chunks or the number of threads, but
    for last bits. Where steps overshoot, that is with normalised steps of (K, Q) or growing ones,
    differences in last bits grow to a few step sizes.

    Parameters
    ----------
    batch : ProblemBatch
        B instances; everything happens on the device of its tensors.
    parameterization, optimizer, loss : str or object
        An option of the group of that name, see `attnsvm --help`; or an object.
    m : int, optional
        Columns of K and Q, with parameterization kq.
    init : str, Tensor or tuple of Tensor, optional
        A value of `optimizer.init`; or the initial W0, or (K0, Q0), with or without the axis B.
    progress : bool or callable
        True: a bar on stderr if that is a terminal. A function is called with the number of steps
        done, from time to time and at the end.
    compiled : bool
        Whether to use the compiled loop where it applies. Otherwise the torch loop is used; the
        results are equal up to rounding.
    keep_factors : bool
        Whether K and Q are kept at every snapshot; their weights W always are.
    **options
        Fields of the optimizer, such as lr and steps.

    Returns
    -------
    Trajectory
        An instance with NaN or Inf is marked `diverged`; the others are not affected.

    Raises
    ------
    ConfigError
        If a name, a field or a value is not allowed.
    """
    fields: dict[str, Any] = dict(options) | ({"init": init} if isinstance(init, str) else {})
    rule = parameterization_named(parameterization, m)
    stepper = optimizer_named(optimizer, fields)
    stepper.check_head(batch.head)
    if len(rule.NAMES) > 1 and "+" in (norm := getattr(stepper, "norm", "")):
        raise ConfigError(f"optimizer.norm={norm}: must be one norm without +: only W has a bias")
    risk = Risk(batch, rule, named("loss", loss))
    stepper.check_loss(risk.loss)
    start = None
    if init is not None and not isinstance(init, str):
        start = tuple(V.to(batch.X.device) for V in rule.copied(init, batch.B, batch.d))
    with torch.no_grad(), own_settings() as threads:
        if batch.B == 1:  # torch rounds it differently, which overshooting steps amplify
            both = torch.zeros(2, dtype=torch.int64, device=batch.X.device)
            risk = Risk(batch.take(both), rule, risk.loss)
            start = start and tuple(V[both] for V in start)
        start = start or initial(risk, stepper)
        if risk.batch.head.train:
            start += tuple(p.clone() for p in risk.batch.head_parameters.values())
        recorder = SnapshotRecorder(risk, stepper.grid(), keep_factors)
        with reporting(progress, recorder.units) as report:
            if compiled and not uncompiled(risk, stepper):
                assert isinstance(stepper, FirstOrder)  # as checked in `uncompiled`
                CompiledLoop(risk, stepper, start, recorder).run(stepper, threads, report)
            else:
                stepper.run(risk, start, recorder.take, report)
        how, ridge = "sphere" if isinstance(stepper, RegularizationPath) else "log_domain", 0.0
        if isinstance(stepper, FirstOrder):
            how, ridge = stepper.gradient, stepper.ridge
        path = recorder.trajectory(how, ridge, threads)
        return path if batch.B > 1 else path.take(slice(1))


def train_chunks(
    batch: ProblemBatch, /, *arguments: Any, size: int | None = None, **options: Any
) -> Iterator[tuple[slice, Trajectory]]:
    """Train a batch of any size chunk by chunk, in bounded memory.

    Each instance gets the same numbers as from `train` on the whole batch, but for last bits.

    Parameters
    ----------
    batch : ProblemBatch
        B instances.
    *arguments, **options
        As for `train`; tensors in `init` have no axis B.
    size : int, optional
        Instances in a chunk. By default as many as need about 1 GiB: 8 bytes times
        S (d^2 + n T) for the snapshots, and the larger of 16 (n T d + d^2) for the training and
        3 (n T)^2 for the SVM.

    Yields
    ------
    slice, Trajectory
        The instances of the chunk, and their trajectory.
    """
    bound = signature(train).bind(batch, *arguments, **options)
    bound.apply_defaults()
    chosen = optimizer_named(bound.arguments["optimizer"], bound.arguments["options"])
    size = size or chunk_size(batch, len(chosen.grid()))
    for first in range(0, batch.B, size):
        part = slice(first, min(first + size, batch.B))
        yield part, train(batch.take(part), *arguments, **options)


def chunk_size(batch: ProblemBatch, snapshots: int) -> int:
    """Return how many instances can be trained, and their SVMs solved, in 1 GiB; at least 1."""
    _, n, T, d = batch.X.shape
    training, svm = 16 * (n * T * d + d * d), 3 * min(n * T, ROWS) ** 2
    numbers = snapshots * (d * d + n * T) + max(training, svm)
    return max(1, 2**30 // (8 * numbers))


def optimizer_named(optimizer: str | Optimizer, options: dict[str, Any]) -> Optimizer:
    """Return the optimizer: the object itself, or the one of that name."""
    if isinstance(optimizer, Optimizer):
        if options:
            raise ConfigError(f"{', '.join(options)}: must be set in the given optimizer itself")
        return optimizer
    return named("optimizer", optimizer, **options)


def parameterization_named(rule: str | Parameterization, m: int | None) -> Parameterization:
    """Return the parameterization: the object itself, or the one of that name."""
    return named("parameterization", rule, **({} if m is None else {"m": m}))


@contextmanager
def reporting(progress: bool | Report, steps: int) -> Iterator[Report]:
    """Yield what a training of so many steps reports to."""
    shown = speaking() if progress is True and sys.stderr.isatty() else nullcontext()
    with shown, doing("step", steps) as work:

        def report(done: int) -> None:
            work.done = done
            if callable(progress):
                progress(done)

        yield report
