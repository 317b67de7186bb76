"""The tables of a record as Arrow tables, each column of the type that its schema declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnsvm.record.columns import LAYER_KEY, Column, further_columns, key_columns
from attnsvm.record.files import CorruptRecordError, refused
from attnsvm.record.run import OTHER_VERSION
from attnsvm.record.schema import trial_columns, trial_table
from attnsvm.record.text import byte_size, shortened

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
SNAPPY_RATIO = 22
"""The largest ratio by which the codec of a record shrinks data: 64 bytes become 3."""

FEW_BYTES = 2**24
"""A column of words that cannot be larger is read without a look at the length of its words."""

FILLED = {name for name, (dtype, _) in trial_columns().items() if dtype not in OPTIONAL}
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
    """Return the table of the instances that `run.json` counts.

    Raises
    ------
    CorruptRecordError
        If a column is missing, unknown, of another type or lacks values, if the rows are not
        those that `run` counts, or if they need more than `room` bytes.
    """
    with refused("trials.parquet: ", *UNREADABLE_TABLE):
        file = _opened(content)
        schema = trial_schema(*further_columns(run["config"], run["probes"]))
        _check_columns(file.schema_arrow, schema)
        if (rows := file.metadata.num_rows) != run["drawn"]:
            raise CorruptRecordError(f"has {rows} rows; must have drawn={run['drawn']}")
        table = _read(file, content, schema, room)
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
    """Return the history of the instances in `trials`.

    Raises
    ------
    CorruptRecordError
        If a column is missing, unknown, of another type or lacks values, if a row is that of
        another instance, or if the rows need more than `room` bytes.
    """
    with refused("history.parquet: ", *UNREADABLE_TABLE):
        file = _opened(content)
        found = file.schema_arrow
        place = found.get_field_index("step")
        step = found.field(place).type if place >= 0 else STEPS[0]
        key = key_columns(trials.column_names)
        schema = history_schema(step if step in STEPS else STEPS[0], *key)
        _check_columns(found, schema)
        table = _read(file, content, schema, room)
        both = pa.concat_tables([trials.select(key), _distinct(table, key).select(key)])
        if len(_distinct(both, key)) > len(trials):
            raise CorruptRecordError(f"has a {' '.join(key)} that trials.parquet lacks")
        return table


def _distinct(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return every combination of these columns once."""
    return table.select(key).group_by(key, use_threads=False).aggregate([])


def _opened(content: bytes, words: Sequence[str] = ()) -> pq.ParquetFile:
    source = pa.BufferReader(content)
    return pq.ParquetFile(source, pre_buffer=False, read_dictionary=list(words))


def _check_columns(found: pa.Schema, schema: pa.Schema) -> None:
    if found.equals(schema):
        return
    for column in sorted(set(found.names) ^ set(schema.names)):
        what = "unknown" if column in found.names else "missing"
        raise CorruptRecordError(f"column {column} {what}, {OTHER_VERSION}")
    if len(set(found.names)) < len(found.names):
        raise CorruptRecordError("has a column twice")
    for field in schema:
        kind = found.field(field.name).type
        if kind != field.type and not {kind, field.type} <= {pa.string(), pa.large_string()}:
            raise CorruptRecordError(f"column {field.name} is {kind}; must be {field.type}")


def _read(file: pq.ParquetFile, content: bytes, schema: pa.Schema, room: int) -> pa.Table:
    """Return the rows of the file in `content`, opened as `file`, with the columns of `schema`.

    A word is stored once and named by many rows, each of which may need its bytes in memory. So
    columns in which words may be long are read as numbers of a dictionary, and the lengths are
    added before the words are copied.
    """
    footer = file.metadata
    if footer.num_rows > MAX_ROWS:
        raise CorruptRecordError(f"has {footer.num_rows} rows; must have at most {MAX_ROWS}")
    needed = 8 * footer.num_rows * footer.num_columns
    _check_room(needed, room)
    if long := _long_words(file):
        file = _opened(content, long)
    table = file.read(use_threads=False)
    table.validate(full=True)  # also that words are UTF-8
    _check_room(needed + sum(_length_of_words(table[name]) for name in long), room)
    if not table.schema.equals(schema):
        table = table.select(schema.names).cast(schema)
    for field in schema:
        if field.name in FILLED and table[field.name].null_count:
            raise CorruptRecordError(f"column {field.name} lacks values")
        if pa.types.is_large_string(field.type) and field.name != "reason":
            _check_words(field.name, table[field.name])
    return pa.Table.from_arrays(table.columns, schema=schema)  # no metadata of the file


def _long_words(file: pq.ParquetFile) -> list[str]:
    """Return the columns whose words, if every row had all of them, need more than FEW_BYTES."""
    found = file.schema_arrow
    largest: Counter[int] = Counter()
    for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
        for place, kind in enumerate(found.types):
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                column = group.column(place)
                if column.compression not in CODECS:
                    raise CorruptRecordError(f"{column.compression}; must be {CODECS[0]}")
                largest[place] += group.num_rows * SNAPPY_RATIO * column.total_compressed_size
    return [found.names[place] for place, size in largest.items() if size > FEW_BYTES]


def _length_of_words(column: pa.ChunkedArray) -> int:
    """Return the bytes of a column of words, each stored once, if every row had its own."""
    lengths = (pc.take(pc.binary_length(part.dictionary), part.indices) for part in column.chunks)
    return sum(pc.sum(part).as_py() or 0 for part in lengths)


def _check_room(needed: int, room: int) -> None:
    if needed > room:
        message = f"{byte_size(needed)} of memory; must be at most {byte_size(room)} here"
        raise CorruptRecordError(f"needs {message}")


def _check_words(name: str, column: pa.ChunkedArray) -> None:
    """Raise CorruptRecordError if a status or a quantity is not a word that can be printed."""
    for word in pc.unique(column).to_pylist():
        if not (word.isprintable() and len(word) <= WORD_LENGTH):
            raise CorruptRecordError(f"{name} is {shortened(repr(word), 60)}; must be a word")
