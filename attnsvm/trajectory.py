"""What training leaves: snapshots, attention, risk, and how far the last step can be trusted."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from attnsvm.config import MACHINE_EPS
from attnsvm.gradient import Forward, log_domain, token_scores
from attnsvm.head import Parameters
from attnsvm.optimizer import norm
from attnsvm.parameterization import Variables
from attnsvm.risk import Risk

STALLED = 1e-2
"""Relative error of a step's direction from which it counts as rounding noise."""

SETTLED = 1e-2
"""Relative change of a norm below which it counts as constant."""


class TrainingStatus(StrEnum):
    """How the training of an instance ended."""

    SATURATED = "saturated"
    UNSATURATED = "unsaturated"
    FINITE_OPTIMUM = "finite_optimum"
    STALLED = "stalled"
    DIVERGED = "diverged"

    @property
    def message(self) -> str:
        """What it means and what to do next."""
        return {
            "saturated": "every sample attends to one token",
            "unsaturated": "some sample still attends to several tokens: train for more steps",
            "finite_optimum": "the weights stopped growing: no direction to compare with an SVM",
            "stalled": "the last steps were rounding noise: use gradient=log_domain",
            "diverged": "a weight is not finite: use a smaller lr",
        }[self.value]


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
    direction_error : Tensor
        Relative rounding error of the last gradient's direction, shape (B,): of the direct
        gradient measured against the exact one, of the exact one estimated from its terms.
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

    def take(self, index: slice | Tensor) -> Trajectory:
        """Return the trajectory of the instances at `index`."""
        changed: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.name == "head_parameters":
                changed[f.name] = {name: p[index] for name, p in value.items()}
            elif f.name != "steps" and value is not None:
                changed[f.name] = value[index]
        return dataclasses.replace(self, **changed)

    def settled(self) -> Tensor:
        """Return whether ||W||_F changed by less than 1% in the second half, shape (B,), bool."""
        half = int((self.steps - self.steps[-1] / 2).abs().argmin())
        before, after = (self.snapshots[:, at].norm(dim=(1, 2)) for at in (half, -1))
        constant: Tensor = (after - before).abs() < SETTLED * after
        return constant

    def status(self, saturation: float = 0.999) -> list[TrainingStatus]:
        """Return how the training of each instance ended; the first that applies.

        Parameters
        ----------
        saturation : float
            Smallest top attention of a saturated instance.
        """
        saturated = (self.log_softmax.amax(-1).exp() >= saturation).all(-1)
        states = (
            (TrainingStatus.DIVERGED, self.diverged),
            (TrainingStatus.STALLED, ~(self.direction_error < STALLED)),
            (TrainingStatus.FINITE_OPTIMUM, self.settled()),
            (TrainingStatus.UNSATURATED, ~saturated),
            (TrainingStatus.SATURATED, torch.ones_like(saturated)),
        )
        return [next(name for name, holds in states if holds[b]) for b in range(len(self.W))]


class Recorder:
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

    def trajectory(self, last: Variables, how: str) -> Trajectory:
        """Return the trajectory that ends with the variables `last`, found by gradient `how`."""
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
            direction_error=_direction_error(self.risk, last, how),
        )


def _direction_error(risk: Risk, variables: Variables, how: str) -> Tensor:
    """Return the relative rounding error of the direction of the gradient at `variables`, (B,)."""
    forward = risk.forward(variables)
    exact = risk.gradient(variables, forward).parts[: risk.attention_count]
    if how == "direct":
        noisy = risk.gradient(variables, forward, "direct").parts[: risk.attention_count]
        errors = [norm(_unit(a) - _unit(b)) for a, b in zip(noisy, exact, strict=True)]
        return torch.stack(errors).amax(0)
    batch, parameters = risk.batch, risk.head_parameters(variables)
    q, _ = log_domain(forward, token_scores(batch, forward, risk.loss, parameters))
    W = risk.rule.combine(risk.attention(variables))
    sizes = q.abs() * batch.X.norm(dim=-1) * batch.Z.norm(dim=-1, keepdim=True)
    length = norm(torch.bmm(torch.einsum("bnt,bntd->bdn", q, batch.X), batch.Z))
    logits = norm(W) * (batch.X.norm(dim=-1) * batch.Z.norm(dim=-1, keepdim=True)).flatten(1).amax(
        1
    )
    terms = MACHINE_EPS * (1 + logits) * sizes.sum((1, 2))
    return torch.where(terms > 0, terms / length, 0.0)


def _unit(part: Tensor) -> Tensor:
    return part / norm(part).clamp(min=1e-300).reshape(-1, *[1] * (part.ndim - 1))
