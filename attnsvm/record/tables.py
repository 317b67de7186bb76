"""The tables of a record as Arrow tables, each column of the type that its schema declares."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnsvm.record.files import CorruptRecordError
from attnsvm.record.run import OTHER_VERSION
from attnsvm.record.schema import trial_columns, trial_table

MAX_ROWS = 10**8
"""Largest number of rows of a table that is read."""

STEPS = (pa.int64(), pa.float64())
"""Types of a step: a number of steps, or a radius."""


OPTIONAL = ("Int64", "boolean", "float64")
"""Types of a column in which a value may be missing."""

FILLED = {name for name, (dtype, _) in trial_columns().items() if dtype not in OPTIONAL}
FILLED |= {"seed", "step", "quantity"}
"""Columns in which every row has a value."""


@cache
def trial_schema() -> pa.Schema:
    """Return the schema of `trials.parquet`."""
    return pa.Schema.from_pandas(trial_table([], {}), preserve_index=False)


@cache
def history_schema(step: pa.DataType) -> pa.Schema:
    """Return the schema of `history.parquet`; a step is a whole number or a radius."""
    like = pd.DataFrame({"seed": [0], "step": [0], "quantity": [""], "value": [0.0]})
    typed = like.astype({"step": step.to_pandas_dtype(), "quantity": "str"})
    return pa.Schema.from_pandas(typed, preserve_index=False)


def read_trials(content: bytes, run: Mapping[str, Any]) -> pa.Table:
    """Return the table of the instances that `run.json` counts.

    Raises
    ------
    CorruptRecordError
        If a column is missing, unknown, of another type or lacks values, or if the rows are not
        those that `run` counts.
    """
    name = "trials.parquet"
    table = _read(_opened(content, name), trial_schema(), name)
    counted = {one["values"]: one["counts"] for one in table["status"].value_counts().to_pylist()}
    if counted != {status: count for status, count in run["statuses"].items() if count}:
        raise CorruptRecordError(f"{name}: its statuses are not those that run.json counts")
    if len(np.unique(table["seed"].to_numpy())) < len(table):
        raise CorruptRecordError(f"{name}: has a seed twice")
    return table


def read_history(content: bytes, trials: pa.Table) -> pa.Table:
    """Return the history of the instances in `trials`.

    Raises
    ------
    CorruptRecordError
        If a column is missing, unknown, of another type or lacks values, or if a row is that of
        another instance.
    """
    name = "history.parquet"
    file = _opened(content, name)
    place = file.schema_arrow.get_field_index("step")
    step = file.schema_arrow.field(place).type if place >= 0 else STEPS[0]
    table = _read(file, history_schema(step if step in STEPS else STEPS[0]), name)
    if not np.isin(np.unique(table["seed"].to_numpy()), trials["seed"].to_numpy()).all():
        raise CorruptRecordError(f"{name}: has a seed that trials.parquet lacks")
    return table


def _opened(content: bytes, name: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise CorruptRecordError(f"{name}: {type(error).__name__}: {error}") from error


def _read(file: pq.ParquetFile, schema: pa.Schema, name: str) -> pa.Table:
    """Return the rows of a file whose columns are those of `schema`."""
    same = file.schema_arrow.equals(schema)
    if not same:
        _check_columns(file.schema_arrow, schema, name)
    if file.metadata.num_rows > MAX_ROWS:
        raise CorruptRecordError(
            f"{name}: has {file.metadata.num_rows} rows; must have at most {MAX_ROWS}"
        )
    try:
        table = file.read(use_threads=False)
        if not same:
            table = table.select(schema.names).cast(schema)
    except (pa.ArrowException, OSError) as error:
        raise CorruptRecordError(f"{name}: {type(error).__name__}: {error}") from error
    for column in FILLED & set(schema.names):
        if table[column].null_count:
            raise CorruptRecordError(f"{name}: column {column} lacks values")
    return table.replace_schema_metadata(schema.metadata)


def _check_columns(found: pa.Schema, schema: pa.Schema, name: str) -> None:
    for column in sorted(set(found.names) ^ set(schema.names)):
        what = "unknown" if column in found.names else "missing"
        raise CorruptRecordError(f"{name}: column {column} {what}, {OTHER_VERSION}")
    if len(set(found.names)) < len(found.names):
        raise CorruptRecordError(f"{name}: has a column twice")
    for field in schema:
        kind = found.field(field.name).type
        if kind != field.type and not {kind, field.type} <= {pa.string(), pa.large_string()}:
            raise CorruptRecordError(f"{name}: column {field.name} is {kind}; must be {field.type}")
