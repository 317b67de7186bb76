"""The numbers of a record against those computed again: one comparison for all columns.

A record, and what is computed again, are sheets: the columns of the table, the quantities of the
history and the arrays, each with a row in front for every row of the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnsvm.config.fields import OneOf, Range
from attnsvm.record import CorruptRecordError

Mask = NDArray[np.bool_]
Part = dict[str, NDArray[Any]]

RELATIVE = 1e-10
"""Relative difference of numbers from the same weights, unless rounding is larger."""

SPREAD = 8
"""What rounding may change, in units of the largest change by a perturbation of last bits."""

DECIDED = 1e-3
"""Relative change by rounding above which a number counts as not compared."""


@dataclass(frozen=True)
class Sheet:
    """Everything that is stored of some instances.

    Attributes
    ----------
    table : dict
        Column -> values (N,); status and reason are one column, `status`.
    history : dict
        Quantity -> values (R, S), of the R recorded rows.
    arrays : dict
        Name -> array (R, ...).
    steps : Array
        The recorded steps (S,).
    """

    table: Part
    history: Part
    arrays: Part
    steps: NDArray[Any]


def sheet(
    trials: pd.DataFrame,
    history: pd.DataFrame,
    arrays: Mapping[str, Any],
    key: Sequence[str],
) -> Sheet:
    """Return the sheet of tables and arrays.

    Raises
    ------
    CorruptRecordError
        If the history has not each quantity at each step for the rows that have arrays.
    """
    table: Part = {}
    for name, column in trials.items():
        if isinstance(column.dtype, pd.Int64Dtype | pd.BooleanDtype):
            column = column.astype(object).where(column.notna(), None)
        table[str(name)] = column.to_numpy(dtype=None if column.dtype.kind in "fib" else object)
    pairs = zip(table["status"], table.pop("reason"), strict=True)
    table["status"] = np.array(
        [f"{status} ({reason})" if reason else status for status, reason in pairs], dtype=object
    )
    keys = [np.asarray(arrays[name]) for name in ["seeds", *key[1:]]] if arrays else []
    rows = list(zip(*(one.tolist() for one in keys), strict=True))
    curves, steps = _curves(history, rows, key)
    return Sheet(table, curves, dict(arrays), steps)


def _curves(
    history: pd.DataFrame, rows: list[tuple[int, ...]], key: Sequence[str]
) -> tuple[Part, NDArray[Any]]:
    columns = [*key, "step", "quantity", "value"]
    if list(history.columns) != columns:
        raise CorruptRecordError(f"history: its columns must be {', '.join(columns)}")
    kinds = {**dict.fromkeys(key, "i"), "step": "f", "value": "f"}
    if any(history[name].dtype.kind != kind for name, kind in kinds.items()):
        raise CorruptRecordError("history: a column has another type")
    names = sorted(set(history["quantity"]))
    steps = np.unique(history["step"].to_numpy())
    whole = (len(rows), len(names), len(steps))
    if len(history) != len(rows) * len(names) * len(steps):
        raise CorruptRecordError(f"history: it has {len(history)} rows, must have {whole}")
    if not len(history):
        return {}, steps
    place = {name: k for k, name in enumerate(names)}
    at = history["quantity"].map(place).to_numpy()
    by_key = [history[name].to_numpy() for name in key]
    order = np.lexsort((history["step"].to_numpy(), at, *reversed(by_key)))
    expected = np.repeat(np.array(sorted(rows)), len(names) * len(steps), axis=0).T
    right = all((a[order] == b).all() for a, b in zip(by_key, expected, strict=True))
    right &= bool((at[order] == np.tile(np.repeat(range(len(names)), len(steps)), len(rows))).all())
    right &= bool((history["step"].to_numpy()[order] == np.tile(steps, whole[0] * whole[1])).all())
    if not right:
        raise CorruptRecordError("history: its rows must be of every row, quantity and step, once")
    values = history["value"].to_numpy(dtype=np.float64)[order].reshape(whole)
    place_of = {row: k for k, row in enumerate(sorted(rows))}
    back = [place_of[row] for row in rows]
    return {name: values[back, k] for k, name in enumerate(names)}, steps


@dataclass
class Comparison:
    """Compares a record's sheet with the sheets of the variants of a replay.

    Attributes
    ----------
    variants : list of Sheet
        What is computed again; a number that differs between them is trusted.
    allowed : mapping of str to Range
        The possible values of columns and quantities, as the dictionary of columns says.
    noisy : callable
        Returns sheets of perturbed weights, made only if something differs.
    undecided : set of str
        Quantities of which rounding decides more than their first digits.
    """

    variants: Sequence[Sheet]
    allowed: Mapping[str, Any]
    noisy: Callable[[], Sequence[Sheet]]
    undecided: set[str] = field(default_factory=set)

    def table(self, stated: Sheet, without: set[str]) -> Iterator[tuple[int, str]]:
        """Yield (row, reason) of cells that do not follow, `without` some columns."""
        for name, values in stated.table.items():
            if name in without:
                continue
            found = [one.table[name] for one in self.variants]
            wrong = self._wrong(name, values, found, "table")
            for k in np.flatnonzero(wrong):
                words = dict.fromkeys(str(_plain(one[k])) for one in found)
                yield int(k), f"{name} is {' or '.join(words)}, stated is {_plain(values[k])}"

    def history(self, stated: Sheet) -> Iterator[tuple[int, str]]:
        """Yield (recorded row, reason) of the first value of each curve that does not follow."""
        for name, values in stated.history.items():
            found = [one.history[name] for one in self.variants]
            wrong = self._wrong(name, values, found, "history")
            for k in np.flatnonzero(wrong.any(1)):
                s = int(wrong[k].argmax())
                yield int(k), f"{name} at {stated.steps[s]:g} is not {values[k, s]:.17g}"

    def arrays(self, stated: Sheet) -> Iterator[tuple[int, str]]:
        """Yield (recorded row, name) of arrays that do not follow."""
        for name, values in stated.arrays.items():
            found = [one.arrays[name] for one in self.variants if name in one.arrays]
            if found:
                wrong = self._wrong(name, values, found, "arrays")
                for k in np.flatnonzero(wrong.reshape(len(wrong), -1).any(1)):
                    yield int(k), name

    def _wrong(self, name: str, stated: Any, found: list[Any], part: str) -> Mask:
        """Return where a value is none that follows, (N, ...)."""
        numbers = stated.dtype.kind == "f"
        if numbers:
            known = np.logical_and.reduce([_close(one, found[0]) for one in found])
            right = np.where(known, _close(stated, found[0]), self._possible(name, stated))
        else:
            right = np.logical_or.reduce([_equal(stated, one) for one in found])
        if right.all():
            return np.asarray(~right)
        others = [getattr(one, part)[name] for one in self.noisy() if name in getattr(one, part)]
        others = [one for one in others if one.shape == stated.shape]
        for one in others if not numbers else ():
            right |= _equal(stated, one)
        if numbers and others:
            right |= known & self._rounded(name, stated, found[0], np.stack(others), known & ~right)
        return np.asarray(~right)

    def _rounded(self, name: str, stated: Any, value: Any, others: Any, where: Mask) -> Mask:
        """Return where `stated` differs from `value` as perturbed weights do."""
        with np.errstate(all="ignore"):
            apart = np.fmax.reduce(np.abs(others - value))
            within = np.abs(stated - value) <= SPREAD * apart
            vague = apart > DECIDED * np.abs(value)
        missing = np.isnan(others)  # whether there is a number at all may be rounding
        one_missing = np.isnan(stated) != np.isnan(value)
        either = np.where(np.isnan(stated), missing.any(0), ~missing.all(0))
        allowed = np.where(one_missing, either, within)
        if (where & allowed & (one_missing | vague)).any():
            self.undecided.add(name)
        return np.asarray(allowed)

    def _possible(self, name: str, stated: Any) -> Mask:
        """Return where a number that does not follow may be what it is."""
        allowed = self.allowed.get(name)
        possible = np.ones(stated.shape, dtype=bool)
        if isinstance(allowed, OneOf):  # of the recorded steps
            possible = np.isin(stated, allowed.words)
        if isinstance(allowed, Range):
            possible = (stated >= allowed.low) & (stated <= allowed.high)
        return np.asarray(possible | np.isnan(stated))


def _close(a: Any, b: Any) -> Any:
    """Return where numbers are equal up to rounding; NaN equals NaN."""
    if a.shape != b.shape:
        return np.zeros(a.shape, dtype=bool)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= RELATIVE * np.abs(b)
    return near | (a == b) | (np.isnan(a) & np.isnan(b))


def _equal(a: Any, b: Any) -> Any:
    """Return where words, counts and flags are equal, of the same type."""
    if a.shape != b.shape:
        return np.zeros(a.shape, dtype=bool)
    return np.asarray(a == b, dtype=bool)


def _plain(value: Any) -> Any:
    """Return a NumPy number as one of Python."""
    return value.item() if isinstance(value, np.generic) else value
