"""Training of a whole batch at once: the loop, and the trajectory that it leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from attnsvm.build import named
from attnsvm.config import ConfigError
from attnsvm.gradient import Forward
from attnsvm.head import Parameters
from attnsvm.loss import Loss
from attnsvm.optimizer import Optimizer
from attnsvm.parameterization import Parameterization, Variables
from attnsvm.problem import ProblemBatch
from attnsvm.risk import Risk

Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What training left: S snapshots of B instances, always those of step 0 and of the last step.

    Attributes
    ----------
    steps : Tensor
        Number of updates before each snapshot, shape (S,), int64; of a regularisation path the
        radii, float64, after a 0 for the initial weights.
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
    head_parameters : dict of str to Tensor
        Parameters of the head at the last step, each (B, ...): the batch's unless it is trained.
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
    head_parameters: Parameters


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
        number of steps done, every 50 steps and at the end.
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
    risk = Risk(batch, rule, loss if isinstance(loss, Loss) else named("loss", loss))
    if init is None or isinstance(init, str):
        start = rule.init(stepper.init, stepper.init_scale, batch.seeds, batch.d)
    else:
        start = tuple(V.to(batch.X.device) for V in rule.given(init, batch.B, batch.d))
    if batch.head.train:
        start += tuple(p.clone() for p in batch.head_parameters.values())
    recorder = _Recorder(risk, stepper.grid())
    with _reporting(progress, recorder.units) as report, torch.no_grad():
        last = stepper.run(risk, start, recorder.take, report)
    return recorder.trajectory(last)


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


class _Recorder:
    """Fills the arrays of a trajectory, one snapshot after the other."""

    def __init__(self, risk: Risk, grid: list[float]) -> None:
        B, n, T, d = risk.batch.X.shape
        self.risk, self.grid, self.taken = risk, grid, 0
        self.snapshots = risk.batch.X.new_empty(B, len(grid), d, d)
        self.loss = risk.batch.X.new_empty(B, len(grid))
        self.softmax = risk.batch.X.new_empty(B, len(grid), n, T)
        self.log_softmax = self.softmax[:, 0]

    @property
    def units(self) -> int:
        """Units of work that the progress counts up to."""
        steps = self.grid[-1]
        return steps if isinstance(steps, int) else len(self.grid) - 1

    def take(self, variables: Variables, forward: Forward) -> None:
        """Store the next snapshot."""
        self.snapshots[:, self.taken] = self.risk.rule.combine(self.risk.attention(variables))
        self.loss[:, self.taken] = self.risk.value(forward)
        self.softmax[:, self.taken] = forward.softmax
        self.log_softmax = forward.log_softmax
        self.taken += 1

    def trajectory(self, last: Variables) -> Trajectory:
        """Return the trajectory that ends with the variables `last`."""
        attention = self.risk.attention(last)
        K, Q = attention if len(attention) == 2 else (None, None)
        finite = torch.stack([V.isfinite().flatten(1).all(-1) for V in last]).all(0)
        return Trajectory(
            steps=torch.tensor(self.grid),
            snapshots=self.snapshots,
            loss=self.loss,
            softmax=self.softmax,
            log_softmax=self.log_softmax,
            W=self.snapshots[:, -1].clone(),
            K=K,
            Q=Q,
            diverged=~(finite & self.snapshots.isfinite().flatten(1).all(-1)),
            head_parameters=self.risk.head_parameters(last),
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
