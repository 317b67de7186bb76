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
import pyarrow.parquet as pq

from attnsvm.record.columns import LAYER_KEY, TRIAL_COLUMNS, Column, further_columns, key_columns
from attnsvm.record.files import (
    CorruptRecordError,
    OtherVersionError,
    TooLargeError,
    byte_size,
    refused,
)
from attnsvm.record.run import OTHER_VERSION


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
    """Return the table of instances `seeds`; columns that are not given hold their default.

    `further` are the columns of a run's other norms and of its probes; they come last.
    """
    _, *schema = (*TRIAL_COLUMNS, *further)
    if unknown := set(columns) - {column.name for column in schema}:
        raise ValueError(f"unknown trial columns {sorted(unknown)}: must be among its columns")
    data: dict[str, Any] = {"seed": np.asarray(seeds, dtype="int64")}
    for column in schema:
        values = columns.get(column.name)
        values = [column.default] * len(data["seed"]) if values is None else list(values)
        data[column.name] = pd.Series(values, dtype=column.dtype).array
    return pd.DataFrame(data)


UNREADABLE_TABLE = (pa.ArrowException, OSError)
"""Exceptions of Arrow for a damaged file."""

STEPS = (pa.int64(), pa.float64())
"""Types of a step: a number of steps, or a radius."""

NECESSARY = {"seed", "status", "step", "quantity", "value", *(column.name for column in LAYER_KEY)}
NECESSARY |= {column.name for column in TRIAL_COLUMNS if column.dtype in ("int64", "bool")}
"""Columns that every record has; another one is empty in the records that are older than it."""


@cache
def trial_schema(*further: Column) -> pa.Schema:
    """Return the schema of `trials.parquet` with further columns."""
    return pa.Schema.from_pandas(trial_table([], {}, further), preserve_index=False)


@cache
def history_schema(step: pa.DataType, *key: str) -> pa.Schema:
    """Return the schema of `history.parquet`; a step is a whole number or a radius.

    `key` are the columns that tell the rows of the trials apart.
    """
    like = pd.DataFrame({**{name: [0] for name in key}, "step": 0, "quantity": "", "value": 0.0})
    typed = like.astype({"step": step.to_pandas_dtype(), "quantity": "str"})
    return pa.Schema.from_pandas(typed, preserve_index=False)


def read_trials(content: bytes, run: Mapping[str, Any], room: int) -> pa.Table:
    """Return the table of the instances that `run.json` counts, of at most `room` bytes.

    Its columns are those of the schema, each of its type; each instance is there once. A column
    that an older record lacks is empty.
    """
    with refused("trials.parquet: ", *UNREADABLE_TABLE):
        schema = trial_schema(*further_columns(run["config"], run["probes"]))
        table = _read(content, schema, room, older=bool(run.get("stale")))
        if len(table) != run["drawn"]:
            raise CorruptRecordError(f"has {len(table)} rows; must have drawn={run['drawn']}")
        return table


def read_history(content: bytes, trials: pa.Table, room: int) -> pa.Table:
    """Return the history of the instances in `trials`, of at most `room` bytes."""
    with refused("history.parquet: ", *UNREADABLE_TABLE):
        names = pq.read_schema(pa.BufferReader(content))
        step = STEPS["step" in names.names and names.field("step").type == STEPS[1]]
        return _read(content, history_schema(step, *key_columns(trials.column_names)), room)


def _read(content: bytes, schema: pa.Schema, room: int, older: bool = False) -> pa.Table:
    """Return the rows of the file in `content`, whose columns must be those of `schema`.

    An `older` record may lack those that are not NECESSARY, which are then empty.
    """
    file = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
    types = {field.name: field.type for field in file.schema_arrow}
    missing, unknown = set(schema.names) - set(types), set(types) - set(schema.names)
    for name in sorted(unknown | (missing & NECESSARY if older else missing)):
        what = "unknown" if name in unknown else "missing"
        raise OtherVersionError(f"column {name} {what}, {OTHER_VERSION}")
    rows = file.metadata.num_rows
    needed = 8 * rows * len(schema)
    if needed > room:
        message = f"{byte_size(needed)} of memory; must be at most {byte_size(room)} here"
        raise TooLargeError(f"needs {message}")
    table = file.read(use_threads=False)
    for column in schema:
        kind = types.get(column.name)
        if kind is None:
            empty = "" if pa.types.is_large_string(column.type) else None
            table = table.append_column(column, pa.repeat(pa.scalar(empty, column.type), rows))
        elif kind != column.type and not {kind, column.type} <= {pa.string(), pa.large_string()}:
            raise CorruptRecordError(f"column {column.name} is {kind}; must be {column.type}")
    return table.select(schema.names).cast(schema)  # without the metadata of the file
