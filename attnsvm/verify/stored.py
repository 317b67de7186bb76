"""The stored table and arrays of a record; one instance of the arrays is in memory at a time."""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.record import (
    CorruptRecordError,
    read_run,
    read_tables,
    trial_columns,
    verified,
)
from attnsvm.record.arrays import array_headers
from attnsvm.record.column import Column
from attnsvm.record.files import MAX_TABLE_BYTES, open_regular
from attnsvm.verify.constraints import StoredSvm

BLOCK = 2**20

Header = tuple[tuple[int, ...], np.dtype[Any]]


class StoredArrays(Mapping[str, Iterable[np.ndarray]]):
    """The arrays of an open `solutions.npz`; iteration over an array reads one instance a time."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def __iter__(self) -> Iterator[str]:
        return (name.removesuffix(".npy") for name in self._archive.namelist())

    def __len__(self) -> int:
        return len(self._archive.namelist())

    def __getitem__(self, name: str) -> Iterator[np.ndarray]:
        return self._instances(self._archive.getinfo(f"{name}.npy"))

    def header(self, name: str) -> Header:
        """Return shape and type of an array, as it states them."""
        with self._archive.open(f"{name}.npy") as member:
            return _header(member)

    def _instances(self, info: zipfile.ZipInfo) -> Iterator[np.ndarray]:
        with self._archive.open(info) as member:
            (length, *shape), dtype = _header(member)
            size = dtype.itemsize * math.prod(shape)
            if member.tell() + length * size != info.file_size:
                raise CorruptRecordError(f"{info.filename}: its size is not that of its shape")
            for _ in range(length):
                yield np.ndarray(shape, dtype, member.read(size))


def _header(member: Any) -> Header:
    if np.lib.format.read_magic(member) != (1, 0):
        raise CorruptRecordError("an array of solutions.npz has another format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    if fortran or dtype.hasobject:
        raise CorruptRecordError("an array of solutions.npz has another format")
    return shape, dtype


@dataclass(frozen=True)
class StoredRecord:
    """A record whose checksums fit: the two tables, and the arrays instance by instance."""

    trials: pd.DataFrame
    history: pd.DataFrame
    solutions: StoredArrays


@contextmanager
def opened(folder: Path) -> Iterator[tuple[StoredRecord, dict[str, Any]]]:
    """Yield the record in `folder` and the content of its `run.json`, checksums verified.

    Raises
    ------
    CorruptRecordError
        If a file is missing, differs from what was written, or is not one of today's schema.
    """
    run = read_run(folder)
    trials, history = (table.to_pandas() for table in read_tables(folder, run))
    arrays = folder / "solutions.npz"
    with verified(arrays, run["files"][arrays.name]) as stream, zipfile.ZipFile(stream) as archive:
        array_headers(archive)
        yield StoredRecord(trials, history, StoredArrays(archive)), run


def plain_rows(trials: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, with None for a missing value."""
    plain = {}
    for name, column in trials.items():
        nullable = isinstance(column.dtype, pd.Int64Dtype | pd.BooleanDtype)
        values = column.astype(object).where(column.notna(), None) if nullable else column
        plain[str(name)] = values.tolist()
    by_row = zip(*plain.values(), strict=True)
    return [dict(zip(plain, values, strict=True)) for values in by_row]


def svms_in(record: Any, gap: float, rank_tolerance: float) -> Iterator[tuple[str, int, StoredSvm]]:
    """Yield (name of the SVM, seed, stored SVM) for every SVM in the arrays of a record."""
    arrays = record.solutions
    asked = {"gap": gap, "rank_tolerance": rank_tolerance}
    for values in zip(*(arrays[name] for name in arrays), strict=True):
        at = dict(zip(arrays, values, strict=True))
        for name, svm in svms_of(at, asked).items():
            yield name, int(at["seeds"]), svm


def svms_of(at: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, StoredSvm]:
    """Return the SVMs among the arrays of one instance, by name; `asked` is the config's `svm`."""
    multi = "attended" in at
    svms = {}
    for name in (array.removesuffix("_ray") for array in at if array.endswith("_ray")):
        norm, finite = name.removesuffix("_fin"), name.endswith("_fin")
        kind = ("frobenius", False, False) if name == "one_token" else (norm, multi, finite)
        svms[name] = _svm(at, name, kind[0], asked, *kind[1:])
    return svms


def _svm(
    at: Mapping[str, Any],
    name: str,
    norm: str,
    asked: Mapping[str, Any],
    general: bool,
    finite: bool,
) -> StoredSvm:
    return StoredSvm(
        X=at["X"],
        Z=at["Z"],
        mask=at["mask"],
        selected=at["attended"].argmax(-1) if general else at["selected"],
        norm=norm,
        status=str(at[f"{name}_status"]),
        W=at[f"{name}_W"],
        multipliers=at[f"{name}_multipliers"],
        ray=at[f"{name}_ray"],
        objective=float(at[f"{name}_objective"]),
        lower_bound=float(at[f"{name}_lower_bound"]),
        duality_gap=float(at[f"{name}_duality_gap"]),
        min_margin=float(at[f"{name}_min_margin"]),
        rank=int(at[f"{name}_rank"]),
        gap=asked["gap"],
        rank_tolerance=asked["rank_tolerance"],
        attended=at["attended"] if general else None,
        log_softmax=at["log_softmax"] if finite else None,
    )


def table_refusal(table: pd.DataFrame, further: Iterable[Column]) -> str:
    """Return what is wrong with the columns of `trials.parquet`; empty if nothing is.

    `further` are those of other norms and of probes.
    """
    wanted = trial_columns(further)
    if list(table.columns) != list(wanted):
        names = sorted(set(map(str, table.columns)) ^ set(wanted))
        return f"its columns are not those of a record: {', '.join(names) or 'in another order'}"
    for name, (dtype, _) in wanted.items():
        if table[name].dtype != pd.Series([], dtype=dtype).dtype:
            return f"{name} is {table[name].dtype}, must be {dtype}"
    return "" if len(table) else "it has no rows"


_DIGESTS: dict[tuple[int, int, int, int], str] = {}
"""Those of this process: all runs of a sweep may name one model."""


def content_of(path: str) -> str | None:
    """Return the sha256 of a regular file's content; None without one."""
    try:
        with open_regular(Path(path), MAX_TABLE_BYTES) as stream:
            found = os.fstat(stream.fileno())
            known = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if known not in _DIGESTS:
                digest = hashlib.sha256()
                for start in range(0, found.st_size, BLOCK):  # not to its end: some have none
                    digest.update(stream.read(min(BLOCK, found.st_size - start)))
                _DIGESTS[known] = digest.hexdigest()
            return _DIGESTS[known]
    except (OSError, ValueError, CorruptRecordError):
        return None


def arrays_refusal(mine: Mapping[str, Any], stated: Mapping[str, Any], free: set[str]) -> str:
    """Return which array is missing, one too many, or of another type; empty if none is."""
    missing, extra = set(mine) - set(stated) - free, set(stated) - set(mine) - free
    if missing or extra:
        words = (", ".join(sorted(names)) or "none" for names in (missing, extra))
        return "missing: {}; too many: {}".format(*words)
    for name, array in mine.items():
        if name not in stated:
            continue
        found = stated[name]
        same = found.dtype == array.dtype or found.dtype.kind == array.dtype.kind == "U"
        if found.shape[1:] != array.shape[1:] or not same:
            must = f"{array.shape[1:]} {array.dtype}"
            return f"{name}: {found.shape[1:]} {found.dtype}, must be {must}"
    return ""
