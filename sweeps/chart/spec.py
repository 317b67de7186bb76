"""What a chart shows: which column against which, checked against what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from attnsvm.config import ConfigError
from attnsvm.config.names import keywords_checked, must_be_one_of, nearest
from attnsvm.record import one_line
from attnsvm.record.columns import QUANTITIES, RUN_COLUMNS, STATUS, TRIAL_COLUMNS, WORDS

from ..cells import row_key, rows_of
from ..notation import HEADINGS, heading

if TYPE_CHECKING:
    from ..loaded import LoadedSweep

Kind = Literal["line", "scatter", "box", "heatmap"]
Estimator = Literal["median", "mean"]
Interval = Literal["quartiles", "ci", "sd", "none"]
Law = Literal["power", "exponential"]

ALLOWED = {
    "kind": get_args(Kind),
    "estimator": get_args(Estimator),
    "interval": get_args(Interval),
    "fit": get_args(Law),
}
"""Field of a spec -> its words."""

STEP = "step"
ALL = "all"
"""Stands for every status."""

ROOM = {"hue": 24, "col": 8, "row": 8}
"""Largest number of values of a column that plays a part."""

ROOM_OF_A_HEATMAP = 200
"""The same for the vertical axis of a heatmap, its hue."""

MEANINGS = {column.name: column.meaning for column in (*RUN_COLUMNS, *QUANTITIES, *TRIAL_COLUMNS)}


class ChartError(ConfigError):
    """A chart that cannot be drawn; the message says what it must be instead."""


@dataclass(frozen=True)
class ChartSpec:
    """One quantity against one column; further columns get colours and panels of their own.

    A column may be given by the last word of its name, `lr`, or as the summary calls it, `1-corr`.

    Attributes
    ----------
    x, y
        Columns of the instances or fields of the config; y may be COLUMN=WORD, the share of a word;
        with x="step", it is a quantity of the history.
    hue, col, row
        Columns with a colour, a column of panels and a row of panels for each of their values; in
        a heatmap hue is the vertical axis.
    kind, estimator, interval
        Scatter shows every instance, the others statistics of the instances of a cell (by default
        line, and box for words on x); the statistic of a line or heatmap; the band of a line, by
        default quartiles around a median, and the bootstrap interval ("ci") around a mean.
    points, fit
        Whether every instance is drawn too, jittered along x; the law that is fitted to each line.
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
    interval: Interval | None = None
    points: bool = False
    fit: Law | None = None
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
    def band(self) -> Interval:
        """The band of a line."""
        return self.interval or ("ci" if self.estimator == "mean" else "quartiles")

    @property
    def name(self) -> str:
        """The name of the files of the chart; charts that show something else have other names."""
        by = list(filter(None, [self.hue, self.col, self.row]))
        words = [self.y, "vs", self.x, *(["by", *by] if by else []), self.kind]
        words += [self.estimator] if self.estimator != "median" else []
        words += [self.interval, self.fit, "points" * self.points]
        words += ["+".join(["log", *sorted({*self.log})])] if self.log else []
        words += ["+".join(self.status)] if self.status != ("ok",) else []
        return "_".join(filter(None, [*words, *self.chosen])).replace("/", "_")

    @property
    def chosen(self) -> list[str]:
        """The columns of which only one value is shown, each with its value."""
        return [f"{name}={value}" for name, value in sorted(self.where.items())]


def spec_of(x: str, y: str, parts: Mapping[str, Any]) -> ChartSpec:
    """Return the spec; for log and status a word stands for its parts between commas.

    TypeError: there is no such part.
    """
    words = {**parts, "where": parts.get("where") or {}}
    for name in {"log", "status"} & set(words):
        value = words[name]
        words[name] = tuple(value.split(",") if isinstance(value, str) else value)
    return keywords_checked(ChartSpec)(x, y, **words)


# --- what there is --------------------------------------------------------------------------------


def named(sweep: LoadedSweep, spec: ChartSpec) -> tuple[ChartSpec, list[str]]:
    """Return the spec with the columns that its words mean, and a note on each doubtful word.

    ChartError: no column has that name or meaning.
    """
    if sweep.rows.empty:
        raise ChartError("no instance is on record: must have a run that is done")
    notes = list[str]()
    columns: dict[str, Any] = {part: _meant(sweep, part, name, notes) for part, name in spec.parts}
    where = {_meant(sweep, "where", name, notes): value for name, value in spec.where.items()}
    spec = replace(spec, **columns, where=where)
    y = _meant(sweep, "y over steps" if spec.over_steps else "y", spec.y, notes)
    status = (ALL,) if y.startswith("status=") and spec.status == ("ok",) else spec.status
    return replace(spec, y=y, status=status), notes


def _meant(sweep: LoadedSweep, part: str, name: str, notes: list[str]) -> str:
    """Return the column that a word means: its name, its last word, or its heading on screen."""
    rows = sweep.rows
    empty = [str(column) for column in rows if rows[column].isna().all()]
    known = [
        column for column in map(str, rows) if not (column in empty and column in sweep.fields)
    ]
    quantities = [*sweep.curves["quantity"].unique()] if "quantity" in sweep.curves else []
    what = "a column of the instances or a field"
    if part == "y over steps":
        part, known, what = "y", quantities, "a quantity of the history, with x=step"
    elif part == "y":
        known += [
            f"{column}={word}" for column in WORDS if column in rows for word in WORDS[column]
        ]
    elif part == "x":
        known += [STEP]
    if name in known:
        return name
    same = [column for column in known if _last(column) == name]
    same = [column for column in same if column in sweep.axes] or same
    shown = [column for column in (*HEADINGS, *known) if column in known]
    shown = [column for column in dict.fromkeys(shown) if column not in empty]
    shown = [column for column in shown if f"{heading(column)} ".startswith(f"{name} ")]
    if {*rows.get("parameterization", ())} == {"kq"}:
        shown.sort(key=lambda column: "nuclear" not in column)  # the solution that (K, Q) goes to
    if part == "y" and name in quantities and not same:
        raise ChartError(f"y={name}: is a quantity of the history; x must be step")
    if len(same) != 1 and not shown:
        raise ChartError(f"{part}={one_line(name)}: must be {what}{_near(name, known, same)}")
    column, *others = same if len(same) == 1 else shown
    if others:
        also = ", ".join(f"{heading(other)} ({other})" for other in others)
        notes.append(f"{part}={name} is {column}; there is also {also}.")
    return column


def _last(column: str) -> str:
    return re.split("[.=]", column)[-1]


def _near(name: str, known: Sequence[str], same: Sequence[str]) -> str:
    """Return a question with the columns whose name or meaning has the words of `name`."""
    words = name.lower().replace("_", " ").split()
    texts = {column: f"{column} {heading(column)} {MEANINGS.get(column, '')}" for column in known}
    having = [c for c, text in texts.items() if all(word in text.lower() for word in words)]
    having.sort(key=lambda column: (name not in column, len(column)))
    lasts = {_last(column): column for column in known}
    near = [*same, *having][:6] or [lasts.get(nearest(name, lasts) or "", "")]
    hint = " | ".join(map(one_line, filter(None, dict.fromkeys(near))))
    return f"; did you mean {hint}?" if words and hint else ""


def rows_for(sweep: LoadedSweep, spec: ChartSpec) -> pd.DataFrame:
    """Return the instances, or their history, with every column that the spec names.

    Of each instance the column y has the value; statuses are not selected yet. An instance without
    a history has one row, without a step. ChartError: there is no instance.
    """
    rows, y = chosen_rows(sweep, spec.where), spec.y
    if spec.over_steps:
        key, curves = row_key(rows), sweep.curves
        history = curves.loc[curves["quantity"] == y, [*key, STEP, "value"]]
        needed = {*key, "status", "reason", *sweep.axes, *spec.keys} - {y}
        rows = rows[[name for name in map(str, rows) if name in needed]]
        # "right": an instance without a history has a row, and so is counted
        return history.rename(columns={"value": y}).merge(rows, "right", on=key)
    if y not in rows:
        column, _, word = y.partition("=")
        share = rows[column].eq(word).astype("boolean").where(rows[column].notna())
        rows = rows.assign(**{y: share})
    return rows


def chosen_rows(sweep: LoadedSweep, where: Mapping[str, Any]) -> pd.DataFrame:
    """Return the instances with these values, given as words; ChartError if there is none."""
    rows = sweep.rows
    for word, value in where.items():
        name = _meant(sweep, "where", word, [])
        values = rows[name].dropna().unique()
        same = [known for known in values if _same(known, value)]
        if not same:
            ordered = sorted(values, key=lambda known: (isinstance(known, str), known))[:10]
            listed = ", ".join(one_line(str(known)) for known in ordered)
            raise ChartError(f"where {name}={value}: must be one of {listed or 'no value'}")
        rows = rows_of(rows, {name: same[0]})
    return rows


def _same(known: Any, value: Any) -> bool:
    """Whether a value is the wanted one; a word on the command line may mean a number."""
    if str(known).lower() == str(value).lower():
        return True
    try:
        return float(known) == float(value) and not isinstance(known, bool | np.bool_)
    except (TypeError, ValueError):
        return False


# --- what fits ------------------------------------------------------------------------------------


def checked(sweep: LoadedSweep, spec: ChartSpec, rows: pd.DataFrame) -> ChartSpec:
    """Return the spec with a colour or panels for every axis that would be pooled.

    ChartError: a part is of the wrong type, has too many values, or an axis is left without one.
    """
    if spec.kind is None:
        spec = replace(spec, kind="box" if _holds_words(rows[spec.x]) else "line")
    for wrong, field_value, what in _rules(spec, rows):
        if wrong:
            raise ChartError(f"{one_line(field_value)}: {what}")
    sizes = rows[[*{*sweep.axes, *spec.keys}]].nunique(dropna=False)
    room = ROOM | ({"hue": ROOM_OF_A_HEATMAP} if spec.kind == "heatmap" else {})
    for role, most in room.items():
        name = getattr(spec, role)
        if name and sizes[name] > most:
            raise ChartError(f"{role}={name}: has {sizes[name]} values; must have at most {most}")
    cells = rows[[name for name in sweep.axes if name in rows]].drop_duplicates()
    free = pooled(cells, [name for name in spec.keys if name in cells])
    free.sort(key=lambda name: sizes[name] <= ROOM["col"])  # the largest gets colours
    for role in ("hue", "col", "row"):
        if free and getattr(spec, role) is None and sizes[free[0]] <= room[role]:
            parts: dict[str, Any] = {role: free.pop(0)}
            spec = replace(spec, **parts)
    if spec.kind == "heatmap" and spec.hue is None:
        raise ChartError("kind=heatmap: must have hue, its vertical axis")
    if free:
        name = free[0]
        raise ChartError(
            f"{', '.join(free)}: the runs differ in it too, and cells are never pooled; with "
            f"{sizes[name]} values it must be x (--x {name}), a colour (--hue {name}, at most "
            f"{room['hue']}), or have one value (--where {name}=VALUE)"
        )
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


def _rules(spec: ChartSpec, rows: pd.DataFrame) -> Iterator[tuple[bool, str, str]]:
    """Yield what may be wrong with a spec: whether it is, the field with its value, the rule."""
    x, y, kind, log = spec.x, spec.y, spec.kind, ",".join(spec.log)
    chosen = [(name, str(getattr(spec, name) or "")) for name in ALLOWED]
    for name, value in [*chosen, *(("status", word) for word in spec.status)]:
        known = ALLOWED.get(name, (*STATUS.words, ALL))
        yield bool(value) and value not in known, f"{name}={value}", must_be_one_of(value, known)
    for role, name in [("y", y), *reversed(spec.parts)]:
        yield [*spec.keys, y].count(name) > 1, f"{role}={name}", "must have one part only"
    flag, words = is_bool_dtype(rows[y]), _holds_words(rows[x])
    yield (
        not is_numeric_dtype(rows[y]),
        f"y={y}",
        f"must hold numbers or true | false, or be {y}=WORD",
    )
    yield flag and (kind == "scatter" or spec.fit is not None), f"y={y}", "must hold numbers"
    yield words and kind in ("line", "scatter"), f"x={x}", "must hold numbers, or have kind=box"
    yield not {*spec.log} <= {"x", "y"}, f"log={log}", "must be x | y | x,y"
    yield words and "x" in spec.log, f"log={log}", f"must have an x of numbers, {x} holds words"
    yield spec.fit is not None and kind != "line", f"fit={spec.fit}", "must have kind=line"
    band = f"interval={spec.interval}"
    yield spec.interval is not None and kind != "line", band, "must have kind=line"
    yield spec.interval == "sd" and spec.estimator != "mean", band, "must have estimator=mean"
    yield (
        spec.interval in ("quartiles", "sd") and flag,
        band,
        f"must be ci | none, {y} is true | false",
    )
    others = spec.estimator != "median" and kind in ("box", "scatter")
    yield others, f"estimator={spec.estimator}", f"must be median with kind={kind}"
    yield spec.points and kind not in ("line", "box"), "points=True", "must have kind=line | box"


def _holds_words(column: pd.Series[Any]) -> bool:
    return is_bool_dtype(column) or not is_numeric_dtype(column)
