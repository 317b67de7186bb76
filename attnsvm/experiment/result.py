"""The results of a run's stages on one batch: rows, curves and arrays of its record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnsvm.linalg.directions import one_minus_correlation
from attnsvm.problem import ProblemBatch
from attnsvm.record.columns import Column, key_columns
from attnsvm.record.schema import trial_columns, trial_table
from attnsvm.selection import TokenSelection
from attnsvm.svm import SvmSolution, SvmStatus
from attnsvm.training import TrainingStatus, Trajectory

STATUS_TEXT = f"<U{max(len(status) for status in SvmStatus)}"
"""NumPy text type that is long enough for every status."""


@dataclass
class BatchResult:
    """The columns, curves and arrays of one batch, filled stage by stage."""

    batch: ProblemBatch
    further: tuple[Column, ...] = ()
    """Columns of trials that not every record has."""
    columns: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    status: list[tuple[str, str]] = field(init=False)
    """Status and reason of each instance."""
    recorded: Tensor = field(init=False)
    """Indices of the instances whose curves and arrays are kept."""
    key: dict[str, Tensor] = field(init=False)
    """What tells instances of one seed apart, each (B,): their layer and head of attention."""

    def __post_init__(self) -> None:
        self.divide(self.batch, {})

    def divide(self, batch: ProblemBatch, key: dict[str, Tensor]) -> None:
        """Put the problems into which the instances divide in their place, before any result."""
        self.batch, self.key = batch, key
        self.status = [("ok", "")] * batch.B
        self.recorded = torch.arange(batch.B, device=batch.X.device)

    def mark(self, where: Any, status: str, reason: str) -> None:
        """Set status and reason of the instances `where` that are still `ok`."""
        for k, hit in enumerate(where):
            if hit and self.status[k][0] == "ok":
                self.status[k] = (status, reason)

    def accepted(self) -> Tensor:
        """Return the indices of the instances that are still `ok`."""
        found = [k for k, (status, _) in enumerate(self.status) if status == "ok"]
        return torch.tensor(found, dtype=torch.long, device=self.batch.X.device)

    def part(self, index: Tensor) -> BatchResult:
        """Return an empty result of the instances at `index`."""
        part = BatchResult(self.batch.take(index), self.further)
        part.key = {name: values[index] for name, values in self.key.items()}
        return part

    def absorb(self, part: BatchResult, index: Tensor) -> None:
        """Add the results in `part`, of the instances at `index`.

        Rows of other instances stay; curves and arrays of other instances are dropped.
        """
        where = index.tolist()
        for k, status in zip(where, part.status, strict=True):
            self.status[k] = status
        for name, values in part.columns.items():
            column = [trial_columns(self.further)[name][1]] * self.batch.B
            for k, value in zip(where, plain(values), strict=True):
                column[k] = value
            self.columns[name] = column
        self.curves = {
            name: (steps, values[index]) for name, (steps, values) in self.curves.items()
        } | part.curves
        self.arrays = {name: array[index] for name, array in self.arrays.items()} | part.arrays
        self.recorded = index

    def record_none(self) -> None:
        """Keep no curve and no array: every instance is excluded."""
        self.curves, self.arrays, self.recorded = {}, {}, self.recorded[:0]

    def table(self) -> pd.DataFrame:
        """Return the content of `trials.parquet`."""
        status, reason = zip(*self.status, strict=True)
        columns = {"status": status, "reason": reason, **self.columns, **self.key}
        return trial_table(
            self.batch.seeds.cpu().numpy(),
            {name: plain(values) for name, values in columns.items()},
            self.further,
        )

    def history(self) -> pd.DataFrame:
        """Return `history.parquet`: curves (steps (S,), values (B, S)) in long format, by seed."""
        key = {"seed": self.batch.seeds, **self.key}
        rows = {name: values[self.recorded].cpu().numpy() for name, values in key.items()}
        parts = [
            pd.DataFrame(
                {
                    **{name: np.repeat(values, len(steps)) for name, values in rows.items()},
                    "step": np.tile(steps.cpu().numpy(), len(self.recorded)),
                    "quantity": name,
                    "value": values.cpu().numpy().ravel(),
                }
            )
            for name, (steps, values) in self.curves.items()
        ]
        types: dict[Any, Any] = {**dict.fromkeys(rows, "int64"), "step": "float64"}
        types |= {"quantity": "str", "value": float}
        table = pd.concat(parts) if parts else pd.DataFrame({name: [] for name in types})
        table = table.sort_values(key_columns(table), kind="stable", ignore_index=True)
        return table.astype(types)

    def mark_unsolved(self, what: str, solution: SvmSolution[Tensor]) -> None:
        """Mark the instances whose SVM, named `what`, is infeasible or undecided."""
        for status in (SvmStatus.infeasible, SvmStatus.undecided):
            where = [one is status for one in solution.statuses]
            self.mark(where, status.value, f"{what}: {status.message}")

    def enter_training(
        self, path: Trajectory, selection: TokenSelection, ends: Sequence[TrainingStatus]
    ) -> None:
        """Add the results of training, the selected tokens and how training ended."""
        self.columns |= {
            "training": [end.value for end in ends],
            "tie": selection.tie,
            "saturated": selection.saturated,
            "min_top_softmax": selection.top_softmax.amin(-1),
            "max_masked_softmax": selection.max_masked,
            "attended_tokens": selection.attended.sum(-1).double().mean(-1),
            "flat": None if self.key else _flat(self.batch, path),
            "risk": path.loss[:, -1],
            "W_norm": path.W.norm(dim=(-2, -1)),
        }
        self.curves |= {
            "risk": (path.steps, path.loss),
            "max_softmax": (path.steps, path.softmax.amax(-1).mean(-1)),
            "W_norm": (path.steps, path.snapshots.norm(dim=(-2, -1))),
        }
        self.arrays |= {"trained_W": path.W, "selected": selection.selected}

    def store_path(self, path: Trajectory) -> None:
        """Add the weights and softmax of every snapshot, and the scores of the batch."""
        self.arrays |= {
            "snapshots": path.snapshots,
            "softmax": path.softmax,
            "steps": path.steps.expand(self.batch.B, -1),
            "scores": self.batch.scores(),
        }

    def tabulate(self, norm: str, solution: SvmSolution[Tensor]) -> None:
        """Add the columns of the SVM of one norm."""
        columns: dict[str, Any] = {
            "status": [status.value for status in solution.statuses],
            "objective": solution.objective,
            "lower_bound": solution.lower_bound,
            "gap": solution.duality_gap,
            "min_margin": solution.min_margin,
            "kappa": solution.kappa,
            "rank": _counts(solution.rank),
            "rank_bound": _counts(solution.rank_bound),
            "support": _counts(solution.support.flatten(1).sum(-1)),
        }
        found = torch.isfinite(solution.objective).tolist()
        for name in ("rank", "rank_bound", "support"):
            columns[name] = [
                value if ok else None for value, ok in zip(columns[name], found, strict=True)
            ]
        self.columns |= {f"{norm}_{name}": value for name, value in columns.items()}

    def store(self, name: str, solution: SvmSolution[Tensor]) -> None:
        """Add the arrays from which the SVM named `name` can be proved again."""
        stored = {
            "W": solution.W,
            "multipliers": solution.certificate.multipliers,
            "ray": solution.certificate.ray,
            "status": np.array([status.value for status in solution.statuses], STATUS_TEXT),
            "objective": solution.objective,
            "lower_bound": solution.lower_bound,
            "duality_gap": solution.duality_gap,
            "min_margin": solution.min_margin,
            "rank": solution.rank,
        }
        self.arrays |= {f"{name}_{field}": array for field, array in stored.items()}

    def measure(self, name: str, steps: Tensor, values: Tensor) -> None:
        """Add a quantity of a probe at every snapshot, (B, S)."""
        self.columns[name] = values[:, -1]
        self.curves[name] = (steps, values)

    def compare(self, name: str, steps: Tensor, snapshots: Tensor, direction: Tensor) -> None:
        """Add 1 - correlation of the snapshots (B, S, d, d) with (B, d, d) or (B, S, d, d)."""
        target = direction[:, None] if direction.ndim == 3 else direction
        values = one_minus_correlation(snapshots, target)
        self.columns[name] = values[:, -1]
        self.curves[name] = (steps, values)

    def solutions(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return `solutions.npz`: the arrays from which every certificate can be proved again."""
        if len(self.recorded) == 0:
            return {}
        batch = self.batch.take(self.recorded)
        key = {name: values[self.recorded] for name, values in self.key.items()}
        problem = {"X": batch.X, "Z": batch.Z, "mask": batch.mask, "seeds": batch.seeds, **key}
        return {name: plain(array) for name, array in {**problem, **self.arrays}.items()}


def plain(values: Any) -> Any:
    """Return a column as NumPy or a list."""
    return values.cpu().numpy() if isinstance(values, Tensor) else values


def _counts(values: Iterable[Any]) -> list[int | None]:
    """Return whole numbers, with None for -1 (unknown)."""
    return [int(value) if value >= 0 else None for value in values]


def _flat(batch: ProblemBatch, path: Trajectory) -> Tensor:
    """Return whether the head's gradient is exactly zero at some sample's final output, (B,)."""
    outputs = (path.softmax[:, -1, :, None] @ batch.X)[:, :, 0]
    return (batch.head.gradient(outputs, path.head_parameters) == 0).all(-1).any(-1)
