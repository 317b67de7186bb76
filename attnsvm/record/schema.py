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
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnsvm.record.columns import LAYER_KEY, TRIAL_COLUMNS, Column, further_columns, key_columns
from attnsvm.record.files import (
    CorruptRecordError,
    OtherVersionError,
    TooLargeError,
    byte_size,
    refused,
    shortened,
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
            solutions={name: np.concatenate(found) for name, found in arrays.items()},
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
    if unknown := set(columns) - {one.name for one in schema}:
        raise ValueError(f"unknown trial columns {sorted(unknown)}: must be among its columns")
    data: dict[str, Any] = {"seed": np.asarray(seeds, dtype="int64")}
    for one in schema:
        values = columns.get(one.name)
        values = [one.default] * len(data["seed"]) if values is None else list(values)
        data[one.name] = pd.Series(values, dtype=one.dtype).array
    return pd.DataFrame(data)


UNREADABLE_TABLE = (pa.ArrowException, OSError)
"""Exceptions of Arrow for a damaged file."""

MAX_ROWS = 10**8
"""Largest number of rows of a table that is read."""

STEPS = (pa.int64(), pa.float64())
"""Types of a step: a number of steps, or a radius."""

OPTIONAL = ("Int64", "boolean", "float64")
"""Types of a column in which a value may be missing."""

WORD_LENGTH = 100
"""Largest number of characters of a status or of the name of a quantity."""

CODECS = ("SNAPPY", "UNCOMPRESSED")
"""Codecs of a record: they shrink data by a factor of 22 at most."""

NECESSARY = {"seed", "status", "step", "quantity", "value", *(one.name for one in LAYER_KEY)}
NECESSARY |= {one.name for one in TRIAL_COLUMNS if one.dtype in ("int64", "bool")}
"""Columns that every record has; another one is empty in the records that are older than it."""

FILLED = {one.name for one in TRIAL_COLUMNS if one.dtype not in OPTIONAL}
FILLED |= {"seed", "step", "quantity", *(one.name for one in LAYER_KEY)}
"""Columns in which every row has a value."""


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
        counts = {
            one["values"]: one["counts"] for one in table["status"].value_counts().to_pylist()
        }
        if counts != {status: count for status, count in run["statuses"].items() if count}:
            raise CorruptRecordError("its statuses are not those that run.json counts")
        key = key_columns(schema.names)
        if len(_distinct(table, key)) < len(table):
            raise CorruptRecordError(f"has a {' '.join(key)} twice")
        return table


def read_history(content: bytes, trials: pa.Table, room: int) -> pa.Table:
    """Return the history of the instances in `trials`, of at most `room` bytes."""
    with refused("history.parquet: ", *UNREADABLE_TABLE):
        key = key_columns(trials.column_names)
        found = pq.read_schema(pa.BufferReader(content))
        step = STEPS["step" in found.names and found.field("step").type == STEPS[1]]
        schema = history_schema(step, *key)
        table = _read(content, schema, room)
        both = pa.concat_tables([trials.select(key), _distinct(table, key).select(key)])
        if len(_distinct(both, key)) > len(trials):
            raise CorruptRecordError(f"has a {' '.join(key)} that trials.parquet lacks")
        return table


def _distinct(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return every combination of these columns once."""
    return table.select(key).group_by(key, use_threads=False).aggregate([])


def _read(content: bytes, schema: pa.Schema, room: int, older: bool = False) -> pa.Table:
    """Return the rows of the file in `content`, whose columns must be those of `schema`.

    An `older` record may lack those that are not NECESSARY, which are then empty. A word is stored
    once and named by many rows, each of which may need its bytes in memory. So words are read as
    numbers of a dictionary, and their lengths are added before they are copied.
    """
    found = pq.read_schema(pa.BufferReader(content))
    known, there = set(schema.names), set(found.names)
    lacking = known - there
    for column in sorted((there - known) | (lacking & NECESSARY if older else lacking)):
        what = "unknown" if column in there else "missing"
        raise OtherVersionError(f"column {column} {what}, {OTHER_VERSION}")
    if len(set(found.names)) < len(found.names):
        raise CorruptRecordError("has a column twice")
    present = [one for one in schema if one.name in found.names]
    for one in present:
        kind = found.field(one.name).type
        if kind != one.type and not {kind, one.type} <= {pa.string(), pa.large_string()}:
            raise CorruptRecordError(f"column {one.name} is {kind}; must be {one.type}")
    words = [field.name for field in present if pa.types.is_large_string(field.type)]
    file = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False, read_dictionary=words)
    footer = file.metadata
    if footer.num_rows > MAX_ROWS:
        raise CorruptRecordError(f"has {footer.num_rows} rows; must have at most {MAX_ROWS}")
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for codec in {group.column(place).compression for place in range(footer.num_columns)}:
            if codec not in CODECS:
                raise CorruptRecordError(f"{codec}; must be {CODECS[0]}")
    needed = 8 * footer.num_rows * max(footer.num_columns, len(schema))
    _check_room(needed, room)
    table = file.read(use_threads=False)
    table.validate(full=True)  # also that words are UTF-8
    chunks = (part for name in words for part in table[name].chunks)
    lengths = (pc.take(pc.binary_length(part.dictionary), part.indices) for part in chunks)
    _check_room(needed + sum(pc.sum(of_rows).as_py() or 0 for of_rows in lengths), room)
    for one in schema:
        if one not in present:
            empty = "" if pa.types.is_large_string(one.type) else None
            table = table.append_column(one, pa.repeat(pa.scalar(empty, one.type), len(table)))
    table = table.select(schema.names).cast(schema)  # without the metadata of the file
    for name in FILLED & set(schema.names):
        if table[name].null_count:
            raise CorruptRecordError(f"column {name} lacks values")
    for name in set(words) - {"reason"}:
        for word in pc.unique(table[name]).to_pylist():
            if not (word.isprintable() and len(word) <= WORD_LENGTH):
                shown = shortened(repr(word), 60)
                raise CorruptRecordError(f"{name} is {shown}; must be a word")
    return table


def _check_room(needed: int, room: int) -> None:
    if needed > room:
        message = f"{byte_size(needed)} of memory; must be at most {byte_size(room)} here"
        raise TooLargeError(f"needs {message}")
