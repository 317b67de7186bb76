"""Trained instances, the tokens that they attend to, and what is recorded of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from attnsvm.experiment.tables import Findings, Status
from attnsvm.problem import ProblemBatch
from attnsvm.selection import TokenSelection
from attnsvm.training import TrainingStatus, Trajectory


@dataclass(frozen=True, eq=False)
class Trained:
    """Instances and their weights: one of each instance, or of each layer and head of a network.

    Attributes
    ----------
    drawn : ProblemBatch
        The B instances, with the drawn parameters of the head.
    path : Trajectory
        Their weights over the steps.
    key : mapping of str to Tensor
        What distinguishes rows of one seed, each (B,): layer and head of attention.
    network : Findings
        What else is recorded of a network.
    """

    drawn: ProblemBatch
    path: Trajectory
    key: Mapping[str, Tensor] = field(default_factory=dict)
    network: Findings = field(default_factory=Findings)

    @cached_property
    def batch(self) -> ProblemBatch:
        """The instances with the parameters of the head at the last step."""
        if not self.drawn.head.train:
            return self.drawn
        return dataclasses.replace(self.drawn, head_parameters=self.path.head_parameters)

    def take(self, index: Tensor) -> Trained:
        """Return the instances at `index`."""
        key = {name: values[index] for name, values in self.key.items()}
        return Trained(self.drawn.take(index), self.path.take(index), key)


@dataclass(frozen=True, eq=False)
class Selected:
    """Trained instances, the tokens that they attend to, and which instances are excluded."""

    trained: Trained
    selection: TokenSelection
    status: tuple[Status, ...]
    findings: Findings

    def accepted(self) -> Tensor:
        """Return the indices of the instances that are not excluded."""
        found = [k for k, (status, _) in enumerate(self.status) if status == "ok"]
        return torch.tensor(found, dtype=torch.long, device=self.trained.batch.X.device)


def training_findings(
    trained: Trained,
    selection: TokenSelection,
    ends: list[TrainingStatus],
    keep_path: bool,
    factors: bool,
) -> Findings:
    """Return what is recorded of training, of the selected tokens and of how training ended."""
    batch, path = trained.drawn, trained.path
    columns = {
        "training": [end.value for end in ends],
        "tie": selection.tie,
        "saturated": selection.saturated,
        "min_top_softmax": selection.top_softmax.amin(-1),
        "max_masked_softmax": selection.max_masked,
        "attended_tokens": selection.attended.sum(-1).double().mean(-1),
        "flat": None if trained.key else _flat(batch, path),
        "risk": path.loss[:, -1],
        "W_norm": path.W.norm(dim=(-2, -1)),
    }
    curves = {
        "risk": (path.steps, path.loss),
        "max_softmax": (path.steps, path.softmax.amax(-1).mean(-1)),
        "W_norm": (path.steps, path.snapshots.norm(dim=(-2, -1))),
    }
    arrays = {"trained_W": path.W, "selected": selection.selected}
    if keep_path:
        steps, scores = path.steps.expand(batch.B, -1), batch.scores()
        arrays |= {"snapshots": path.snapshots, "softmax": path.softmax}
        arrays |= {"steps": steps, "scores": scores}
    if factors and path.K is not None and path.Q is not None:
        arrays |= {"trained_K": path.K, "trained_Q": path.Q}
    if batch.head.train and set(path.head_parameters) == {"v"}:
        arrays |= {"trained_v": path.head_parameters["v"], "Y": batch.Y}
    return Findings(columns, curves, arrays)


def _flat(batch: ProblemBatch, path: Trajectory) -> Tensor:
    """Return whether the head's gradient is exactly zero at some sample's final output, (B,)."""
    outputs = (path.softmax[:, -1, :, None] @ batch.X)[:, :, 0]
    return (batch.head.gradient(outputs, path.head_parameters) == 0).all(-1).any(-1)
