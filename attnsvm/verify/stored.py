"""The stored tables and arrays of a record; some instances are in memory at a time."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnsvm.record import (
    CorruptRecordError,
    read_run,
    read_tables,
    trial_columns,
    verified,
)
from attnsvm.record.arrays import array_headers
from attnsvm.record.column import Column

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


@dataclass(frozen=True)
class StoredRows:
    """What a record says of some instances: their rows, and the arrays of those that have arrays.

    Attributes
    ----------
    rows : list of dict
        In the order of the table.
    key : list of str
        The columns that tell rows apart.
    arrays : dict of str to Array
        Each (R, ...), of R recorded rows.
    supports : mapping of (int, str) to (Array, Array)
        Row of the arrays, and name of an SVM -> support tokens (n, T), for certain and possibly.
    """

    rows: Sequence[Mapping[str, Any]]
    key: Sequence[str]
    arrays: Mapping[str, Any]
    supports: Mapping[tuple[int, str], tuple[Any, Any]] = field(default_factory=dict)

    @cached_property
    def row_at(self) -> dict[tuple[int, ...], Mapping[str, Any]]:
        """The rows by their key."""
        return {tuple(int(row[name]) for name in self.key): row for row in self.rows}

    @cached_property
    def place(self) -> dict[tuple[int, ...], int]:
        """The indices of the arrays by key; (seed,) is the first one of a seed."""
        names = ["seeds", *self.key[1:]]
        found: dict[tuple[int, ...], int] = {}
        for k, values in enumerate(zip(*(self.arrays[n] for n in names), strict=True)):
            found[tuple(map(int, values))] = k
            found.setdefault((int(values[0]),), k)
        return found

    def tensor(self, name: str, at: Sequence[int], shape: Sequence[int]) -> Tensor:
        """Return the rows `at` of an array of float64, (len(at), *shape).

        Raises
        ------
        CorruptRecordError
            If it is missing, or of another type or shape.
        """
        if name not in self.arrays:
            raise CorruptRecordError(f"solutions.npz: missing: {name}")
        array = self.arrays[name]
        if array.shape[1:] != tuple(shape) or array.dtype != np.float64:
            raise CorruptRecordError(f"{name}: {array.shape} {array.dtype}, must be {(*shape,)}")
        return torch.from_numpy(array[list(at)])


def plain_rows(trials: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, with None for a missing value."""
    plain = {}
    for name, column in trials.items():
        nullable = isinstance(column.dtype, pd.Int64Dtype | pd.BooleanDtype)
        values = column.astype(object).where(column.notna(), None) if nullable else column
        plain[str(name)] = values.tolist()
    by_row = zip(*plain.values(), strict=True)
    return [dict(zip(plain, values, strict=True)) for values in by_row]


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


def places_refusal(
    arrays: StoredArrays, names: Sequence[str], recorded: Sequence[tuple[int, ...]]
) -> str:
    """Return why the arrays are not those of the recorded rows, in order; empty if they are.

    `names` are the columns that tell rows apart, `recorded` their values.
    """
    if len(list(arrays)) != len(set(arrays)):
        return "an array is stored twice"
    if not recorded:
        return "it holds arrays, but no instance is recorded" if len(arrays) else ""
    for name, values in zip(["seeds", *names[1:]], zip(*recorded, strict=True), strict=True):
        if name not in set(arrays) or [int(v) for v in arrays[name]] != list(values):
            return f"its {name} are not those of the recorded rows"
    for name in arrays:
        shape, _ = arrays.header(name)
        if not shape or shape[0] != len(recorded):
            return f"{name}: {shape}, must have {len(recorded)} rows"
    return ""


def arrays_refusal(found: Mapping[str, Any], stated: Mapping[str, Any], free: set[str]) -> str:
    """Return which array is missing, one too many, or of another type; empty if none is."""
    missing, extra = set(found) - set(stated) - free, set(stated) - set(found) - free
    if missing or extra:
        words = (", ".join(sorted(names)) or "none" for names in (missing, extra))
        return "missing: {}; too many: {}".format(*words)
    for name, array in found.items():
        if name not in stated:
            continue
        given = stated[name]
        same = given.dtype == array.dtype or given.dtype.kind == array.dtype.kind == "U"
        if given.shape[1:] != array.shape[1:] or not same:
            must = f"{array.shape[1:]} {array.dtype}"
            return f"{name}: {given.shape[1:]} {given.dtype}, must be {must}"
    return ""
