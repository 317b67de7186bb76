"""What a chart shows: which column against which, checked against what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from attnsvm.config.names import did_you_mean
from attnsvm.record import one_line
from attnsvm.record.columns import STATUS, WORDS

from ..cells import row_key, rows_of

if TYPE_CHECKING:
    from ..loaded import LoadedSweep

Kind = Literal["line", "scatter", "box", "heatmap"]
Estimator = Literal["mean", "median"]

STEP = "step"
ALL = "all"
"""Stands for every status."""

ROOM = {"hue": 24, "col": 8, "row": 8}
"""Largest number of values of a column that plays a part."""

ROOM_OF_A_HEATMAP = 200
"""The same for the vertical axis of a heatmap, its hue."""


class ChartError(ValueError):
    """A chart that cannot be drawn; the message says what it must be instead."""


@dataclass(frozen=True)
class ChartSpec:
    """One quantity against one column; further columns get colours and panels of their own.

    Attributes
    ----------
    x, y
        Columns of the instances or fields of the config; y may be COLUMN=WORD, the share of a word;
        with x="step", it is a quantity of the history.
    hue, col, row
        Columns with a colour, a column of panels and a row of panels for each of their values; in
        a heatmap hue is the vertical axis.
    kind, estimator
        Scatter shows every instance, the others statistics of the instances of a cell (by default
        line, and box for words on x); the statistic of a line or heatmap.
    log, status, where
        The logarithmic axes, of "x" and "y"; the statuses of the instances that are shown, "all"
        for every one; columns with the one value that is shown.
    """

    x: str
    y: str
    hue: str | None = None
    col: str | None = None
    row: str | None = None
    kind: Kind | None = None
    estimator: Estimator = "median"
    log: tuple[str, ...] = ()
    status: tuple[str, ...] = ("ok",)
    where: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Each part that a column plays, with the column: row, col, hue, x."""
        parts = ("row", "col", "hue", "x")
        return [(part, name) for part in parts if (name := getattr(self, part)) is not None]

    @property
    def keys(self) -> list[str]:
        """The columns that tell cells apart, x last."""
        return [name for _, name in self.parts]

    @property
    def over_steps(self) -> bool:
        """Whether the quantity is one of the history."""
        return self.x == STEP

    @property
    def name(self) -> str:
        """The name of the files of the chart; charts with other numbers have other names."""
        by = [name for name in (self.hue, self.col, self.row) if name]
        words = [self.y, "vs", self.x, *(["by", *by] if by else []), str(self.kind)]
        if self.estimator != "median" and self.kind in ("line", "heatmap"):
            words.append(self.estimator)
        words += ["+".join(self.status)] * (self.status != ("ok",))
        return "_".join([*words, *self.chosen]).replace("/", "_")

    @property
    def chosen(self) -> list[str]:
        """The columns of which only one value is shown, each with its value."""
        return [f"{name}={value}" for name, value in sorted(self.where.items())]


def spec_of(x: str, y: str, parts: Mapping[str, Any]) -> ChartSpec:
    """Return the spec; for log and status a word stands for its parts between commas.

    TypeError: there is no such part.
    """
    known = [part.name for part in fields(ChartSpec)][2:]
    for name in parts:
        if name not in known:
            near = did_you_mean(name, known)
            raise TypeError(f"chart: unknown part {name}; {near}must be {' | '.join(known)}")
    words = {**parts, "where": parts.get("where") or {}}
    for name in {"log", "status"} & set(words):
        value = words[name]
        words[name] = tuple(value.split(",") if isinstance(value, str) else value)
    return ChartSpec(x, y, **words)


# --- what there is --------------------------------------------------------------------------------


def rows_for(sweep: LoadedSweep, spec: ChartSpec) -> pd.DataFrame:
    """Return the instances, or their history, with every column that the spec names.

    Of each instance the column y has the value; statuses are not selected yet. An instance without
    a history has one row, without a step. ChartError: a column does not exist, or no instance.
    """
    trials = sweep.trials
    if trials.empty:
        raise ChartError("no instance is on record: must have a run that is done")
    if spec.over_steps:
        history = sweep.history
        known = list(history["quantity"].unique()) if "quantity" in history else []
        listed = " | ".join(map(one_line, known)) or "none is on record"
        _require("y", spec.y, known, f"a quantity of the history, with x=step: {listed}")
        key = row_key(trials)
        of_y = history.loc[history["quantity"] == spec.y, [*key, STEP, "value"]]
        history = of_y.rename(columns={"value": spec.y})
        needed = {"status", "reason", *sweep.axes, *spec.keys, *spec.where}
        missing = [name for name in map(str, trials) if name in needed and name not in history]
        # "right": an instance without a history has a row, and so is counted
        trials = history.merge(trials[[*key, *missing]], "right", on=key)
    for part, name in [("y", spec.y), *spec.parts]:
        if name not in trials:
            trials = trials.assign(**{name: _of_run(sweep, part, name, trials)})
    return chosen_rows(sweep, trials, spec.where)


def chosen_rows(sweep: LoadedSweep, trials: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows with these values, given as words; ChartError if there is none."""
    for name, value in where.items():
        if name not in trials:
            trials = trials.assign(**{name: _of_run(sweep, "where", name, trials)})
        values = trials[name].dropna().unique()
        same = [known for known in values if _same(known, value)]
        if not same:
            ordered = sorted(values, key=lambda known: (isinstance(known, str), known))[:10]
            listed = ", ".join(one_line(str(known)) for known in ordered)
            raise ChartError(f"where {name}={value}: must be one of {listed or 'no value'}")
        trials = rows_of(trials, {name: same[0]})
    return trials


def _of_run(sweep: LoadedSweep, part: str, name: str, trials: pd.DataFrame) -> pd.Series[Any]:
    """Return the field of every row's run, or for y=COLUMN=WORD whether a row has the word."""
    if part == "y" and name in set(sweep.history.get("quantity", ())):
        raise ChartError(f"y={name}: is a quantity of the history; x must be step")
    of_runs = [field for field in map(str, sweep.runs) if field not in ("reason", "place")]
    columns = {*WORDS} & {*trials} if part == "y" else ()
    flags = [f"{column}={word}" for column in columns for word in WORDS[column]]
    what = "a column of the instances or a field of the config"
    _require(part, name, [*map(str, trials), *of_runs, *flags], what)
    if name in flags:
        column, _, word = name.partition("=")
        return trials[column].eq(word).astype("boolean").where(trials[column].notna())
    if part == "y":  # repeated for every instance, it would have too narrow an interval
        raise ChartError(f"y={name}: is of a run; must be of its instances, runs has the others")
    values = sweep.runs.set_index("run")[name]
    return trials["run"].astype(object).map(values).astype(values.dtype)


def _require(part: str, name: str, known: Sequence[str], what: str) -> None:
    if name in known:
        return
    last = [column for column in known if column.rpartition(".")[2] == name]
    having = sorted((column for column in known if name and name in column), key=len)[:6]
    near = list(dict.fromkeys([*last, *(having or get_close_matches(name, known, cutoff=0.5))]))
    hint = f"; did you mean {' | '.join(map(one_line, near))}?" if near else ""
    raise ChartError(f"{part}={one_line(name)}: must be {what}{hint}")


def _same(known: Any, value: Any) -> bool:
    """Whether a value is the wanted one; a word on the command line may mean a number."""
    if isinstance(value, str) and isinstance(known, bool | np.bool_):
        return str(known).lower() == value.lower()
    try:
        return bool(known == value) or float(known) == float(value)
    except (TypeError, ValueError):
        return False


# --- what fits ------------------------------------------------------------------------------------


def checked(sweep: LoadedSweep, spec: ChartSpec, rows: pd.DataFrame) -> ChartSpec:
    """Return the spec with a colour or panels for every axis that would be pooled.

    ChartError: a part is of the wrong type, has too many values, or an axis is left without one.
    """
    _check_words(spec)
    if spec.kind is None:
        spec = replace(spec, kind="box" if _holds_words(rows[spec.x]) else "line")
    _check_types(spec, rows)
    cells = rows[[name for name in sweep.axes if name in rows]].drop_duplicates()
    free = pooled(cells, [name for name in spec.keys if name in cells])
    for role in ("hue", "col", "row"):
        if free and getattr(spec, role) is None:
            parts: dict[str, Any] = {role: free.pop(0)}
            spec = replace(spec, **parts)
    if spec.kind == "heatmap" and spec.hue is None:
        raise ChartError("kind=heatmap: must have hue, its vertical axis")
    if free:
        raise ChartError(
            f"{', '.join(free)}: the runs differ in it too, and cells are never pooled; it must be "
            "x, hue, col or row, or have one value (where)"
        )
    for role, room in ROOM.items():
        name = getattr(spec, role)
        room = ROOM_OF_A_HEATMAP if (role, spec.kind) == ("hue", "heatmap") else room
        if name and (count := rows[name].nunique(dropna=False)) > room:
            raise ChartError(f"{role}={name}: has {count} values; must have at most {room}")
    return spec


def pooled(cells: pd.DataFrame, named: Sequence[str]) -> list[str]:
    """Return the columns of `cells` that still differ where the columns `named` are equal."""
    named, free = list(named), list[str]()
    for axis in map(str, cells):
        if axis not in named:
            by: Any = named or [0] * len(cells)
            groups = cells.groupby(by, dropna=False)[axis]
            if (groups.nunique(dropna=False) > 1).any():
                free.append(axis)
                named.append(axis)
    return free


def _check_words(spec: ChartSpec) -> None:
    for name, allowed in (("kind", get_args(Kind)), ("estimator", get_args(Estimator))):
        if (value := getattr(spec, name)) not in (*allowed, None):
            raise ChartError(f"{name}={value}: must be {' | '.join(allowed)}")
    if not set(spec.log) <= {"x", "y"}:
        raise ChartError(f"log={','.join(spec.log)}: must be x | y | x,y")
    for word in spec.status:
        if word not in (*STATUS.words, ALL):
            raise ChartError(
                f"status={one_line(word)}: {did_you_mean(word, STATUS.words)}must be "
                f"{' | '.join((*STATUS.words, ALL))}"
            )
    for role, name in reversed(spec.parts):
        if spec.keys.count(name) > 1:
            raise ChartError(f"{role}={name}: must have one part only")
    if spec.y in spec.keys:
        raise ChartError(f"y={spec.y}: must not be x, hue, col or row too")


def _check_types(spec: ChartSpec, rows: pd.DataFrame) -> None:
    x, y, kind, words = spec.x, spec.y, spec.kind, _holds_words(rows[spec.x])
    if not is_numeric_dtype(rows[y]):
        raise ChartError(f"y={y}: holds words; must hold numbers or true | false, or be {y}=WORD")
    if kind == "scatter" and is_bool_dtype(rows[y]):
        raise ChartError(f"y={y}: holds true | false; must hold numbers for kind=scatter")
    if words and kind in ("line", "scatter"):
        raise ChartError(f"x={x}: holds words; must hold numbers for kind={kind}, or kind=box")
    if words and "x" in spec.log:
        raise ChartError(f"log=x: x={x} holds words; must hold numbers")


def _holds_words(column: pd.Series[Any]) -> bool:
    return is_bool_dtype(column) or not is_numeric_dtype(column)
