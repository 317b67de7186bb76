"""Writers of tables and arrays in parts; the bytes of the file do not depend on the parts."""

from __future__ import annotations

import io
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnsvm.record.columns import Column

ROW_GROUP = 2**17
"""Rows of a row group, the unit in which Parquet is written and read."""

IN_MEMORY_BYTES = 2**20
"""Largest array that is collected in memory; a larger one is collected in a temporary file."""

COPIED_BYTES = 2**20

LEVEL = 1
"""Compression level; a higher one takes 4 times as long and saves 7 %."""

SAMPLES, SAMPLED_BYTES = 16, 2**16
"""Number and size of the samples of a large array that decide whether to compress it."""

WORTHWHILE = 0.9
"""An array is compressed if its samples shrink to less than this fraction.

Random or computed doubles shrink only to 0.97, at 35 MB per second.
"""


class TableWriter:
    """A Parquet file of row groups of equal size, each page with its checksum.

    Parameters
    ----------
    stream : binary file
        Where it is written.
    like : DataFrame
        Has the columns and types of every part.
    columns : sequence of Column
        Their meaning and unit are stored with each column.
    """

    def __init__(self, stream: BinaryIO, like: pd.DataFrame, columns: Sequence[Column]) -> None:
        plain = pa.Schema.from_pandas(like.iloc[:0], preserve_index=False)
        known = {one.name: {"meaning": one.meaning, "unit": one.unit} for one in columns}
        fields = [field.with_metadata(known.get(field.name)) for field in plain]
        self._schema = pa.schema(fields, plain.metadata)
        self._writer = pq.ParquetWriter(stream, self._schema, write_page_checksum=True)
        self._waiting = self._schema.empty_table()

    def add(self, part: pd.DataFrame) -> None:
        """Append the rows of `part`."""
        table = pa.Table.from_pandas(part, self._schema, preserve_index=False)
        self._waiting = pa.concat_tables([self._waiting, table])
        whole = len(self._waiting) - len(self._waiting) % ROW_GROUP
        self._write(self._waiting[:whole])
        self._waiting = self._waiting[whole:].combine_chunks()

    def finish(self) -> None:
        """Write the last, smaller group and the footer."""
        self._write(self._waiting)
        self._writer.close()

    def close(self) -> None:
        """Stop writing, whether the file is finished or not."""
        self._writer.is_open = False  # otherwise its destructor writes to a closed file

    def _write(self, table: pa.Table) -> None:
        if len(table):
            self._writer.write_table(table.combine_chunks(), ROW_GROUP)


class ArrayWriter:
    """An .npz file whose arrays grow along their first axis, collected in unnamed temporary files.

    Parameters
    ----------
    folder : Path
        Folder of these files; needs space for the uncompressed arrays.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spools: dict[str, BinaryIO] = {}
        self._kinds: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        self._lengths: dict[str, int] = {}

    def add(self, part: Mapping[str, np.ndarray]) -> None:
        """Append to every array of `part`.

        Raises
        ------
        ValueError
            If an array holds Python objects, or has another type than its earlier parts.
        """
        for name, array in part.items():
            if array.dtype.hasobject:
                raise ValueError(f"{name}: Python objects need pickle; must be numbers or text")
            kind = (array.dtype, array.shape[1:])
            if self._kinds.setdefault(name, kind) != kind:
                raise ValueError(f"{name}: {kind} after {self._kinds[name]}")
            if name not in self._spools:
                # a name for file systems without unnamed files: see `remove_orphans`
                spool = tempfile.SpooledTemporaryFile(  # noqa: SIM115
                    IN_MEMORY_BYTES, prefix=".", suffix=".tmp", dir=str(self._folder)
                )
                self._spools[name] = cast(BinaryIO, spool)
            plain = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            for start in range(0, plain.size, COPIED_BYTES):
                self._spools[name].write(plain[start : start + COPIED_BYTES].data)
            self._lengths[name] = self._lengths.get(name, 0) + len(array)

    def write(self, stream: BinaryIO) -> None:
        """Write the arrays, compressed where that saves space."""
        with zipfile.ZipFile(stream, "w", compresslevel=LEVEL) as archive:
            for name, spool in self._spools.items():
                dtype, shape = self._kinds[name]
                header = {
                    "descr": np.lib.format.dtype_to_descr(dtype),
                    "fortran_order": False,
                    "shape": (self._lengths[name], *shape),
                }
                archive.compression = (
                    zipfile.ZIP_DEFLATED if _shrinks(spool) else zipfile.ZIP_STORED
                )
                spool.seek(0)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    while block := spool.read(COPIED_BYTES):
                        member.write(block)

    def close(self) -> None:
        """Discard the collected arrays."""
        for spool in self._spools.values():
            spool.close()


def _shrinks(spool: BinaryIO) -> bool:
    """Whether an array is small, or samples spread over it shrink by compression."""
    size = spool.seek(0, io.SEEK_END)
    if size <= IN_MEMORY_BYTES:
        return True
    samples = b""
    for start in range(0, size, -(-size // SAMPLES)):
        spool.seek(start)
        samples += spool.read(SAMPLED_BYTES)
    return len(zlib.compress(samples, LEVEL)) < WORTHWHILE * len(samples)
