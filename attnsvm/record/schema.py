"""The tables of a record: columns, types, and defaults for an instance without a result."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class NormColumns:
    """Columns of one SVM in `TrialRow`, prefixed by the norm's name."""

    status: str = ""
    objective: float = float("nan")
    lower_bound: float = float("nan")
    gap: float = float("nan")
    min_margin: float = float("nan")
    kappa: float = float("nan")
    rank: int | None = None
    rank_bound: int | None = None
    support: int | None = None
    margin_gap: float = float("nan")  # 1 - rho(W) of the trained W; selection=top


NAN = float("nan")


@dataclass(frozen=True)
class TrialRow:
    """Columns of `trials.parquet`; the columns of `NormColumns` follow for each norm."""

    seed: int
    status: str = "ok"  # or rejected, tie, unsaturated, diverged, stalled, infeasible, ...
    reason: str = ""  # why the status is not ok
    training: str = ""  # saturated | unsaturated | finite_optimum | stalled | diverged
    convergence: str = ""  # see `attnsvm.theory.convergence_types`
    direction_change: float = NAN  # 1 - correlation of the trained W with W half-way
    tie: bool = False  # two tokens share the best score or the largest softmax
    saturated: bool = False  # min_top_softmax >= selection.saturation
    min_top_softmax: float = NAN
    max_masked_softmax: float = NAN  # largest softmax below selection.attended
    assumption_b1: bool | None = None  # all margins at the optimal tokens equal 1
    attended_tokens: float = NAN  # mean over the samples of |O_i|, softmax >= selection.attended
    flat: bool | None = None  # the head's gradient is zero for some sample: it does not train W
    risk: float = NAN
    W_norm: float = NAN  # Frobenius norm of the trained W
    one_minus_corr_w_mm: float = NAN
    one_minus_corr_w_star_mm: float = NAN
    one_minus_corr_svmeq: float = NAN
    one_minus_corr_svmeq_lsq: float = NAN
    one_minus_corr_1token: float = NAN
    published_frobenius_status: str = ""
    published_frobenius_rank: int | None = None
    published_nuclear_status: str = ""
    published_nuclear_rank: int | None = None


@dataclass(frozen=True)
class RunRecord:
    """All results of a run.

    Attributes
    ----------
    trials : DataFrame
        One row per instance, columns of `TrialRow`.
    history : DataFrame
        Columns seed, step, quantity, value.
    solutions : mapping of str to array
        Weights and multipliers of the SVMs, instance axis first.
    timings : mapping of str to float
        Wall seconds of each stage.
    """

    trials: pd.DataFrame
    history: pd.DataFrame
    solutions: Mapping[str, np.ndarray]
    timings: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Sequence[RunRecord]) -> RunRecord:
        """Return the record made of these parts."""
        names = dict.fromkeys(name for part in parts for name in part.solutions)
        timings: Counter[str] = Counter()
        for part in parts:
            timings.update(part.timings)
        return cls(
            trials=pd.concat([part.trials for part in parts], ignore_index=True),
            history=pd.concat([part.history for part in parts], ignore_index=True),
            solutions={
                name: np.concatenate([p.solutions[name] for p in parts if name in p.solutions])
                for name in names
            },
            timings=timings,
        )

    def first_accepted(self, wanted: int) -> RunRecord:
        """Return the record up to the `wanted`-th accepted instance; all, if there are fewer."""
        accepted = (self.trials["status"] == "ok").to_numpy().cumsum()
        size = min(int(np.searchsorted(accepted, wanted)) + 1, len(self.trials))
        seeds = self.trials["seed"].iloc[:size]
        kept = np.isin(self.solutions.get("seeds", []), seeds)
        return RunRecord(
            trials=self.trials.iloc[:size].reset_index(drop=True),
            history=self.history[self.history["seed"].isin(seeds)].reset_index(drop=True),
            solutions={name: array[kept] for name, array in self.solutions.items()},
            timings=self.timings,
        )


def dtype_of(annotation: str) -> str:
    """Return the pandas dtype of a column declared with `annotation`."""
    return {
        "int": "int64",
        "int | None": "Int64",
        "bool": "bool",
        "bool | None": "boolean",
        "float": "float64",
        "str": "str",
    }[annotation]


def trial_columns(norms: tuple[str, ...] = ("frobenius", "nuclear")) -> dict[str, tuple[str, Any]]:
    """Return name -> (dtype, default) of every column of `trials.parquet`."""
    columns = {f.name: (dtype_of(str(f.type)), f.default) for f in dataclasses.fields(TrialRow)}
    for norm in norms:
        for f in dataclasses.fields(NormColumns):
            columns[f"{norm}_{f.name}"] = (dtype_of(str(f.type)), f.default)
    return columns


def trial_table(seeds: Any, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table of instances `seeds`; columns that are not given hold their default."""
    schema = trial_columns()
    unknown = set(columns) - set(schema)
    if unknown:
        raise ValueError(f"unknown trial columns {sorted(unknown)}: must be fields of TrialRow")
    data = {"seed": pd.Series(np.asarray(seeds), dtype="int64")}
    for name, (dtype, default) in schema.items():
        if name != "seed":
            values = columns.get(name)
            values = [default] * len(data["seed"]) if values is None else list(values)
            data[name] = pd.Series(values, dtype=dtype)
    return pd.DataFrame(data)
