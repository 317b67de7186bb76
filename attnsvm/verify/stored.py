"""What a record says of some instances.

Which seeds the rows of `trials.parquet` have, and the status that follows from the other columns.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.config import RunConfig
from attnsvm.config.groups import one_layer_problems
from attnsvm.config.optimizer import CONES
from attnsvm.experiment import MAX_DRAWS_PER_TRIAL
from attnsvm.experiment.results import exclusions
from attnsvm.record import CorruptRecordError
from attnsvm.record.columns import key_columns
from attnsvm.record.schema import RunRecord

Key = tuple[int, ...]
"""What tells a row apart from the others: its seed, of a network layer and head too."""


@dataclass(frozen=True)
class StoredRows:
    """The record of some instances: their rows, and the arrays of those that have arrays.

    `supports` are the support tokens of each SVM of R recorded rows, for certain and possibly,
    (R, 2, n, T).
    """

    record: RunRecord
    supports: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> list[str]:
        """The columns that tell the rows apart."""
        return key_columns(self.record.trials)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows in the order of the table."""
        names, columns = zip(*plain_columns(self.record.trials).items(), strict=True)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def recorded(self, tokens: str) -> list[dict[str, Any]]:
        """Return the rows whose curves and arrays are kept with `selection.tokens`."""
        kept = ("ok", "infeasible", "undecided")
        return [row for row in self.rows if tokens != "multi" or row["status"] in kept]

    @property
    def arrays(self) -> Mapping[str, Any]:
        """The arrays of the recorded rows, (R, ...)."""
        return self.record.solutions

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

    def places_refusal(self, tokens: str) -> str:
        """Return why the arrays are not those of the recorded rows, in order; "" if they are."""
        recorded = [key_of(row, self.key) for row in self.recorded(tokens)]
        if not recorded:
            return "it holds arrays, but no instance is recorded" if self.arrays else ""
        if missing := {"seeds", *self.key[1:]} - set(self.arrays):
            return f"missing: {', '.join(sorted(missing))}"
        for name, array in self.arrays.items():
            if array.shape[:1] != (len(recorded),):
                return f"{name}: {array.shape}, must have {len(recorded)} rows"
        if keys_of(self.arrays, self.key) != recorded:
            return f"its {', '.join(['seeds', *self.key[1:]])} are not those of the recorded rows"
        return ""

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
