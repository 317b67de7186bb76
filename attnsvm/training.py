"""Training of a whole batch at once: the loop, and the trajectory that it leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from attnsvm import fused as kernels
from attnsvm.build import named
from attnsvm.config import ConfigError
from attnsvm.loss import Loss
from attnsvm.optimizer import FirstOrder, Optimizer
from attnsvm.parameterization import Parameterization, Variables
from attnsvm.problem import ProblemBatch
from attnsvm.regularization_path import RegularizationPath
from attnsvm.risk import Risk
from attnsvm.trajectory import Recorder
from attnsvm.trajectory import Trajectory as Trajectory

Progress = Callable[[int], None]


def train(
    batch: ProblemBatch,
    parameterization: str | Parameterization = "w",
    optimizer: str | Optimizer = "normalized_gd",
    loss: str | Loss = "logistic",
    *,
    m: int | None = None,
    init: str | Tensor | Variables | None = None,
    progress: bool | Progress = False,
    fused: bool = True,
    **options: Any,
) -> Trajectory:
    """Minimise the risk (1/n) sum_i l(Y_i f_i) of every instance over its attention weights.

    On one machine the numbers of an instance are the same to the last bit, whatever the batch, its
    chunks and the number of threads. Elsewhere last bits differ; where steps overshoot, that is
    with normalised steps of (K, Q) or growing ones, these differences grow to a few step sizes.

    Parameters
    ----------
    batch : ProblemBatch
        B instances; everything happens on the device of its tensors.
    parameterization : str or Parameterization
        w or kq.
    optimizer : str or Optimizer
        normalized_gd, gd, polyak, momentum, adam, sign_gd, mirror_descent or
        regularization_path.
    loss : str or Loss
        logistic, exponential or linear.
    m : int, optional
        Columns of K and Q, with parameterization kq.
    init : str, Tensor or tuple of Tensor, optional
        zero, uniform or small; or the initial W0, or (K0, Q0), with or without the axis B.
    progress : bool or callable
        True: a bar on stderr where that is a terminal; or a function that is called with the
        number of steps done, every now and then and at the end.
    fused : bool
        Whether the compiled kernel may take the steps where it can. The torch loop, to which it is
        equal but for rounding, does everything else.
    **options
        Fields of the optimizer's config: lr, steps, growth, schedule, gradient, ridge,
        init_scale, record_every, record, and those of its own.

    Returns
    -------
    Trajectory
        An instance that leaves the finite numbers is marked `diverged`, the others are untouched.

    Raises
    ------
    ConfigError
        If a name, a field or a value is not allowed.
    """
    if isinstance(init, str):
        options["init"] = init
    rule = parameterization_named(parameterization, m)
    stepper = _optimizer_named(optimizer, options)
    stepper.check_head(batch.head)
    risk = Risk(batch, rule, loss if isinstance(loss, Loss) else named("loss", loss))
    if init is None or isinstance(init, str):
        start = rule.init(stepper.init, stepper.init_scale, batch.seeds, batch.d)
    else:
        start = tuple(V.to(batch.X.device) for V in rule.given(init, batch.B, batch.d))
    with torch.no_grad():
        if batch.B > 1:
            return _train(risk, stepper, start, progress, fused)
        # torch multiplies one matrix by other routines than several: a twin makes the bits equal
        both = torch.zeros(2, dtype=torch.int64, device=batch.X.device)
        twins = Risk(batch.take(both), rule, risk.loss)
        start = tuple(V[both] for V in start)
        return _train(twins, stepper, start, progress, fused).take(slice(1))


def train_chunks(
    batch: ProblemBatch, *arguments: Any, size: int | None = None, **options: Any
) -> Iterator[tuple[slice, Trajectory]]:
    """Train a batch of any size chunk by chunk, in bounded memory.

    Each instance's numbers are those of `train` on the whole batch, bit for bit.

    Parameters
    ----------
    batch : ProblemBatch
        B instances.
    *arguments, **options
        Those of `train`; tensors in `init` have no axis B.
    size : int, optional
        Instances in a chunk. By default as many as fit their trajectory and the work on it into
        about 1 GiB: 8 bytes times S (d^2 + n T) for the snapshots and 16 (n T d + d^2) besides.

    Yields
    ------
    slice, Trajectory
        The instances of the chunk, and their trajectory.
    """
    size = size or chunk_size(
        batch, len(_optimizer_named(*_optimizer_of(arguments, options)).grid())
    )
    for first in range(0, batch.B, size):
        part = slice(first, min(first + size, batch.B))
        yield part, train(batch.take(part), *arguments, **options)


def chunk_size(batch: ProblemBatch, snapshots: int) -> int:
    """Return how many instances fit their trajectory and the work on it into 1 GiB, at least 1."""
    _, n, T, d = batch.X.shape
    numbers = snapshots * (d * d + n * T) + 16 * (n * T * d + d * d)
    return max(1, 2**30 // (8 * numbers))


def _optimizer_of(
    arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[str | Optimizer, dict[str, Any]]:
    """Return the arguments of `_optimizer_named` among those of `train`."""
    optimizer = options.get("optimizer", arguments[1] if len(arguments) > 1 else "normalized_gd")
    others = ("parameterization", "optimizer", "loss", "m", "init", "progress", "fused")
    return optimizer, {name: value for name, value in options.items() if name not in others}


def _train(
    risk: Risk, optimizer: Optimizer, start: Variables, progress: bool | Progress, fused: bool
) -> Trajectory:
    if risk.batch.head.train:
        start += tuple(p.clone() for p in risk.batch.head_parameters.values())
    if fused and isinstance(optimizer, FirstOrder) and kernels.applies(risk, optimizer):
        with kernels.torch_at_rest() as threads:
            run = partial(kernels.run, optimizer, threads)
            return _recorded(risk, optimizer, start, run, progress)
    return _recorded(risk, optimizer, start, optimizer.run, progress)


def _recorded(
    risk: Risk,
    optimizer: Optimizer,
    start: Variables,
    run: Callable[..., Variables],
    progress: bool | Progress,
) -> Trajectory:
    recorder = Recorder(risk, optimizer.grid())
    with _reporting(progress, recorder.units) as report:
        last = run(risk, start, recorder.take, report)
    if isinstance(optimizer, FirstOrder):
        return recorder.trajectory(last, optimizer.gradient, optimizer.ridge)
    how = "sphere" if isinstance(optimizer, RegularizationPath) else "log_domain"
    return recorder.trajectory(last, how, 0.0)


def _optimizer_named(optimizer: str | Optimizer, options: dict[str, Any]) -> Optimizer:
    if isinstance(optimizer, Optimizer):
        if options:
            raise ConfigError(f"{', '.join(options)}: set on the optimizer given")
        return optimizer
    made: Optimizer = named("optimizer", optimizer, **options)
    return made


def parameterization_named(rule: str | Parameterization, m: int | None) -> Parameterization:
    """Return the parameterization given or named."""
    if isinstance(rule, Parameterization):
        return rule
    fields = {} if m is None else {"m": m}
    named_rule: Parameterization = named("parameterization", rule, **fields)
    return named_rule


class _reporting:  # noqa: N801
    """Context that yields the progress callback and closes the bar, if there is one."""

    def __init__(self, progress: bool | Progress, steps: int) -> None:
        shown = progress is True and sys.stderr.isatty()
        self.bar = tqdm(total=steps, desc="training", unit="step") if shown else None
        self.callback = progress if callable(progress) else None

    def __enter__(self) -> Progress:
        return self._report

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def _report(self, done: int) -> None:
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
        if self.callback is not None:
            self.callback(done)
