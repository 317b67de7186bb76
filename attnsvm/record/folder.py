"""Writing the record of a run: in its folder it is complete or absent.

A run's folder holds `trials.parquet` (a row for every instance), `history.parquet` (long: seed,
step, quantity, value), `solutions.npz` (weights and multipliers, from which every certificate can
be proved again) and `run.json` (identity, provenance, sha256 of the other files and of itself).
`run.json` is written last: its presence means complete.
"""

import hashlib
import shutil
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnsvm.record import columns as declared
from attnsvm.record import files
from attnsvm.record.archive import IN_MEMORY_BYTES
from attnsvm.record.columns import Column
from attnsvm.record.run import RUN_FILE, TABLES, counts_of
from attnsvm.record.schema import RunRecord
from attnsvm.record.state import NEW, complete

ROW_GROUP = 2**17
"""Rows of a row group, the unit in which Parquet is written and read."""

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
    known = {column.name: {"meaning": column.meaning, "unit": column.unit} for column in columns}
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

    The arrays are collected in temporary files in `folder`. An array of Python objects, or
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
                    spools[name] = opened.enter_context(
                        tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES, dir=str(folder))
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


def write(folder: Path, parts: Iterable[RunRecord], origin: Mapping[str, Any]) -> None:
    """Write a record in parts to `folder`, `run.json` last.

    The files do not depend on the division into parts; one part is in memory at a time. A record
    in the folder is kept until the new one is complete.
    """
    parts = iter(parts)
    first = next(parts)
    counts: Counter[str] = Counter()
    timings: Counter[str] = Counter()
    of_run = origin["config"], origin["probes"]
    columns = (*declared.TRIAL_COLUMNS, *declared.further_columns(*of_run))
    of_history = (*declared.HISTORY_COLUMNS, *declared.LAYER_KEY)
    with _replaced(folder) as place:
        with ExitStack() as opened:
            streams = [opened.enter_context(open(place / name, "wb")) for name in TABLES]
            add_trials = opened.enter_context(table_writer(streams[0], first.trials, columns))
            add_history = opened.enter_context(table_writer(streams[1], first.history, of_history))
            add_arrays = opened.enter_context(array_writer(streams[2], place))
            for part in chain([first], parts):
                add_trials(part.trials)
                add_history(part.history)
                add_arrays(part.solutions)
                counts.update(part.trials["status"])
                timings.update(part.timings)
        digests = {}
        for name in TABLES:
            files.synced(place / name)
            with open(place / name, "rb") as stream:
                digests[name] = hashlib.file_digest(stream, "sha256").hexdigest()
        outcome = {
            "state": "done",
            **counts_of(counts.elements(), origin["config"]),
            "timings_s": dict(timings),
            "columns": declared.columns_digest(*of_run),
            "files": digests,
        }
        files.write_json(place / RUN_FILE, {**origin, **outcome})


@contextmanager
def _replaced(folder: Path) -> Iterator[Path]:
    """Yield an empty folder; what the block writes there replaces the record in `folder`.

    After an error the old record remains. FileExistsError if something else lies in its place.
    """
    place = folder / NEW
    if files.kind_of(place) == "a folder":  # a pipe would block for ever
        shutil.rmtree(place)
    place.mkdir()
    try:
        yield place
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    complete(folder)


def write_failure(
    folder: Path, origin: Mapping[str, Any], error: BaseException, state: str = "failed"
) -> None:
    """Record that the run in `folder` ended without a result, where and why.

    `state` is `failed`, or `interrupted` for a run that was ended by a signal.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    reason = f"{type(error).__name__}: {error}".removesuffix(": ")
    trace = "".join(traceback.format_exception(error))
    failure = {"state": state, "reason": reason, "place": place, "traceback": trace}
    with _replaced(folder) as new:
        files.write_json(new / RUN_FILE, {**origin, **failure, "files": {}})
