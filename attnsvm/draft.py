"""The record of one batch as it fills, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnsvm.comparison import one_minus_correlation
from attnsvm.problem import ProblemBatch
from attnsvm.record import trial_columns, trial_table
from attnsvm.svm import SvmSolution, SvmStatus

STATUS_TEXT = f"<U{max(len(status) for status in SvmStatus)}"
"""One type for the statuses of any instances."""


@dataclass
class Draft:
    """The columns, curves and arrays of one batch, filled stage by stage."""

    batch: ProblemBatch
    columns: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    verdicts: list[tuple[str, str]] = field(init=False)
    recorded: Tensor = field(init=False)
    """Indices of the instances whose curves and arrays are kept."""

    def __post_init__(self) -> None:
        self.verdicts = [("ok", "")] * self.batch.B
        self.recorded = torch.arange(self.batch.B, device=self.batch.X.device)

    def mark(self, where: Any, status: str, reason: str) -> None:
        """Give the instances `where` this verdict, unless they have one already."""
        for k, hit in enumerate(where):
            if hit and self.verdicts[k][0] == "ok":
                self.verdicts[k] = (status, reason)

    def accepted(self) -> Tensor:
        """Return the indices of the instances that nothing was found against so far."""
        found = [k for k, (status, _) in enumerate(self.verdicts) if status == "ok"]
        return torch.tensor(found, dtype=torch.long, device=self.batch.X.device)

    def part(self, index: Tensor) -> Draft:
        """Return an empty draft of the instances at `index`."""
        return Draft(self.batch.take(index))

    def absorb(self, part: Draft, index: Tensor) -> None:
        """Take over what `part` found out about the instances at `index`.

        Rows stay; curves and arrays are those of the part alone, which knows its own seeds.
        """
        where = index.tolist()
        for k, verdict in zip(where, part.verdicts, strict=True):
            self.verdicts[k] = verdict
        for name, values in part.columns.items():
            column = [trial_columns()[name][1]] * self.batch.B
            for k, value in zip(where, plain(values), strict=True):
                column[k] = value
            self.columns[name] = column
        self.curves = {
            name: (steps, values[index]) for name, (steps, values) in self.curves.items()
        } | part.curves
        self.arrays = {name: array[index] for name, array in self.arrays.items()} | part.arrays
        self.recorded = index

    def record_none(self) -> None:
        """Keep no curve and no array: every instance was set aside."""
        self.curves, self.arrays, self.recorded = {}, {}, self.recorded[:0]

    def table(self) -> pd.DataFrame:
        """Return `trials.parquet`."""
        status, reason = zip(*self.verdicts, strict=True)
        columns = {"status": status, "reason": reason, **self.columns}
        return trial_table(
            self.batch.seeds.cpu().numpy(),
            {name: plain(values) for name, values in columns.items()},
        )

    def history(self) -> pd.DataFrame:
        """Return `history.parquet`: curves (steps (S,), values (B, S)), long, seed by seed."""
        seeds = self.batch.seeds[self.recorded].cpu().numpy()
        parts = [
            pd.DataFrame(
                {
                    "seed": np.repeat(seeds, len(steps)),
                    "step": np.tile(steps.cpu().numpy(), len(seeds)),
                    "quantity": name,
                    "value": values.cpu().numpy().ravel(),
                }
            )
            for name, (steps, values) in self.curves.items()
        ]
        empty: dict[str, list[Any]] = {"seed": [], "step": [], "quantity": [], "value": []}
        table = pd.concat(parts) if parts else pd.DataFrame(empty)
        table = table.sort_values("seed", kind="stable", ignore_index=True)
        return table.astype({"seed": "int64", "step": "float64", "quantity": "str", "value": float})

    def judge(self, what: str, solution: SvmSolution) -> None:
        """Mark the instances on which the SVM called `what` is infeasible or undecided."""
        for status in (SvmStatus.infeasible, SvmStatus.undecided):
            where = [one is status for one in solution.status]
            self.mark(where, status.value, f"{what}: {status.message}")

    def tabulate(self, norm: str, solution: SvmSolution) -> None:
        """Enter the columns of one norm's SVM."""
        columns = {
            "status": [status.value for status in solution.status],
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

    def store(self, name: str, solution: SvmSolution) -> None:
        """Enter the arrays from which the SVM called `name` can be proved again."""
        stored = {
            "W": solution.W,
            "multipliers": solution.certificate.multipliers,
            "ray": solution.certificate.ray,
            "status": np.array([status.value for status in solution.status], STATUS_TEXT),
            "objective": solution.objective,
            "lower_bound": solution.lower_bound,
            "duality_gap": solution.duality_gap,
            "min_margin": solution.min_margin,
            "rank": solution.rank,
        }
        self.arrays |= {f"{name}_{field}": array for field, array in stored.items()}

    def compare(self, name: str, steps: Tensor, snapshots: Tensor, direction: Tensor) -> None:
        """Enter 1 - correlation of the snapshots (B, S, d, d) with (B, d, d) or (B, S, d, d)."""
        target = direction[:, None] if direction.ndim == 3 else direction
        values = one_minus_correlation(snapshots, target)
        self.columns[name] = values[:, -1]
        self.curves[name] = (steps, values)

    def solutions(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return `solutions.npz`: the arrays from which every certificate can be proved again."""
        if len(self.recorded) == 0:
            return {}
        batch = self.batch.take(self.recorded)
        problem = {"X": batch.X, "Z": batch.Z, "mask": batch.mask, "seeds": batch.seeds}
        return {name: plain(array) for name, array in {**problem, **self.arrays}.items()}


def plain(values: Any) -> Any:
    """Return a column as NumPy or a list."""
    return values.cpu().numpy() if isinstance(values, Tensor) else values


def _counts(values: Iterable[Any]) -> list[int | None]:
    """Return whole numbers, None for the -1 of what is not known."""
    return [int(value) if value >= 0 else None for value in values]
