"""The result of training: snapshots, attention, risk, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.words import MEANINGS
from attnsvm.display.results import Batched, counted, over_steps
from attnsvm.head import Parameters
from attnsvm.linalg import one_minus_correlation, real
from attnsvm.nn.risk import Forward, Risk
from attnsvm.parameterization import Variables
from attnsvm.training.ending import ended

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STALLED = 1e-2
"""Relative error of a step's direction above which the step counts as rounding noise."""


class TrainingStatus(StrEnum):
    """How the training of an instance ended."""

    SATURATED = "saturated"
    UNSATURATED = "unsaturated"
    FINITE_OPTIMUM = "finite_optimum"
    STALLED = "stalled"
    DIVERGED = "diverged"

    @property
    def message(self) -> str:
        """What the status means and what to do next."""
        return MEANINGS["training"][self]


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory(Batched):
    """Result of training: S snapshots of B instances; step 0 and the last step are among them.

    Attributes
    ----------
    steps : Tensor
        Number of updates before each snapshot, shape (S,), int64; for a regularisation path the
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
        Parameters of the head at the last step, each (B, ...); as given unless it is trained.
    direction_error : Tensor
        Relative rounding error of the last gradient's direction, shape (B,); for a regularisation
        path the error of its last point as a minimiser.
    finite_optimum : Tensor
        Instances at a minimum of risk and ridge, shape (B,), bool.
    K_snapshots, Q_snapshots : Tensor or None
        Factors at every snapshot, shape (B, S, d, m), with `train(keep_factors=True)`.
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
    direction_error: Tensor
    finite_optimum: Tensor
    K_snapshots: Tensor | None = None
    Q_snapshots: Tensor | None = None

    SHARED: ClassVar[tuple[str, ...]] = ("steps",)

    def summary(self) -> dict[str, Any]:
        """Return the sizes and how the trainings ended."""
        (B, S, n, T), d = self.softmax.shape, self.W.shape[-1]
        sizes = {"instances": B, "n": n, "T": T, "d": d, "snapshots": S}
        trained = "W" if self.K is None else f"K, Q (m={self.K.shape[-1]})"
        ended = counted(status.value for status in self.status())
        return sizes | {"last_step": self.steps[-1].item(), "trained": trained, "ended": ended}

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.W)

    def plot(self, W_svm: Any = None, ax: Axes | None = None) -> Axes:
        """Draw every instance over the steps, and the median.

        Parameters
        ----------
        W_svm : (B, d, d), optional
            Solutions of the SVM: draws 1 - corr(W(k), W_svm). Without them it draws
            1 - min_i max_t s_it, which is 0 where every sample attends to one token.
        ax : Axes, optional
            New ones by default.
        """
        if W_svm is None:
            others = self.softmax.sort(-1).values[..., :-1]  # 1 - max would round to 1e-16
            values = others.sum(-1).amax(-1)
            label = r"$1 - \min_i \max_t s_{it}$"
        else:
            W = real("W_svm", W_svm, self.snapshots.device)
            if W.shape != self.W.shape:
                shapes = f"shape {tuple(W.shape)}; must be {tuple(self.W.shape)}"
                raise ConfigError(f"W_svm: {shapes}, a matrix for every instance")
            values = one_minus_correlation(self.snapshots, W[:, None])
            label = r"$1 - \mathrm{corr}(W(k), W_{\mathrm{SVM}})$"
        return over_steps(ax, self.steps.numpy(), values.cpu().numpy(), label)

    def status(self, saturation: float = 0.999) -> list[TrainingStatus]:
        """Return how the training of each instance ended; the first status that applies.

        Parameters
        ----------
        saturation : float
            Smallest top attention of a saturated instance.
        """
        saturated = (self.log_softmax.amax(-1).exp() >= saturation).all(-1)
        states = (
            (TrainingStatus.DIVERGED, self.diverged),
            (TrainingStatus.FINITE_OPTIMUM, self.finite_optimum),
            (TrainingStatus.STALLED, ~(self.direction_error < STALLED)),
            (TrainingStatus.UNSATURATED, ~saturated),
            (TrainingStatus.SATURATED, torch.ones_like(saturated)),
        )
        first = torch.stack([holds for _, holds in states]).to(torch.uint8).argmax(0)
        return [states[at][0] for at in first.tolist()]


class Recorder:
    """Fills arrays (B, S, ...) of what is seen at S snapshots, by name."""

    def __init__(self, grid: list[float]) -> None:
        self.grid, self.taken, self.arrays = grid, 0, dict[str, Tensor]()

    @property
    def units(self) -> int:
        """Total of the progress: steps, or points of a path."""
        steps = self.grid[-1]
        return steps if isinstance(steps, int) else len(self.grid) - 1

    def store(self, **values: Tensor) -> None:
        """Store what is seen at the next snapshots, each (count, B, ...)."""
        for name, V in values.items():
            if name not in self.arrays:
                self.arrays[name] = V.new_empty(V.shape[1], len(self.grid), *V.shape[2:])
            self.arrays[name][:, self.taken : self.taken + len(V)] = V.transpose(0, 1)
        self.taken += len(V)


class SnapshotRecorder(Recorder):
    """Makes a trajectory, one snapshot after the other."""

    last: Variables
    log_softmax: Tensor

    def __init__(self, risk: Risk, grid: list[float], keep_factors: bool = False) -> None:
        super().__init__(grid)
        self.risk, self.keep_factors = risk, keep_factors

    def take(self, variables: Variables, view: Forward) -> None:
        """Store the next snapshot."""
        self.take_all([V[None] for V in variables], view.log_softmax[None], view.margins[None])

    def take_all(self, variables: Sequence[Tensor], log_softmax: Tensor, margins: Tensor) -> None:
        """Store the next snapshots, each argument (count, B, ...)."""
        attention = self.risk.attention(tuple(variables))
        W = self.risk.rule.combine(tuple(V.flatten(0, 1) for V in attention))
        factors = zip("KQ", attention, strict=False) if self.keep_factors else ()
        self.store(
            W=W.view(*margins.shape[:2], *W.shape[1:]),
            loss=self.risk.loss.value(margins).mean(-1),
            softmax=log_softmax.exp(),
            **dict(factors),
        )
        # clones, else they keep those of all
        self.last = tuple(V[-1].clone() for V in variables)
        self.log_softmax = log_softmax[-1].clone()

    def trajectory(self, how: str, ridge: float, threads: int) -> Trajectory:
        """Return the trajectory; `how` is the kind of gradient used.

        Up to `threads` threads find out how it ended.
        """
        attention, seen = self.risk.attention(self.last), self.arrays
        K, Q = attention if len(attention) == 2 else (None, None)
        ends = [torch.aminmax(V.flatten(1), dim=1) for V in (*self.last, seen["W"])]
        finite = torch.stack([end for pair in ends for end in pair]).isfinite().all(0)
        W = seen["W"][:, -1].clone()
        error, optimum = ended(self.risk, self.last, W, how, ridge, threads)
        return Trajectory(
            steps=torch.from_numpy(np.array(self.grid)),  # int64, of a path float64
            snapshots=seen["W"],
            loss=seen["loss"],
            softmax=seen["softmax"],
            log_softmax=self.log_softmax,
            W=W,
            K=K,
            Q=Q,
            diverged=~finite,
            head_parameters=self.risk.head_parameters(self.last),
            direction_error=error,
            finite_optimum=optimum,
            K_snapshots=seen.get("K"),
            Q_snapshots=seen.get("Q"),
        )
