"""The stored tables and arrays of a record; some instances are in memory at a time.

Which seeds the rows of `trials.parquet` have, and the status that follows from the other columns.
"""

import math
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.config import RunConfig
from attnsvm.config.groups import one_layer_problems
from attnsvm.config.optimizer import CONES
from attnsvm.experiment import MAX_DRAWS_PER_TRIAL
from attnsvm.experiment.results import exclusions
from attnsvm.record import CorruptRecordError, read_run, verified
from attnsvm.record.archive import array_headers
from attnsvm.record.columns import key_columns
from attnsvm.record.folder import read_tables

Key = tuple[int, ...]
"""What tells a row apart from the others: its seed, of a network layer and head too."""


class StoredArrays:
    """The arrays of an open `solutions.npz`; `shapes` are by name, instance axis first."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, headers = archive, array_headers(archive)
        self.shapes = {name: shape for name, (shape, _, _) in headers.items()}
        self._types = {name: dtype for name, (*_, dtype) in headers.items()}
        for name, (_, fortran, _) in headers.items():
            if fortran:
                raise CorruptRecordError(f"solutions.npz: {name}: must be in the order of C")

    def parts(self, counts: Iterable[int], names: Iterable[str]) -> Iterator[dict[str, np.ndarray]]:
        """Yield the next rows of these arrays, as many as each count says, and read to the end.

        So the archive's own checksums are verified.
        """
        with ExitStack() as stack:
            members = {}
            for name in names:
                info = self._archive.getinfo(f"{name}.npy")
                members[name] = stack.enter_context(self._archive.open(info))
                members[name].read(info.file_size - self._bytes(name, self.shapes[name][0]))
            for count in counts:
                yield {
                    name: np.ndarray(
                        (count, *self.shapes[name][1:]),
                        self._types[name],
                        bytearray(member.read(self._bytes(name, count))),
                    )
                    for name, member in members.items()
                }
            for member in members.values():
                while member.read(2**20):
                    pass

    def _bytes(self, name: str, count: int) -> int:
        return count * math.prod(self.shapes[name][1:]) * self._types[name].itemsize


@dataclass(frozen=True)
class StoredRecord:
    """A record whose checksums fit: the two tables, and the arrays part by part."""

    trials: pd.DataFrame
    history: pd.DataFrame
    solutions: StoredArrays


@contextmanager
def opened(folder: Path) -> Iterator[tuple[StoredRecord, dict[str, Any]]]:
    """Yield the record in `folder` and the content of its `run.json`, checksums verified."""
    run = read_run(folder)
    trials, history = (table.to_pandas() for table in read_tables(folder, run))
    arrays = folder / "solutions.npz"
    with verified(arrays, run["files"][arrays.name]) as stream, zipfile.ZipFile(stream) as archive:
        yield StoredRecord(trials, history, StoredArrays(archive)), run


@dataclass(frozen=True)
class StoredRows:
    """What a record says of some instances: their rows, and the arrays of those that have arrays.

    `rows` are in the order of the table, `key` are the columns that tell them apart. `arrays` are
    (R, ...) of R recorded rows. `supports` are the support tokens of each SVM, for certain and
    possibly, (R, 2, n, T).
    """

    rows: Sequence[Mapping[str, Any]]
    key: Sequence[str]
    arrays: Mapping[str, Any]
    supports: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        """The seeds of the instances."""
        return list(dict.fromkeys(row["seed"] for row in self.rows))

    @cached_property
    def row_at(self) -> dict[Key, Mapping[str, Any]]:
        """The rows by their key."""
        return {key_of(row, self.key): row for row in self.rows}

    @cached_property
    def place(self) -> dict[Key, int]:
        """The indices of the arrays by key; (seed,) is the first one of a seed."""
        found: dict[Key, int] = {}
        for k, key in enumerate(keys_of(self.arrays, self.key) if self.arrays else ()):
            found[key] = k
            found.setdefault(key[:1], k)
        return found

    def filled(self, name: str, keys: Sequence[Key], default: Tensor) -> Tensor:
        """Return `default`, (len(keys), ...), with the stored rows of an array at these keys.

        If there are any, the array must be there, and of this type and shape.
        """
        places = {k: self.place[key] for k, key in enumerate(keys) if key in self.place}
        if not places:
            return default
        if name not in self.arrays:
            raise CorruptRecordError(f"solutions.npz: missing: {name}")
        array, (_, *shape) = self.arrays[name], default.shape
        if array.shape[1:] != tuple(shape) or array.dtype != default[:0].numpy().dtype:
            must = f"{tuple(shape)} {default[:0].numpy().dtype}"
            raise CorruptRecordError(f"{name}: {array.shape[1:]} {array.dtype}, must be {must}")
        result = default.clone()
        result[list(places)] = torch.from_numpy(array[list(places.values())])
        return result


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
        str(name): column.array.to_numpy(object, na_value=None)
        if isinstance(column.dtype, pd.api.extensions.ExtensionDtype)
        else column.to_numpy()
        for name, column in table.items()
    }


def places_refusal(arrays: StoredArrays, names: Sequence[str], recorded: Sequence[Key]) -> str:
    """Return why the arrays are not those of the recorded rows, in order; empty if they are.

    `names` are the columns that tell rows apart, `recorded` their values.
    """
    if not recorded:
        return "it holds arrays, but no instance is recorded" if arrays.shapes else ""
    if missing := {"seeds", *names[1:]} - set(arrays.shapes):
        return f"missing: {', '.join(sorted(missing))}"
    for name, shape in arrays.shapes.items():
        if shape[:1] != (len(recorded),):
            return f"{name}: {shape}, must have {len(recorded)} rows"
    (found,) = arrays.parts([len(recorded)], ["seeds", *names[1:]])
    if keys_of(found, names) != list(recorded):
        return f"its {', '.join(names)} are not those of the recorded rows"
    return ""


Row = Mapping[str, Any]
Refusal = tuple[str, int | None, str]
"""What is refused, the seed of its row, and why."""


def row_refusals(
    run: Mapping[str, Any], rows: Sequence[Row], available: float
) -> Iterator[Refusal]:
    """Yield what is wrong with number and order of the rows, and with the counts of `run.json`.

    `available` is the number of instances in a data file, NaN if it is not here.
    """
    config = run["config"]
    keys, model = key_columns(rows[0] if rows else ()), config["model"]
    each, heads = one_layer_problems(model), model["heads"] if len(keys) > 1 else 1
    for k, row in enumerate(rows):
        must = (config["seed"] + k // each, k % each // heads, k % heads)[: len(keys)]
        if key_of(row, keys) != must:
            words = ", ".join(f"{name} {value}" for name, value in zip(keys, must, strict=True))
            yield "rows", row["seed"], f"row {k} must be of {words}"
            break
    accepted = sum(row["status"] == "ok" for row in rows)
    wanted, available = config["trials"] * each, available * each
    if not config["selection"]["until_accepted"]:
        unknown = math.isnan(available)
        count = f"1 to {wanted}" if unknown else min(wanted, available)
        if not (0 < len(rows) <= wanted if unknown else len(rows) == count):
            yield "rows", None, f"there are {len(rows)} rows, must be {count}"
    elif accepted < wanted:
        if len(rows) < MAX_DRAWS_PER_TRIAL * wanted:
            yield "rows", None, f"{accepted} are accepted of {len(rows)}, must be {wanted}"
    elif accepted > wanted or rows[-1]["status"] != "ok":
        yield "rows", None, f"the rows must end with the accepted instance number {wanted}"
    statuses = dict(Counter(row["status"] for row in rows))
    stated = {"wanted": wanted, "drawn": len(rows), "accepted": accepted, "statuses": statuses}
    for name, value in stated.items():
        if run[name] != value:
            yield "run.json", None, f"{name} is {value}, stated is {run[name]}"


def is_recorded(row: Row, tokens: str) -> bool:
    """Return whether curves and arrays of the instance are kept."""
    return tokens != "multi" or row["status"] in ("ok", "infeasible", "undecided")


def rejection_refusals(
    row: Row,
    config: RunConfig,
    ranges: Mapping[str, Callable[[Any], bool]],
    all_positive: bool | None,
) -> Iterator[str]:
    """Yield what is impossible in the row of an instance without arrays.

    Its weights are not stored: status and reason follow from its own columns, which are trusted.
    `ranges` says whether a value of a column that follows from the weights is possible, and
    `all_positive` whether all labels are +1; None if they are not known.
    """
    chosen, ended = config.selection, row["training"]
    ranges = {
        **ranges,
        "max_masked_softmax": lambda value: 0 <= value <= chosen.attended,
        "min_top_softmax": lambda value: 0 <= value <= 1,
        "W_norm": lambda value: value >= 0,
        "attended_tokens": lambda value: value >= 0,
    }
    for name, allowed in ranges.items():
        if ended != "diverged" and not allowed(row[name]):
            yield f"{name}: {row[name]} is impossible"
    end = "saturated" if row["saturated"] else "unsaturated"
    saturated = row["min_top_softmax"] >= chosen.saturation
    possible = ended in (end, "stalled", "finite_optimum", "diverged")
    if not possible or row["saturated"] != saturated:
        yield f"training {ended}, saturated {row['saturated']}: is impossible"
    startless = ended == "diverged" and getattr(config.optimizer, "init", "") in CONES
    pairs = []
    for holds, *pair in exclusions(  # None: it may be
        chosen,
        startless=None if startless else False,
        diverged=ended == "diverged",
        tied_softmax=None if row["tie"] else False,
        stalled=ended == "stalled",
        positive=all_positive,
        ambiguous=row["max_masked_softmax"] > chosen.negligible,
        nothing_negligible=None,
        unattended=not row["min_top_softmax"] >= chosen.attended,
    ):
        pairs += [tuple(pair)] if holds or holds is None else []
        if holds:
            break
    if (row["status"], row["reason"]) not in pairs:
        words = " or ".join(f"{status} ({reason})" for status, reason in pairs) or "ok"
        yield f"status is {words}, stated is {row['status']} ({row['reason']})"
