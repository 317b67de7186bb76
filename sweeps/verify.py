"""`attnsvm-verify DIR`: prove every stored SVM again, from its tokens, weights and multipliers."""

from __future__ import annotations

import argparse
import math
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.record import RunRecord
from attnsvm.state import RUN_FILE
from attnsvm.storage import read_json, verify_file
from attnsvm.verify import Proof, Record, verify
from sweeps.aggregate import UNREADABLE
from sweeps.status import states

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
    """The arrays of an open `solutions.npz`; iterating over one reads instance after instance."""

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
    """What is proved of a `RunRecord`: its table, and arrays of which one instance is in memory."""

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


def stored_svms(record: RunRecord | StoredRecord, gap: float) -> Iterator[tuple[str, int, Record]]:
    """Yield (name of the SVM, seed, record to prove) for everything in `solutions.npz`."""
    arrays = record.solutions
    multi = "attended" in arrays
    for norm in NORMS:
        if f"{norm}_W" in arrays:
            yield from _instances(arrays, norm, norm, gap, attended=multi, finite=False)
        if f"{norm}_fin_W" in arrays:
            yield from _instances(arrays, f"{norm}_fin", norm, gap, attended=True, finite=True)
    if "one_token_W" in arrays:
        yield from _instances(arrays, "one_token", "frobenius", gap, attended=False, finite=False)


OF_PROBLEM = ("seeds", "X", "Z", "mask")
OF_SVM = ("status", "W", "multipliers", "ray", "objective", "lower_bound", "duality_gap",
          "min_margin", "rank")  # fmt: skip


def _instances(
    arrays: Mapping[str, Iterable[Any]],
    name: str,
    norm: str,
    gap: float,
    attended: bool,
    finite: bool,
) -> Iterator[tuple[str, int, Record]]:
    tokens = "attended" if attended else "selected"
    fields = [*OF_PROBLEM, tokens, *(f"{name}_{field}" for field in OF_SVM)]
    fields += ["log_softmax"] if finite else []
    for values in zip(*(arrays[field] for field in fields), strict=True):
        at = dict(zip(fields, values, strict=True))
        yield (
            name,
            int(at["seeds"]),
            Record(
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
                gap=gap,
                attended=at[tokens] if attended else None,
                log_softmax=at["log_softmax"] if finite else None,
            ),
        )


def tabled_otherwise(record: RunRecord | StoredRecord) -> list[tuple[str, int, Proof]]:
    """Return a refusal for every number in the table that is not the proved one."""
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
                (norm, int(seed), Proof(False, f"table says {column} = {value}"))
                for seed, value in zip(rows.index[~same], tabled[~same], strict=True)
            ]
    return refusals


def proofs(folder: Path) -> pd.DataFrame:
    """Return svm, seed, status, proved, reason of everything stored in a run's folder."""
    with opened(folder) as (record, run):
        found = [
            (name, seed, stored.status, *vars(verify(stored)).values())
            for name, seed, stored in stored_svms(record, run["config"]["svm"]["gap"])
        ]
        found += [(name, seed, "", *vars(p).values()) for name, seed, p in tabled_otherwise(record)]
    return pd.DataFrame(found, columns=["svm", "seed", "status", "proved", "reason"])


def main(argv: list[str] | None = None) -> int:
    """Run `attnsvm-verify`; 0 if everything stored is proved, 1 if not, 2 without a record."""
    parser = argparse.ArgumentParser(prog="attnsvm-verify", description=__doc__)
    parser.add_argument("directory", type=Path, help="folder of a sweep or of a run")
    directory = parser.parse_args(argv).directory
    try:
        found = states(directory)
    except FileNotFoundError as error:
        print(f"attnsvm-verify: {error}", file=sys.stderr)  # noqa: T201
        return 2
    refused = 0
    for name, run in found.items():
        if run.state != "done":
            print(f"{name}: {run.state}: {run.reason}")  # noqa: T201
            refused += 1
            continue
        folder = directory if (directory / RUN_FILE).exists() else directory / name
        try:
            refused += _tell(name, proofs(folder))
        except (*UNREADABLE, zipfile.BadZipFile, zlib.error) as error:
            print(f"{name}: corrupt: {type(error).__name__}: {error}")  # noqa: T201
            refused += 1
    return int(refused > 0)


def _tell(name: str, table: pd.DataFrame) -> int:
    """Print what is proved of a run and return how many of its SVMs are not."""
    proved = table[table["proved"].astype(bool)]["status"].value_counts()
    words = [f"{count} {status} proved" for status, count in proved.items()]
    refused = table[~table["proved"].astype(bool)]
    print(f"{name}: {', '.join(words) or 'nothing stored'}, {len(refused)} refused")  # noqa: T201
    for _, row in refused.iterrows():
        print(f"  {row['svm']} seed {row['seed']} {row['status']}: {row['reason']}")  # noqa: T201
    return len(refused)
