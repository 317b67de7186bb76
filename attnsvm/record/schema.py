"""The results of a run as tables: types, and defaults for an instance without a result."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pandas as pd

from attnsvm.record.columns import TRIAL_COLUMNS, Column


@dataclass(frozen=True)
class RunRecord:
    """All results of a run: the rows of two tables, arrays, and wall seconds of each stage.

    `trials` has a row for each instance, the columns of `columns.TRIAL_COLUMNS` first; `history`
    has the columns seed, step, quantity, value; `solutions` are weights and multipliers of the
    SVMs, instance axis first.
    """

    trials: pd.DataFrame
    history: pd.DataFrame
    solutions: Mapping[str, np.ndarray]
    timings: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the record made of these parts."""
        arrays: dict[str, list[np.ndarray]] = defaultdict(list)
        timings: Counter[str] = Counter()
        for part in parts:
            timings.update(part.timings)
            for name, array in part.solutions.items():
                arrays[name].append(array)
        return cls(
            trials=pd.concat([part.trials for part in parts], ignore_index=True),
            history=pd.concat([part.history for part in parts], ignore_index=True),
            solutions={name: np.concatenate(found) for name, found in arrays.items()},
            timings=timings,
        )

    def first_accepted(self, wanted: int) -> Self:
        """Return the record up to the `wanted`-th accepted instance; all, if there are fewer.

        For records with a row for every instance.
        """
        accepted = (self.trials["status"] == "ok").to_numpy().cumsum()
        size = min(int(np.searchsorted(accepted, wanted)) + 1, len(self.trials))
        seeds = self.trials["seed"].iloc[:size]
        kept = np.isin(self.solutions.get("seeds", []), seeds)
        return replace(
            self,
            trials=self.trials.iloc[:size].reset_index(drop=True),
            history=self.history[self.history["seed"].isin(seeds)].reset_index(drop=True),
            solutions={name: array[kept] for name, array in self.solutions.items()},
        )


def trial_table(
    seeds: Any, columns: Mapping[str, Any], further: Iterable[Column] = ()
) -> pd.DataFrame:
    """Return the table of instances `seeds`; columns that are not given hold their default.

    `further` are the columns of a run's other norms and of its probes; they come last.
    """
    _, *schema = (*TRIAL_COLUMNS, *further)
    if unknown := set(columns) - {one.name for one in schema}:
        raise ValueError(f"unknown trial columns {sorted(unknown)}: must be among its columns")
    data = {"seed": pd.Series(np.asarray(seeds), dtype="int64")}
    for one in schema:
        values = columns.get(one.name)
        values = [one.default] * len(data["seed"]) if values is None else list(values)
        data[one.name] = pd.Series(values, dtype=one.dtype)
    return pd.DataFrame(data)
