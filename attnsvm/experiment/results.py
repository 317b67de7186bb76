"""What the stages of a run return, each a frozen value, and the tables that are made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnsvm.config.run import SelectionConfig
from attnsvm.config.words import rows
from attnsvm.linalg import one_minus_correlation
from attnsvm.loss import Loss
from attnsvm.optimizer.base import broadcast
from attnsvm.problem import ProblemBatch
from attnsvm.record.columns import TRIAL_COLUMNS, Column, key_columns
from attnsvm.record.schema import trial_table
from attnsvm.selection import TokenSelection
from attnsvm.svm import SvmSolution
from attnsvm.training import STALLED, TrainingStatus, Trajectory

Status = tuple[str, str]
"""Status of an instance and its reason; `OK` until a stage excludes it."""

OK: Status = ("ok", "")

_rows = rows(Path(__file__).with_name("exclusions.csv"))
EXCLUSIONS = {row["name"]: (row["status"], row["reason"]) for row in _rows}
"""Why training or the selection of tokens excludes an instance: its status and the reason."""

NEGATIVE = -1e-9
"""Scores below it are negative, and not zero up to rounding."""

Exclusion = tuple[Any, str, str]
"""Which instances (B,) a stage excludes, with their status and the reason."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What a stage adds to the record of B instances, by name.

    Columns of `trials.parquet`, (B,); quantities of `history.parquet` with their steps (S,) and
    values (B, S); arrays of `solutions.npz`, (B, ...).
    """

    columns: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    arrays: Mapping[str, Any] = field(default_factory=dict)

    def __or__(self, other: Findings) -> Findings:
        """Return the findings of both; where both have one, that of `other`."""
        return Findings(
            {**self.columns, **other.columns},
            {**self.curves, **other.curves},
            {**self.arrays, **other.arrays},
        )

    def recorded(self, index: Tensor) -> Findings:
        """Return all columns, but curves and arrays of the instances at `index` only."""
        return Findings(
            self.columns,
            {name: (steps, values[index]) for name, (steps, values) in self.curves.items()},
            {name: array[index] for name, array in self.arrays.items()},
        )

    def spread(self, index: Tensor, B: int, further: Iterable[Column]) -> Findings:
        """Return findings of the instances at `index` of B; the other rows hold the default."""
        defaults = {column.name: column.default for column in (*TRIAL_COLUMNS, *further)}
        columns = {}
        for name, values in self.columns.items():
            known = dict(zip(index.tolist(), plain(values), strict=True))
            columns[name] = [known.get(k, defaults[name]) for k in range(B)]
        return Findings(columns, self.curves, self.arrays)


def quantity(name: str, steps: Tensor, values: Tensor) -> Findings:
    """Return values (B, S) of a quantity over the steps; the column is its last value."""
    return Findings({name: values[:, -1]}, {name: (steps, values)})


def distance(name: str, path: Trajectory, direction: Tensor) -> Findings:
    """Return 1 - correlation of the path with (B, d, d), or with (B, S, d, d) at each snapshot."""
    target = direction[:, None] if direction.ndim == 3 else direction
    return quantity(name, path.steps, one_minus_correlation(path.snapshots, target))


def plain(values: Any) -> Any:
    """Return a column as NumPy or a list."""
    return values.cpu().numpy() if isinstance(values, Tensor) else values


@dataclass(frozen=True, eq=False)
class Trained:
    """Instances and their weights: one of each instance, or of each layer and head of a network.

    `drawn` are the B instances with the drawn parameters of the head, `path` their weights over the
    steps. `key` distinguishes rows of one seed, each (B,): layer and head of attention. `network`
    is what else is recorded of a network.
    """

    drawn: ProblemBatch
    path: Trajectory
    key: Mapping[str, Tensor] = field(default_factory=dict)
    network: Findings = field(default_factory=Findings)

    @cached_property
    def batch(self) -> ProblemBatch:
        """The instances with the parameters of the head at the last step; as drawn if diverged."""
        if not self.drawn.head.train:
            return self.drawn
        drawn, lost = self.drawn.head_parameters, self.path.diverged
        last = self.path.head_parameters.items()
        kept = {name: torch.where(broadcast(lost, p), drawn[name], p) for name, p in last}
        return dataclasses.replace(self.drawn, head_parameters=kept)

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
        index = [k for k, (status, _) in enumerate(self.status) if status == "ok"]
        return torch.tensor(index, dtype=torch.long)


@dataclass(frozen=True, eq=False)
class Separated:
    """The solved SVMs of a batch, by norm, and which instances have one that is not solved.

    `solutions` are the SVMs of the selected tokens, or the margin parts W_mm of Gen-SVM. With these
    `finite` are the finite parts W_fin, and `one_token` is the SVM of the most attended tokens.
    """

    solutions: Mapping[str, SvmSolution[Tensor]]
    findings: Findings
    exclusions: list[Exclusion]
    finite: Mapping[str, SvmSolution[Tensor]] = field(default_factory=dict)
    one_token: SvmSolution[Tensor] | None = None


def marked(
    status: Sequence[Status], exclusions: Iterable[Exclusion], index: Tensor | None = None
) -> tuple[Status, ...]:
    """Return status and reason of each instance: the first exclusion that applies decides.

    Exclusions are of the instances at `index`, or of all.
    """
    marks = list(status)
    for where, word, reason in exclusions:
        places = where.nonzero()[:, 0]
        for k in (places if index is None else index[places]).tolist():
            if marks[k][0] == "ok":
                marks[k] = word, reason
    return tuple(marks)


def exclusions(chosen: SelectionConfig, **where: Any) -> list[Exclusion]:
    """Return the exclusions called `where` in the order of `EXCLUSIONS`, unless they are off."""
    off = {"stalled": chosen.keep_stalled, "positive": not chosen.reject_all_positive}
    return [
        (where[name], status, reason.format_map(vars(chosen) | {"stalled": STALLED}))
        for name, (status, reason) in EXCLUSIONS.items()
        if name in where and not off.get(name)
    ]


def undefined(trained: Trained, loss: Loss) -> Tensor:
    """Return which instances diverge with a loss of positive margins where scores are not, (B,)."""
    least = trained.drawn.scores().masked_fill(~trained.drawn.mask, 0.0).flatten(1).amin(1)
    return trained.path.diverged & loss.POSITIVE & (least < NEGATIVE)


def training_findings(
    trained: Trained,
    selection: TokenSelection,
    ends: list[TrainingStatus],
    keep_path: bool,
    factors: bool,
) -> Findings:
    """Return what is recorded of training, of the selected tokens and of how training ended."""
    batch, path = trained.drawn, trained.path
    flat = None
    if not trained.key:
        outputs = (path.softmax[:, -1, :, None] @ batch.X)[:, :, 0]
        slopes = batch.head.gradient(outputs, path.head_parameters)
        flat = (slopes == 0).all(-1).any(-1)
    columns = {
        "training": [end.value for end in ends],
        "tie": selection.tie,
        "saturated": selection.saturated,
        "min_top_softmax": selection.top_softmax.amin(-1),
        "max_masked_softmax": selection.max_masked,
        "attended_tokens": selection.attended.sum(-1).double().mean(-1),
        "flat": flat,
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
        arrays |= {"snapshots": path.snapshots, "softmax": path.softmax}
        arrays |= {"steps": path.steps.expand(batch.B, -1), "scores": batch.scores()}
    if factors and path.K is not None and path.Q is not None:
        arrays |= {"trained_K": path.K, "trained_Q": path.Q}
    if batch.head.train and set(path.head_parameters) == {"v"}:
        arrays |= {"trained_v": path.head_parameters["v"], "Y": batch.Y}
    return Findings(columns, curves, arrays)


# --- tables ---------------------------------------------------------------------------------------


def tables(
    batch: ProblemBatch,
    key: Mapping[str, Tensor],
    status: Sequence[Status],
    findings: Findings,
    index: Tensor,
    further: tuple[Column, ...],
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Return `trials.parquet`, `history.parquet` and `solutions.npz` of a batch.

    `findings` has columns of all B instances, or of their layers and heads; curves and arrays are
    those of the instances at `index`. `further` are the columns that not every record has.
    """
    words, reasons = zip(*status, strict=True)
    columns = {"status": words, "reason": reasons, **findings.columns, **key}
    known = {name: plain(column) for name, column in columns.items()}
    trials = trial_table(plain(batch.seeds), known, further)
    named = {"X": batch.X, "Z": batch.Z, "mask": batch.mask, "seeds": batch.seeds, **key}
    named = {name: column[index] for name, column in named.items()}
    rows = {"seed": plain(named["seeds"])} | {name: plain(named[name]) for name in key}
    stored = {name: plain(array) for name, array in {**named, **findings.arrays}.items()}
    return trials, _history(rows, findings.curves), stored if len(index) else {}


def _history(
    rows: Mapping[str, np.ndarray], curves: Mapping[str, tuple[Tensor, Tensor]]
) -> pd.DataFrame:
    """Return the curves in long format, by seed (layer, head), step and quantity."""
    types: dict[str, Any] = {**dict.fromkeys(rows, "int64"), "step": "float64"}
    types |= {"quantity": "str", "value": float}
    parts = [
        pd.DataFrame(
            {key: np.repeat(column, len(steps)) for key, column in rows.items()}
            | {"step": np.tile(plain(steps), len(values)), "quantity": name}
            | {"value": plain(values).ravel()}
        )
        for name, (steps, values) in curves.items()
    ]
    table = pd.concat(parts) if parts else pd.DataFrame(columns=list(types))
    table = table.astype(types)
    return table.sort_values(key_columns(table), kind="stable", ignore_index=True)
