"""The stored table and arrays of a record; one instance of the arrays is in memory at a time."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.record import RUN_FILE, read_json, verify_file
from attnsvm.verify.svm import Proof, StoredSvm

NORMS = ("frobenius", "nuclear")
TABLED = {
    "status": "status",
    "objective": "objective",
    "lower_bound": "lower_bound",
    "gap": "duality_gap",
    "min_margin": "min_margin",
}
"""Column of `trials.parquet`, without its norm -> field of `solutions.npz`."""


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

    def _instances(self, info: zipfile.ZipInfo) -> Iterator[np.ndarray]:
        with self._archive.open(info) as member:
            np.lib.format.read_magic(member)
            (length, *shape), _, dtype = np.lib.format.read_array_header_1_0(member)
            size = dtype.itemsize * math.prod(shape)
            for _ in range(length):
                yield np.ndarray(shape, dtype, member.read(size))


@dataclass(frozen=True)
class StoredRecord:
    """The part of a `RunRecord` that is proved again: its table and its arrays."""

    trials: pd.DataFrame
    solutions: Mapping[str, Iterable[np.ndarray]]


@contextmanager
def opened(folder: Path) -> Iterator[tuple[StoredRecord, dict[str, Any]]]:
    """Yield the record in `folder` and the content of its `run.json`, checksums verified.

    Raises
    ------
    CorruptRecordError
        If a file is missing or differs from what was written.
    """
    run = read_json(folder / RUN_FILE)
    tables, arrays = folder / "trials.parquet", folder / "solutions.npz"
    for path in (tables, arrays):
        verify_file(path, run["files"][path.name])
    columns = ["seed", *(f"{norm}_{column}" for norm in NORMS for column in TABLED)]
    with zipfile.ZipFile(arrays) as archive:
        yield StoredRecord(pd.read_parquet(tables, columns=columns), StoredArrays(archive)), run


def svms_in(
    record: StoredRecord, gap: float, rank_tolerance: float
) -> Iterator[tuple[str, int, StoredSvm]]:
    """Yield (name of the SVM, seed, stored SVM) for every SVM in `solutions.npz`."""
    arrays = record.solutions
    tolerances = {"gap": gap, "rank_tolerance": rank_tolerance}
    multi = "attended" in arrays
    for norm in NORMS:
        if f"{norm}_W" in arrays:
            yield from _instances(arrays, norm, norm, tolerances, attended=multi, finite=False)
        if f"{norm}_fin_W" in arrays:
            yield from _instances(
                arrays, f"{norm}_fin", norm, tolerances, attended=True, finite=True
            )
    if "one_token_W" in arrays:
        yield from _instances(
            arrays, "one_token", "frobenius", tolerances, attended=False, finite=False
        )


OF_PROBLEM = ("seeds", "X", "Z", "mask")
OF_SVM = ("status", "W", "multipliers", "ray", "objective", "lower_bound", "duality_gap",
          "min_margin", "rank")  # fmt: skip


def _instances(
    arrays: Mapping[str, Iterable[Any]],
    name: str,
    norm: str,
    tolerances: Mapping[str, float],
    attended: bool,
    finite: bool,
) -> Iterator[tuple[str, int, StoredSvm]]:
    tokens = "attended" if attended else "selected"
    fields = [*OF_PROBLEM, tokens, *(f"{name}_{field}" for field in OF_SVM)]
    fields += ["log_softmax"] if finite else []
    for values in zip(*(arrays[field] for field in fields), strict=True):
        at = dict(zip(fields, values, strict=True))
        yield (
            name,
            int(at["seeds"]),
            StoredSvm(
                X=at["X"],
                Z=at["Z"],
                mask=at["mask"],
                selected=at[tokens].argmax(-1) if attended else at[tokens],
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
                **tolerances,
                attended=at[tokens] if attended else None,
                log_softmax=at["log_softmax"] if finite else None,
            ),
        )


def tabled_otherwise(record: StoredRecord) -> list[tuple[str, int, Proof]]:
    """Return a failed proof for every number in the table that differs from the proved one."""
    refusals = []
    if "seeds" not in record.solutions:
        return []
    rows = record.trials.set_index("seed").loc[np.array(list(record.solutions["seeds"]))]
    for norm in NORMS:
        for column, field in TABLED.items():
            if f"{norm}_{field}" not in record.solutions:
                continue
            stored = np.array(list(record.solutions[f"{norm}_{field}"]))
            tabled = rows[f"{norm}_{column}"].to_numpy()
            same = tabled == stored
            if stored.dtype.kind == "f":
                same |= np.isnan(tabled) & np.isnan(stored)
            refusals += [
                (norm, int(seed), Proof(False, f"table: {column} = {value} is not proved"))
                for seed, value in zip(rows.index[~same], tabled[~same], strict=True)
            ]
    return refusals
