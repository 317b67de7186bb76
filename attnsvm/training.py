"""Training of a whole batch at once: the loop, and the trajectory that it leaves."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from attnsvm.build import named
from attnsvm.gradient import GRADIENTS, Forward, attend, token_gradient, token_scores
from attnsvm.loss import Loss
from attnsvm.optimizer import Optimizer
from attnsvm.parameterization import Parameterization, Variables
from attnsvm.problem import ProblemBatch

Progress = Callable[[int], None]

PROGRESS_EVERY = 50
"""Steps between two calls of the progress callback."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What training left: S snapshots of B instances, always those of step 0 and of the last step.

    Attributes
    ----------
    steps : Tensor
        Number of updates before each snapshot, shape (S,), int64.
    snapshots : Tensor
        Combined weights W, shape (B, S, d, d).
    loss : Tensor
        Risk without the ridge, shape (B, S).
    softmax : Tensor
        Attention s, shape (B, S, n, T).
    log_softmax : Tensor
        log s at the last step, shape (B, n, T), also where s itself underflows.
    W : Tensor
        Combined weights at the last step, shape (B, d, d).
    K, Q : Tensor or None
        Factors at the last step, shape (B, d, m), where they exist.
    diverged : Tensor
        Instances with a non-finite weight, shape (B,), bool.
    """

    steps: Tensor
    snapshots: Tensor
    loss: Tensor
    softmax: Tensor
    log_softmax: Tensor
    W: Tensor
    K: Tensor | None
    Q: Tensor | None
    diverged: Tensor


def train(
    batch: ProblemBatch,
    parameterization: str | Parameterization = "w",
    optimizer: str | Optimizer = "normalized_gd",
    loss: str | Loss = "logistic",
    *,
    m: int | None = None,
    init: str | Tensor | Variables | None = None,
    progress: bool | Progress = False,
    **options: Any,
) -> Trajectory:
    """Minimise the risk (1/n) sum_i l(Y_i f_i) of every instance over its attention weights.

    Parameters
    ----------
    batch : ProblemBatch
        B instances; everything happens on the device of its tensors.
    parameterization : str or Parameterization
        w or kq.
    optimizer : str or Optimizer
        normalized_gd or gd.
    loss : str or Loss
        logistic, exponential or linear.
    m : int, optional
        Columns of K and Q, with parameterization kq.
    init : str, Tensor or tuple of Tensor, optional
        zero, uniform or small; or the initial W0, or (K0, Q0), with or without the axis B.
    progress : bool or callable
        True: a bar on stderr where that is a terminal; or a function that is called with the
        number of steps done, every 50 steps and at the end.
    **options
        Fields of the optimizer's config: lr, steps, growth, gradient, ridge, init_scale,
        record_every.

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
    stepper = (
        optimizer if isinstance(optimizer, Optimizer) else named("optimizer", optimizer, **options)
    )
    if isinstance(optimizer, Optimizer) and options:
        raise TypeError(f"{', '.join(options)}: set on the optimizer given")
    risk = loss if isinstance(loss, Loss) else named("loss", loss)
    if init is None or isinstance(init, str):
        start = rule.init(stepper.init, stepper.init_scale, batch.seeds, batch.d)
    else:
        start = tuple(V.to(batch.X.device) for V in rule.given(init, batch.B, batch.d))
    with _reporting(progress, stepper.steps) as report, torch.no_grad():
        return _run(batch, rule, stepper, risk, start, report)


def record_steps(steps: int, every: int) -> list[int]:
    """Return the steps at which a snapshot is taken: 0, every, 2 every, ... and `steps`."""
    return [*range(0, steps, every), steps]


def parameterization_named(
    parameterization: str | Parameterization, m: int | None
) -> Parameterization:
    """Return the parameterization given or named."""
    if isinstance(parameterization, Parameterization):
        return parameterization
    fields = {} if m is None else {"m": m}
    rule: Parameterization = named("parameterization", parameterization, **fields)
    return rule


def _run(
    batch: ProblemBatch,
    rule: Parameterization,
    optimizer: Optimizer,
    loss: Loss,
    variables: Variables,
    report: Progress,
) -> Trajectory:
    grid = record_steps(optimizer.steps, optimizer.record_every)
    recorder = _Recorder(batch, grid, loss)
    for k in range(optimizer.steps + 1):
        forward = attend(batch, rule.query(variables, batch.Z))
        if k == grid[recorder.taken]:
            recorder.take(rule.combine(variables), forward)
        if k % PROGRESS_EVERY == 0 or k == optimizer.steps:
            report(k)
        if k == optimizer.steps:
            break
        gradients, log_scale = risk_gradient(batch, rule, optimizer, loss, variables, forward)
        variables = optimizer.update(variables, gradients, log_scale, k)
    factors = variables if len(variables) == 2 else (None, None)
    return recorder.trajectory(forward, *factors)


def risk_gradient(
    batch: ProblemBatch,
    rule: Parameterization,
    optimizer: Optimizer,
    loss: Loss,
    variables: Variables,
    forward: Forward,
) -> tuple[Variables, Tensor]:
    """Return the gradient of risk + ridge, divided by exp(log_scale), and log_scale, shape (B,).

    The scale is that of the larger of the two parts, so that neither overflows and the smaller
    one keeps its true relative size.
    """
    q, log_scale = GRADIENTS[optimizer.gradient](forward, token_scores(batch, forward, loss))
    ridge = torch.as_tensor(2 * optimizer.ridge, dtype=q.dtype, device=q.device)
    if optimizer.ridge and optimizer.gradient == "log_domain":
        shift, log_scale = log_scale, log_scale.clamp(min=math.log(2 * optimizer.ridge))
        q = q * (shift - log_scale).exp()[:, None, None]
        ridge = ridge / log_scale.exp()[:, None, None]
    gradients = rule.pullback(variables, token_gradient(batch, q), batch.Z)
    if optimizer.ridge:
        gradients = tuple(g + ridge * V for g, V in zip(gradients, variables, strict=True))
    return gradients, log_scale


class _Recorder:
    """Fills the arrays of a trajectory, one snapshot after the other."""

    def __init__(self, batch: ProblemBatch, grid: list[int], loss: Loss) -> None:
        B, n, T, d = batch.X.shape
        self.grid, self.loss, self.taken = grid, loss, 0
        self.snapshots = batch.X.new_empty(B, len(grid), d, d)
        self.risk = batch.X.new_empty(B, len(grid))
        self.softmax = batch.X.new_empty(B, len(grid), n, T)

    def take(self, W: Tensor, forward: Forward) -> None:
        """Store the next snapshot."""
        self.snapshots[:, self.taken] = W
        self.risk[:, self.taken] = self.loss.value(forward.margins).mean(-1)
        self.softmax[:, self.taken] = forward.softmax
        self.taken = min(self.taken + 1, len(self.grid) - 1)

    def trajectory(self, last: Forward, K: Tensor | None, Q: Tensor | None) -> Trajectory:
        """Return the trajectory that ends with the forward pass `last`."""
        W = self.snapshots[:, -1].clone()
        return Trajectory(
            steps=torch.tensor(self.grid),
            snapshots=self.snapshots,
            loss=self.risk,
            softmax=self.softmax,
            log_softmax=last.log_softmax,
            W=W,
            K=K,
            Q=Q,
            diverged=~self.snapshots.isfinite().flatten(1).all(-1),
        )


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
