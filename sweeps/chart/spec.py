"""What a chart shows: which column against which, checked against what is there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from attnsvm.config.names import did_you_mean, nearest
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

STEP = "step"
ALL = "all"
"""Stands for every status."""

ROOM = {"hue": 24, "col": 8, "row": 8}
"""Largest number of values of a column that plays a part."""

ROOM_OF_A_HEATMAP = 200
"""The same for the vertical axis of a heatmap, its hue."""

MEANINGS = {column.name: column.meaning for column in (*RUN_COLUMNS, *QUANTITIES, *TRIAL_COLUMNS)}


class ChartError(ValueError):
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
        by = [name for name in (self.hue, self.col, self.row) if name]
        words = [self.y, "vs", self.x, *(["by", *by] if by else []), str(self.kind)]
        if self.estimator != "median" and self.kind in ("line", "heatmap"):
            words.append(self.estimator)
        words += [word for word in (self.interval, self.fit) if word]
        words += ["points"] * self.points
        words += ["+".join(["log", *sorted({*self.log})])] if self.log else []
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


def named(sweep: LoadedSweep, spec: ChartSpec) -> tuple[ChartSpec, list[str]]:
    """Return the spec with the columns that its words mean, and a note on each doubtful word.

    ChartError: no column has that name or meaning.
    """
    if sweep.trials.empty:
        raise ChartError("no instance is on record: must have a run that is done")
    notes: list[str] = []
    columns: dict[str, Any] = {part: _meant(sweep, part, name, notes) for part, name in spec.parts}
    where = {_meant(sweep, "where", name, notes): value for name, value in spec.where.items()}
    spec = replace(spec, **columns, where=where)
    y = _meant(sweep, "y over steps" if spec.over_steps else "y", spec.y, notes)
    status = (ALL,) if y.startswith("status=") and spec.status == ("ok",) else spec.status
    return replace(spec, y=y, status=status), notes


def _meant(sweep: LoadedSweep, part: str, name: str, notes: list[str]) -> str:
    """Return the column that a word means: its name, its last word, or its heading on screen."""
    trials, runs = sweep.trials, sweep.runs
    of_runs = [str(column) for column in runs if column not in ("reason", "place")]
    of_runs = [column for column in of_runs if runs[column].notna().any()]
    quantities = [*sweep.history["quantity"].unique()] if "quantity" in sweep.history else []
    flags = [f"{column}={word}" for column in WORDS if column in trials for word in WORDS[column]]
    known, what = [*map(str, trials), *of_runs], "a column of the instances or a field"
    if part == "y over steps":
        part, known = "y", quantities
        what = f"a quantity of the history, with x=step: {' | '.join(map(one_line, known))}"
    elif part == "y":
        known += flags
    elif part == "x":
        known += [STEP]
    if name in known:
        column = name
    else:
        same = list(dict.fromkeys(c for c in known if re.split("[.=]", c)[-1] == name))
        same = [c for c in same if c in sweep.axes] or same
        shown = [
            c
            for c in (*HEADINGS, *known)
            if c in known and not (c in trials and trials[c].isna().all())
        ]
        shown = [c for c in dict.fromkeys(shown) if f"{heading(c)} ".startswith(f"{name} ")]
        if part == "y" and name in quantities and not same:
            raise ChartError(f"y={name}: is a quantity of the history; x must be step")
        if not name or not (shown or len(same) == 1):
            raise ChartError(f"{part}={one_line(name)}: must be {what}{_near(name, known, same)}")
        if {*runs.get("parameterization", ())} == {"kq"}:
            shown.sort(key=lambda c: "nuclear" not in c)  # the solution that (K, Q) goes to
        column, *others = same if len(same) == 1 else shown
        if others:
            also = ", ".join(f"{heading(other)} ({other})" for other in others)
            notes.append(f"{part}={name} is {column}; there is also {also}.")
    if part == "y" and column in of_runs and column not in trials:
        raise ChartError(f"y={name}: is of a run; must be of its instances, runs has the others")
    return column


def _near(name: str, known: Sequence[str], same: Sequence[str]) -> str:
    """Return a question with the columns whose name or meaning has the words of `name`."""
    words = name.lower().replace("_", " ").split()
    texts = {c: f"{c} {heading(c)} {MEANINGS.get(c, '')}".lower() for c in known}
    having = [c for c, text in texts.items() if words and all(word in text for word in words)]
    having.sort(key=lambda c: (name not in c, len(c)))
    lasts = {re.split("[.=]", c)[-1]: c for c in known}
    near = [*same, *having][:6] or filter(None, [lasts.get(nearest(name, lasts) or "")])
    hint = " | ".join(map(one_line, dict.fromkeys(near)))
    return f"; did you mean {hint}?" if hint else ""


def rows_for(sweep: LoadedSweep, spec: ChartSpec) -> pd.DataFrame:
    """Return the instances, or their history, with every column that the spec names.

    Of each instance the column y has the value; statuses are not selected yet. An instance without
    a history has one row, without a step. ChartError: there is no instance.
    """
    trials = sweep.trials
    if spec.over_steps:
        key = row_key(trials)
        of_y = sweep.history.loc[sweep.history["quantity"] == spec.y, [*key, STEP, "value"]]
        history = of_y.rename(columns={"value": spec.y})
        needed = {"status", "reason", *sweep.axes, *spec.keys, *spec.where}
        missing = [name for name in map(str, trials) if name in needed and name not in history]
        # "right": an instance without a history has a row, and so is counted
        trials = history.merge(trials[[*key, *missing]], "right", on=key)
    columns = {name: _column(sweep, name, trials) for name in (spec.y, *spec.keys)}
    return chosen_rows(sweep, trials.assign(**columns), spec.where)


def chosen_rows(sweep: LoadedSweep, trials: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows with these values, given as words; ChartError if there is none."""
    for word, value in where.items():
        name = _meant(sweep, "where", word, [])
        column = _column(sweep, name, trials)
        values = column.dropna().unique()
        same = [known for known in values if _same(known, value)]
        if not same:
            ordered = sorted(values, key=lambda known: (isinstance(known, str), known))[:10]
            listed = ", ".join(one_line(str(known)) for known in ordered)
            raise ChartError(f"where {name}={value}: must be one of {listed or 'no value'}")
        trials = rows_of(trials.assign(**{name: column}), {name: same[0]})
    return trials


def _column(sweep: LoadedSweep, name: str, trials: pd.DataFrame) -> pd.Series[Any]:
    """Return a column of the rows or of their runs, for COLUMN=WORD whether a row has the word."""
    if name in trials:
        return trials[name]
    column, _, word = name.partition("=")
    if word:
        return trials[column].eq(word).astype("boolean").where(trials[column].notna())
    values = sweep.runs.set_index("run")[name]
    return trials["run"].astype(object).map(values).astype(values.dtype)


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
    sizes = rows.nunique(dropna=False)
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


def _check_words(spec: ChartSpec) -> None:
    allowed = {"kind": Kind, "estimator": Estimator, "interval": Interval, "fit": Law}
    for name, words in allowed.items():
        if (value := getattr(spec, name)) not in (*get_args(words), None):
            raise ChartError(f"{name}={value}: must be {' | '.join(get_args(words))}")
    if spec.interval == "sd" and spec.estimator != "mean":
        raise ChartError("interval=sd: must have estimator=mean")
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
    if is_bool_dtype(rows[y]) and (kind == "scatter" or spec.fit):
        raise ChartError(f"y={y}: holds true | false; must hold numbers for kind=scatter, or fit")
    if words and kind in ("line", "scatter"):
        raise ChartError(f"x={x}: holds words; must hold numbers for kind={kind}, or kind=box")
    if words and "x" in spec.log:
        raise ChartError(f"log=x: x={x} holds words; must hold numbers")
    if spec.fit and kind != "line":
        raise ChartError(f"fit={spec.fit}: must have kind=line, not {kind}")
    if spec.interval and kind != "line":
        raise ChartError(f"interval={spec.interval}: must have kind=line, not {kind}")
    if spec.interval in ("quartiles", "sd") and is_bool_dtype(rows[y]):
        raise ChartError(f"interval={spec.interval}: y={y} holds true | false; must be ci | none")
    if spec.estimator != "median" and kind in ("box", "scatter"):
        raise ChartError(
            f"estimator={spec.estimator}: must have kind=line | heatmap, not {kind}, or be median"
        )
    if spec.points and kind not in ("line", "box"):
        raise ChartError(f"points=True: must have kind=line | box, not {kind}, or be False")


def _holds_words(column: pd.Series[Any]) -> bool:
    return is_bool_dtype(column) or not is_numeric_dtype(column)
