"""The results of a run as tables: types, and defaults for an instance without a result.

As Arrow tables of a record, each column is of the type that its schema declares.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from attnsvm.record.columns import LAYER_KEY, TRIAL_COLUMNS, Column


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
    lacking: frozenset[str] = frozenset()
    """Columns of `trials` that are empty, as the record is older than they are."""

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
            solutions={name: np.concatenate(pieces) for name, pieces in arrays.items()},
            timings=timings,
        )

    def first_accepted(self, wanted: int) -> Self:
        """Return the record up to the `wanted`-th accepted instance; all, if there are fewer.

        For records with a row for every instance.
        """
        accepted = (self.trials["status"] == "ok").to_numpy().cumsum()
        size = int(np.searchsorted(accepted, wanted)) + 1
        return self.of_seeds(self.trials["seed"].iloc[:size])

    def of_seeds(self, seeds: Any) -> Self:
        """Return the part of the record of these instances; without arrays if none has any."""
        trials, history = (
            table[table["seed"].isin(seeds)].reset_index(drop=True)
            for table in (self.trials, self.history)
        )
        kept = np.isin(self.solutions.get("seeds", []), seeds)
        arrays = {name: array[kept] for name, array in self.solutions.items() if kept.any()}
        return replace(self, trials=trials, history=history, solutions=arrays)


def trial_table(
    seeds: Any, columns: Mapping[str, Any], further: Iterable[Column] = ()
) -> pd.DataFrame:
    """Return the table of instances `seeds`; cells that are missing hold the column's default.

    `further` are the columns of a run's other norms and of its probes; they come last.
    """
    _, *schema = (*TRIAL_COLUMNS, *further)
    if unknown := set(columns) - {column.name for column in schema}:
        raise ValueError(f"unknown trial columns {sorted(unknown)}: must be among its columns")
    data: dict[str, Any] = {"seed": np.asarray(seeds, dtype="int64")}
    for column in schema:
        values = columns.get(column.name, [None] * len(data["seed"]))
        cells = [column.default if value is None else value for value in values]
        data[column.name] = pd.Series(cells, dtype=column.dtype).array
    return pd.DataFrame(data)


NECESSARY = {"seed", "status", "step", "quantity", "value", *(column.name for column in LAYER_KEY)}
NECESSARY |= {column.name for column in TRIAL_COLUMNS if column.dtype in ("int64", "bool")}
"""Columns that every record has; another one is empty in the records that are older than it."""


@cache
def trial_schema(*further: Column) -> pa.Schema:
    """Return the schema of `trials.parquet` with further columns."""
    return pa.Schema.from_pandas(trial_table([], {}, further), preserve_index=False)


@cache
def history_schema(radii: bool, *key: str) -> pa.Schema:
    """Return the schema of `history.parquet`; a step is a whole number, or one of `radii`.

    `key` are the columns that tell the rows of the trials apart.
    """
    step = 0.0 if radii else 0
    like = pd.DataFrame({**{name: [0] for name in key}, "step": step, "quantity": "", "value": 0.0})
    return pa.Schema.from_pandas(like.astype({"quantity": "str"}), preserve_index=False)
