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
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.record import CorruptRecordError, read_run, read_tables, verified
from attnsvm.record.arrays import array_headers

Key = tuple[int, ...]
"""What tells a row apart from the others: its seed, of a network layer and head too."""


class StoredArrays(Mapping[str, Iterable[np.ndarray]]):
    """The arrays of an open `solutions.npz`; iteration over an array reads one instance a time."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._headers = archive, array_headers(archive)
        for name, (_, fortran, _) in self._headers.items():
            if fortran:
                raise CorruptRecordError(f"solutions.npz: {name}: must be in the order of C")

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def __contains__(self, name: object) -> bool:
        return name in self._headers

    def __getitem__(self, name: str) -> Iterator[np.ndarray]:
        (length, *shape), _, dtype = self._headers[name]
        size = dtype.itemsize * math.prod(shape)
        info = self._archive.getinfo(f"{name}.npy")
        with self._archive.open(info) as member:
            member.read(info.file_size - length * size)  # its header
            for _ in range(length):
                yield np.ndarray(shape, dtype, member.read(size))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array, instance axis first."""
        return self._headers[name][0]


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
    def row_at(self) -> dict[Key, Mapping[str, Any]]:
        """The rows by their key."""
        return {key_of(row, self.key): row for row in self.rows}

    @cached_property
    def place(self) -> dict[Key, int]:
        """The indices of the arrays by key; (seed,) is the first one of a seed."""
        found: dict[Key, int] = {}
        for k, key in enumerate(keys_of(self.arrays, self.key)):
            found[key] = k
            found.setdefault(key[:1], k)
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


def key_of(row: Mapping[str, Any], names: Sequence[str]) -> Key:
    """Return the values of a row in the columns `names`, which tell rows apart."""
    return tuple(int(row[name]) for name in names)


def keys_of(arrays: Mapping[str, Iterable[Any]], names: Sequence[str]) -> list[Key]:
    """Return what the arrays say of their rows in these columns."""
    columns = (arrays[name] for name in ("seeds", *names[1:]))
    return [tuple(map(int, values)) for values in zip(*columns, strict=True)]


def plain_columns(table: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the columns of a table: numbers, or objects with None for a missing one."""
    return {
        str(name): (
            column.astype(object).where(column.notna(), None)
            if isinstance(column.dtype, pd.api.extensions.ExtensionDtype)
            else column
        ).to_numpy()
        for name, column in table.items()
    }


def plain_rows(trials: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, with None for a missing value."""
    plain = {name: column.tolist() for name, column in plain_columns(trials).items()}
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def places_refusal(arrays: StoredArrays, names: Sequence[str], recorded: Sequence[Key]) -> str:
    """Return why the arrays are not those of the recorded rows, in order; empty if they are.

    `names` are the columns that tell rows apart, `recorded` their values.
    """
    if not recorded:
        return "it holds arrays, but no instance is recorded" if len(arrays) else ""
    if missing := {"seeds", *names[1:]} - set(arrays):
        return f"missing: {', '.join(sorted(missing))}"
    for name in arrays:
        if arrays.shape(name)[:1] != (len(recorded),):
            return f"{name}: {arrays.shape(name)}, must have {len(recorded)} rows"
    if keys_of(arrays, names) != list(recorded):
        return f"its {', '.join(names)} are not those of the recorded rows"
    return ""


def arrays_refusal(found: Mapping[str, Any], stated: Mapping[str, Any], free: set[str]) -> str:
    """Return which array is missing, one too many, or of another type; empty if none is."""
    missing, extra = set(found) - set(stated) - free, set(stated) - set(found) - free
    if missing or extra:
        words = (", ".join(sorted(names)) or "none" for names in (missing, extra))
        return "missing: {}; too many: {}".format(*words)
    for name in found.keys() & stated.keys():
        given, array = stated[name], found[name]
        same = given.dtype == array.dtype or given.dtype.kind == array.dtype.kind == "U"
        if given.shape[1:] != array.shape[1:] or not same:
            must = f"{array.shape[1:]} {array.dtype}"
            return f"{name}: {given.shape[1:]} {given.dtype}, must be {must}"
    return ""
