"""Writers of tables and arrays in parts; the bytes of the file do not depend on the parts."""

import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnsvm.record.columns import Column

ROW_GROUP = 2**17
"""Rows of a row group, the unit in which Parquet is written and read."""

IN_MEMORY_BYTES = 2**20
"""Largest array that is collected in memory; a larger one is collected in a temporary file."""

LEVEL = 1
"""Compression level; a higher one takes 4 times as long and saves 7 %."""


@contextmanager
def table_writer(
    stream: BinaryIO, like: pd.DataFrame, columns: Sequence[Column]
) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Yield a function that appends rows to a Parquet file; its end is written after the block.

    Its row groups are of equal size, and each page has its checksum. `like` has the columns and
    types of every part; the meaning and unit of `columns` are stored with them.
    """
    plain = pa.Schema.from_pandas(like.iloc[:0], preserve_index=False)
    known = {one.name: {"meaning": one.meaning, "unit": one.unit} for one in columns}
    fields = [field.with_metadata(known.get(field.name)) for field in plain]
    schema = pa.schema(fields, plain.metadata)
    writer = pq.ParquetWriter(stream, schema, write_page_checksum=True)
    waiting = schema.empty_table()

    def add(part: pd.DataFrame) -> None:
        nonlocal waiting
        table = pa.Table.from_pandas(part, schema, preserve_index=False)
        waiting = pa.concat_tables([waiting, table]).combine_chunks()
        whole = len(waiting) - len(waiting) % ROW_GROUP
        if whole:
            writer.write_table(waiting[:whole], ROW_GROUP)
            waiting = waiting[whole:].combine_chunks()

    try:
        yield add
        if len(waiting):
            writer.write_table(waiting, ROW_GROUP)
        writer.close()
    finally:
        writer.is_open = False  # otherwise its destructor writes to a closed file


@contextmanager
def array_writer(
    stream: BinaryIO, folder: Path
) -> Iterator[Callable[[Mapping[str, np.ndarray]], None]]:
    """Yield a function that appends to arrays along their first axis; an .npz file after the block.

    The arrays are collected in unnamed temporary files in `folder`. An array of Python objects, or
    of another type than its earlier parts, is a ValueError.
    """
    spools: dict[str, Any] = {}
    kinds: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
    lengths: Counter[str] = Counter()
    with ExitStack() as opened:

        def add(part: Mapping[str, np.ndarray]) -> None:
            for name, array in part.items():
                if array.dtype.hasobject:
                    raise ValueError(f"{name}: Python objects need pickle; must be numbers or text")
                kind = (array.dtype, array.shape[1:])
                if kinds.setdefault(name, kind) != kind:
                    raise ValueError(f"{name}: {kind} after {kinds[name]}")
                if name not in spools:
                    # a name for file systems without unnamed files: see `remove_orphans`
                    spools[name] = opened.enter_context(
                        tempfile.SpooledTemporaryFile(
                            IN_MEMORY_BYTES, prefix=".", suffix=".tmp", dir=str(folder)
                        )
                    )
                spools[name].write(array.tobytes())
                lengths[name] += len(array)

        yield add
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
            for name, spool in spools.items():
                dtype, shape = kinds[name]
                descr = np.lib.format.dtype_to_descr(dtype)
                header = {"descr": descr, "fortran_order": False, "shape": (lengths[name], *shape)}
                spool.seek(0)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    shutil.copyfileobj(spool, member)
