"""Reading the record of a run: every file is verified, every column is of its declared type."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attnsvm.record.archive import read_arrays
from attnsvm.record.columns import further_columns, key_columns
from attnsvm.record.files import (
    MAX_TABLE_BYTES,
    CorruptRecordError,
    OtherVersionError,
    TooLargeError,
    byte_size,
    refused,
    usable_memory,
    verified,
)
from attnsvm.record.run import OTHER_VERSION, TABLES, read_run
from attnsvm.record.schema import NECESSARY, RunRecord, history_schema, trial_schema

TEXTS = {pa.string(), pa.large_string()}
"""The types of text, of which any version of pandas writes another."""


class StoredRun:
    """A run on disk: its `run.json` is read at once, tables and arrays when they are asked for.

    `content` is that of its `run.json`, if it is known; else it is read, and errors are those of
    `read_run`. Tables and arrays raise CorruptRecordError if a file is missing or differs, and if
    the run has none.
    """

    def __init__(self, folder: Path, content: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self.content = read_run(folder) if content is None else content

    def record(self) -> RunRecord:
        """Return tables, arrays and timings."""
        trials, history = (table.to_pandas() for table in self.tables())
        lacking = frozenset(trials).difference(pq.read_schema(self.folder / TABLES[0]).names)
        return RunRecord(trials, history, self.arrays(), self.content["timings_s"], lacking)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by their names, instance axis first."""
        with self._open(TABLES[2]) as stream:
            return read_arrays(stream)

    def tables(self, room: int | None = None) -> tuple[pa.Table, pa.Table]:
        """Return trials and history; the checksum of the arrays is verified too.

        Each table needs at most `room` bytes of memory, by default half of it, else TooLargeError.
        """
        room = usable_memory() // 2 if room is None else room
        with self._open(TABLES[2]):
            further = further_columns(self.content["config"], self.content["probes"])
        trials = self._table(TABLES[0], room, lambda types: trial_schema(*further))
        if len(trials) != self.content["drawn"]:
            must = f"has {len(trials)} rows; must have drawn={self.content['drawn']}"
            raise CorruptRecordError(f"{self.folder / TABLES[0]}: {must}")
        key = key_columns(trials.column_names)
        return trials, self._table(
            TABLES[1], room, lambda types: history_schema(types.get("step") == pa.float64(), *key)
        )

    def _table(
        self, name: str, room: int, schema_of: Callable[[Mapping[str, pa.DataType]], pa.Schema]
    ) -> pa.Table:
        """Return a table, of the columns and types of the schema for the types in the file.

        A column that an older record lacks is empty, unless it is NECESSARY.
        """
        with self._open(name, room) as stream:
            file = pq.ParquetFile(pa.BufferReader(stream.read()), pre_buffer=False)
            types = {field.name: field.type for field in file.schema_arrow}
            schema, rows = schema_of(types), file.metadata.num_rows
            missing, unknown = set(schema.names) - set(types), set(types) - set(schema.names)
            lost = missing & NECESSARY if self.content.get("stale") else missing
            for column in sorted(unknown | lost):
                what = "unknown" if column in unknown else "missing"
                raise OtherVersionError(f"column {column} {what}, {OTHER_VERSION}")
            for column in schema:
                kind, must = types.get(column.name, column.type), column.type
                if kind != must and {kind, must} != TEXTS:
                    raise CorruptRecordError(f"column {column.name} is {kind}; must be {must}")
            if (needed := 8 * rows * len(schema)) > room:
                sizes = f"{byte_size(needed)} of memory; must be at most {byte_size(room)} here"
                raise TooLargeError(f"needs {sizes}")
            table = file.read(use_threads=False)
            for column in missing:
                kind = schema.field(column).type
                empty = pa.scalar("" if pa.types.is_large_string(kind) else None, kind)
                table = table.append_column(column, pa.repeat(empty, rows))
            return table.select(schema.names).cast(schema)  # without the metadata of the file

    @contextmanager
    def _open(self, name: str, limit: int = MAX_TABLE_BYTES) -> Iterator[BinaryIO]:
        """Yield a verified file of at most `limit` bytes; what is read of it may be refused."""
        path, state = self.folder / name, self.content["state"]
        if state != "done":
            raise CorruptRecordError(
                f"{self.folder}: the run is {state}, it has no arrays and no tables"
            )
        with (
            refused("", KeyError),
            verified(path, self.content["files"][name], limit) as stream,
            refused(f"{path}: ", pa.ArrowException, OSError, KeyError),
        ):
            yield stream
