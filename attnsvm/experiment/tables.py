"""What the stages add to the record of a batch, and the tables made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnsvm.linalg.directions import one_minus_correlation
from attnsvm.problem import ProblemBatch
from attnsvm.record.column import Column
from attnsvm.record.columns import key_columns
from attnsvm.record.schema import trial_columns, trial_table
from attnsvm.training import Trajectory

Status = tuple[str, str]
"""Status of an instance and its reason; `OK` until a stage excludes it."""

OK: Status = ("ok", "")

Exclusion = tuple[Any, str, str]
"""Which instances (B,) a stage excludes, with their status and the reason."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What a stage adds to the record of B instances.

    Attributes
    ----------
    columns : mapping of str to values (B,)
        Columns of `trials.parquet`.
    curves : mapping of str to (steps (S,), values (B, S))
        Quantities of `history.parquet`.
    arrays : mapping of str to (B, ...)
        Arrays of `solutions.npz`.
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
        defaults, columns = trial_columns(further), {}
        for name, values in self.columns.items():
            column = [defaults[name][1]] * B
            for k, value in zip(index.tolist(), plain(values), strict=True):
                column[k] = value
            columns[name] = column
        return Findings(columns, self.curves, self.arrays)


def quantity(name: str, steps: Tensor, values: Tensor) -> Findings:
    """Return values (B, S) of a quantity over the steps; the column is its last value."""
    return Findings({name: values[:, -1]}, {name: (steps, values)})


def distance(name: str, path: Trajectory, direction: Tensor) -> Findings:
    """Return 1 - correlation of the path with (B, d, d), or with (B, S, d, d) at each snapshot."""
    target = direction[:, None] if direction.ndim == 3 else direction
    return quantity(name, path.steps, one_minus_correlation(path.snapshots, target))


def marked(status: Sequence[Status], exclusions: Iterable[Exclusion]) -> tuple[Status, ...]:
    """Return status and reason of each instance: the first exclusion that applies decides."""
    found = list(status)
    for where, word, reason in exclusions:
        for k, hit in enumerate(where):
            if hit and found[k][0] == "ok":
                found[k] = word, reason
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Tables:
    """The content of the files of a record, of one batch.

    Attributes
    ----------
    batch : ProblemBatch
        Its B instances, or the layers and heads of these.
    status : sequence of Status
        Of each of the B.
    findings : Findings
        Columns of all B, curves and arrays of those at `index`.
    index : Tensor
        The instances whose curves and arrays are kept.
    key : mapping of str to Tensor
        What distinguishes rows of one seed, each (B,): layer and head of attention.
    further : tuple of Column
        The columns of trials that not every record has.
    """

    batch: ProblemBatch
    status: Sequence[Status]
    findings: Findings
    index: Tensor
    key: Mapping[str, Tensor] = field(default_factory=dict)
    further: tuple[Column, ...] = ()

    def trials(self) -> pd.DataFrame:
        """Return the content of `trials.parquet`."""
        status, reason = zip(*self.status, strict=True)
        columns = {"status": status, "reason": reason, **self.findings.columns, **self.key}
        return trial_table(
            self.batch.seeds.cpu().numpy(),
            {name: plain(values) for name, values in columns.items()},
            self.further,
        )

    def history(self) -> pd.DataFrame:
        """Return `history.parquet`: the curves in long format, by seed."""
        key = {"seed": self.batch.seeds, **self.key}
        rows = {name: values[self.index].cpu().numpy() for name, values in key.items()}
        parts = [
            pd.DataFrame(
                {
                    **{name: np.repeat(values, len(steps)) for name, values in rows.items()},
                    "step": np.tile(steps.cpu().numpy(), len(self.index)),
                    "quantity": name,
                    "value": values.cpu().numpy().ravel(),
                }
            )
            for name, (steps, values) in self.findings.curves.items()
        ]
        types: dict[Any, Any] = {**dict.fromkeys(rows, "int64"), "step": "float64"}
        types |= {"quantity": "str", "value": float}
        table = pd.concat(parts) if parts else pd.DataFrame({name: [] for name in types})
        table = table.sort_values(key_columns(table), kind="stable", ignore_index=True)
        return table.astype(types)

    def solutions(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return `solutions.npz`: the arrays from which every certificate can be proved again."""
        if len(self.index) == 0:
            return {}
        batch = self.batch.take(self.index)
        key = {name: values[self.index] for name, values in self.key.items()}
        problem = {"X": batch.X, "Z": batch.Z, "mask": batch.mask, "seeds": batch.seeds, **key}
        return {name: plain(array) for name, array in {**problem, **self.findings.arrays}.items()}


def plain(values: Any) -> Any:
    """Return a column as NumPy or a list."""
    return values.cpu().numpy() if isinstance(values, Tensor) else values


def everything(batch: ProblemBatch) -> Tensor:
    """Return the indices of all instances."""
    return torch.arange(batch.B, device=batch.X.device)
