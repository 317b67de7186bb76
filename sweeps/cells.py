"""The cells of a sweep: the config fields in which its runs differ, and their names.

And every instance once: what several runs of a cell have drawn, and what has no record.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.config import GROUPS, WITHOUT_EFFECT, RunConfig
from attnsvm.config.identity import fields_of as fields_of
from attnsvm.config.identity import recorded_fields as recorded_fields
from attnsvm.config.run import SECTIONS
from attnsvm.record import FINISHED
from attnsvm.record.columns import key_columns

GRADIENT = "optimizer.gradient"

ARITHMETIC = {"direct": " (published arithmetic)", "log_domain": " (exact)"}
"""Addition to the label of a gradient: the arithmetic of the curve."""

DIGITS = 4
"""Digits of a number in a label; more where values would look equal."""

SEED = "seed"
"""The only field of a config that makes no cell: other seeds are further instances of one."""

ORDER = ("selection", "data", "parameterization", "head", "model", "optimizer", "loss", "svm", "")
"""The parts of a config in the order of labels; "" is the run itself."""

_schemas = {group: [*options.own.values()] for group, options in GROUPS.items()}
_schemas |= {name: [schema] for name, schema in SECTIONS.items()} | {"": [RunConfig]}
_names = (
    f"{group}.{f.name}".lstrip(".")
    for group in ORDER
    for schema in _schemas[group]
    for f in dataclasses.fields(schema)
    if f.name not in ("_target_", SEED, *ORDER, *WITHOUT_EFFECT)
)
SCHEMA = (*GROUPS, *dict.fromkeys(_names))
"""Every field of attnsvm's own schema as users type it, in the order of labels."""


def in_order(names: Iterable[str]) -> list[str]:
    """Return fields in the order of the schema, those of plug-ins at the end."""
    place = {name: i for i, name in enumerate(SCHEMA)}
    return sorted(set(names), key=lambda name: (place.get(name, len(place)), name))


def word(name: str) -> str:
    """Return the last word of a field: what figures and tables on screen call it."""
    return name.rpartition(".")[2]


def differing(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fields in which runs differ, of the fields of each, in the order of labels.

    A field that only some options have does not differ by that: the option tells them apart.
    """
    names = in_order(name for cell in cells for name in cell if name != SEED)
    return [name for name in names if _differs(cells, name)]


def _differs(cells: Sequence[Mapping[str, Any]], name: str) -> bool:
    holders = [cell for cell in cells if name in cell]
    if len({repr(cell[name]) for cell in holders}) > 1:
        return True
    group = name.partition(".")[0]
    options = {cell.get(group) for cell in holders}
    return any(name not in cell and cell.get(group) in options for cell in cells)


def table_of(cells: Sequence[Mapping[str, Any]], names: Iterable[str]) -> pd.DataFrame:
    """Return the fields of every run as columns, each of one type; a missing value is NaN."""
    return pd.DataFrame(
        {name: _column([cell.get(name) for cell in cells]) for name in names},
        index=range(len(cells)),
    )


def _column(values: list[Any]) -> pd.Series[Any]:
    """Return values of one type: as text, if some are words and some are numbers."""
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind in ("mixed", "mixed-integer"):
        values = [None if value is None else str(value) for value in values]
    column = pd.Series(values, dtype=object).infer_objects()
    return column.astype(float) if kind == "empty" else column


def rows_of(table: pd.DataFrame, cell: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of a cell, given by some of the columns of the table."""
    held = pd.Series(True, index=table.index)
    for name, value in cell.items():
        if name in table:
            held &= table[name].isna() if pd.isna(value) else table[name] == value
    return table[held]


def groups(
    table: pd.DataFrame, keys: Sequence[str]
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield each combination of `keys` with its rows; without keys, all rows; no empty group."""
    if keys and len(table):
        for values, part in table.groupby(list(keys), dropna=False, sort=True):
            yield dict(zip(keys, values, strict=True)), part
    elif len(table):
        yield {}, table


def row_key(table: pd.DataFrame) -> list[str]:
    """Return the columns that tell the rows of a sweep's trials apart, of those of `table`."""
    return ["run", *key_columns(table)]


# --- axes and labels ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class CellAxes:
    """The columns of a sweep's tables in which its rows differ: they tell its cells apart.

    The columns `names` are those of all runs, also of the ones without a result: the label of a
    cell does not depend on which others are done. `digits` are those of the labels of a column of
    numbers, such that they differ where the numbers do; `of_rows` are the names that tell apart
    rows of one run: layer and head of attention.
    """

    names: tuple[str, ...] = ()
    digits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    of_rows: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: pd.DataFrame) -> CellAxes:
        """Return the axes of runs whose differing fields are the columns of `table`."""
        names = [str(name) for name in table]
        numbers = [name for name in names if pd.api.types.is_float_dtype(table[name])]
        return cls(tuple(names), {name: _digits(table[name]) for name in numbers})

    def with_rows(self, trials: pd.DataFrame) -> CellAxes:
        """Return the axes with those in which the rows of one instance differ, at the end."""
        rows = [name for name in key_columns(trials) if name != SEED]
        differ = tuple(name for name in rows if trials[name].nunique(dropna=False) > 1)
        return dataclasses.replace(self, names=(*self.names, *differ), of_rows=differ)

    @property
    def of_runs(self) -> tuple[str, ...]:
        """The axes that are fields of the config."""
        return tuple(name for name in self.names if name not in self.of_rows)

    def besides(self, *others: str) -> list[str]:
        """Return the names of the axes except `others`."""
        return [name for name in self.names if name not in others]

    def label(self, cell: Mapping[str, Any]) -> str:
        """Return a cell in words: `head=relu, d=4`."""
        return ", ".join(
            f"{word(key)}={number(value, self.digits.get(key, DIGITS))}"
            f"{ARITHMETIC.get(value, '') if key == GRADIENT else ''}"
            for key, value in cell.items()
        )

    def split(self, frame: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield the part of `frame` of each combination of `keys` with its label."""
        return ((self.label(cell), part) for cell, part in groups(frame, keys))


def _digits(column: pd.Series[Any]) -> int:
    values = column.dropna().unique()
    texts = (len({number(value, n) for value in values}) for n in range(DIGITS, 18))
    return next((DIGITS + i for i, count in enumerate(texts) if count == len(values)), 17)


def number(value: Any, digits: int | None = None) -> str:
    """Return a value in all digits, or in a few: 5 rather than 5.0, a dash for a missing one."""
    if value is None or value is pd.NA or value != value:
        return "-"
    if isinstance(value, float) and digits is None:
        return repr(float(value)).removesuffix(".0")
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return str(value)


BEGIN, ROWS = "first seed of the run", "rows of an instance"
"""Columns beside those of the cell."""

SEEDED = (
    "sphere",
    "sphere_in_span",
    "orthonormal",
    "paths_far",
    "paths_near",
    "digits",
    "pretrained",
    "prompt",
    "planted",
    "token_graph",
    "classes",
    "contexts",
)
"""Options of `data` of which a seed alone gives the instance, whatever run it is in."""

LARGEST = 2**53
"""Seeds and counts above this are no numbers of instances: the record is damaged."""


def repeated(
    trials: pd.DataFrame, runs: pd.DataFrame, cell: Sequence[str]
) -> tuple[np.ndarray, int]:
    """Return which rows hold an instance again, and how many of them hold other results.

    A seed is an instance of its cell, if the source is SEEDED. With data=file, and perhaps with
    plug-ins, it gives the head and the initial weights, and the distance from the first seed of the
    run tells which tokens.
    """
    keys = trials[list(dict.fromkeys([*cell, *key_columns(trials)]))]
    keys = keys.assign(**{BEGIN: _begin(trials, runs)})
    number = keys.groupby([*keys], dropna=False, sort=False).ngroup()
    again = number.duplicated().to_numpy()
    results = trials.drop(columns="run").set_axis(number)
    here, there = results[again], results[~again].loc[number[again]]
    return again, len(here.reset_index(drop=True).compare(there.reset_index(drop=True)))


def _begin(rows: pd.DataFrame, runs: pd.DataFrame) -> pd.Series[float]:
    """Return the first seed of a row's run where it belongs to the instance, else NaN."""
    first = rows["run"].astype(object).map(runs.set_index("run")[SEED])
    return first.mask(rows["data"].isin(SEEDED)).astype(float)


def unrecorded(runs: pd.DataFrame, trials: pd.DataFrame, cell: Sequence[str]) -> Counter[str]:
    """Return state -> number of rows of the runs that are not done, each instance once.

    Instances on record do not count, nor do those of an earlier run of the same cell.
    """
    counted: Counter[str] = Counter()
    missing_runs = runs[~runs["state"].isin(FINISHED)]
    sizes = missing_runs.reindex(columns=[SEED, "trials", "model.layers", "model.heads"])
    sizes = sizes.apply(pd.to_numeric, errors="coerce")
    known = sizes[SEED].between(0, LARGEST) & sizes["trials"].between(0, LARGEST)
    if not known.any():
        return counted
    missing_runs, sizes = missing_runs[known], sizes[known]
    # an instance has one row; with a transformer layers times heads
    model = missing_runs.get("model", pd.Series("", missing_runs.index))
    rows = (sizes["model.layers"] * sizes["model.heads"]).where(model == "transformer")
    missing_runs = missing_runs.assign(
        **{BEGIN: _begin(missing_runs, runs), ROWS: rows.fillna(1.0)}
    )
    if len(trials):
        trials = trials.assign(**{BEGIN: _begin(trials, runs)})
    keys = [*cell, BEGIN]
    for values, part in missing_runs.groupby(keys, dropna=False, sort=False):
        same = rows_of(trials, dict(zip(keys, values, strict=True)))
        seeds = np.unique(same[SEED]) if len(same) else np.array([], dtype=int)
        begin, count = part[[SEED, "trials"]].to_numpy(np.int64).T
        states, rows_each = part["state"].tolist(), part[ROWS].tolist()
        for low, high in pairwise(np.unique([begin, begin + count]).tolist()):
            drawn = np.flatnonzero((begin <= low) & (begin + count >= high))
            if drawn.size:  # the first of these runs counts
                first, last = np.searchsorted(seeds, [low, high])
                missing = high - low - int(last - first)
                counted[states[drawn[0]]] += int(rows_each[drawn[0]]) * missing
    return counted
