"""The numbers of a record against those computed again: one comparison for all columns.

A record, and what is computed again, are sheets: the columns of the table, the quantities of the
history and the arrays, each with a row in front for every row of the trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnsvm.config.fields import OneOf, Range
from attnsvm.record import CorruptRecordError
from attnsvm.verify.stored import keys_of, plain_columns

Mask = NDArray[np.bool_]
Part = Mapping[str, NDArray[Any]]

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
    table = plain_columns(trials)
    pairs = zip(table["status"], table.pop("reason"), strict=True)
    table["status"] = np.array(
        [f"{status} ({reason})" if reason else status for status, reason in pairs], dtype=object
    )
    rows = keys_of(arrays, key) if arrays else []
    names, steps = sorted(set(history["quantity"])), np.unique(history["step"].to_numpy())
    whole = (len(rows), len(names), len(steps))
    if len(history) != math.prod(whole):
        raise CorruptRecordError(f"history: it has {len(history)} rows, must have {whole}")
    ordered = history.sort_values([*key, "quantity", "step"])
    cube = {str(name): ordered[name].to_numpy().reshape(whole) for name in ordered}
    order = sorted(range(len(rows)), key=rows.__getitem__)
    expected = {"quantity": np.array(names, dtype=object)[:, None], "step": steps}
    if rows:
        by_name = zip(key, np.array(rows)[order].T, strict=True)
        expected |= {name: values[:, None, None] for name, values in by_name}
    if not all((cube[name] == values).all() for name, values in expected.items()):
        raise CorruptRecordError("history: its rows must be of every row, quantity and step, once")
    values = np.empty(whole)
    values[order] = cube["value"]
    curves = {name: values[:, k] for k, name in enumerate(names)}
    return Sheet(table, curves, dict(arrays), steps)


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
    relative, absolute : float
        Differences of numbers that are allowed without a look at perturbed weights.
    undecided : set of str
        Quantities of which rounding decides more than their first digits.
    """

    variants: Sequence[Sheet]
    allowed: Mapping[str, Any] = field(default_factory=dict)
    noisy: Callable[[], Sequence[Sheet]] = tuple
    relative: float = RELATIVE
    absolute: float = 0.0
    undecided: set[str] = field(default_factory=set)

    def form_refusal(self, stated: Sheet) -> str:
        """Return what a record has more or less than it must have; empty if nothing."""
        again = self.variants[0]
        for part in ("table", "history"):
            names = set(getattr(stated, part)) ^ set(getattr(again, part))
            if names:
                return f"{part}: missing or too many: {', '.join(sorted(names))}"
        if not np.array_equal(stated.steps, again.steps):
            return "history: its steps are not those of the config"
        return ""

    def differences(
        self, stated: Sheet, without: Container[str] = ()
    ) -> Iterator[tuple[str, str, int, str]]:
        """Yield (part, name, row, reason) of what does not follow, `without` some columns.

        Of a curve it is the first value that does not; of an array there is no reason.
        """
        for part in ("table", "history", "arrays"):
            for name, values in getattr(stated, part).items():
                found = [getattr(one, part).get(name) for one in self.variants]
                if found[0] is None or (part == "table" and name in without):
                    continue
                wrong = self._wrong(name, values, found, part)
                for k in np.flatnonzero(wrong.reshape(len(wrong), -1).any(1)):
                    reason = ""
                    if part == "table":
                        words = dict.fromkeys(str(_plain(one[k])) for one in found)
                        reason = f"{name} is {' or '.join(words)}, stated is {_plain(values[k])}"
                    elif part == "history":
                        s = int(wrong[k].argmax())
                        reason = f"{name} at {stated.steps[s]:g} is not {values[k, s]:.17g}"
                    yield part, name, int(k), reason

    @cached_property
    def _perturbed(self) -> Sequence[Sheet]:
        return self.noisy()

    def _wrong(self, name: str, stated: Any, found: list[Any], part: str) -> Mask:
        """Return where a value is none that follows, (N, ...)."""
        numbers = stated.dtype.kind == "f"
        if numbers:
            known = np.logical_and.reduce([self._close(one, found[0]) for one in found])
            right = np.where(known, self._close(stated, found[0]), self._possible(name, stated))
        else:
            right = np.logical_or.reduce([_equal(stated, one) for one in found])
        if right.all():
            return np.asarray(~right)
        others = [getattr(one, part).get(name) for one in self._perturbed]
        others = [one for one in others if one is not None and one.shape == stated.shape]
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

    def _close(self, a: Any, b: Any) -> Any:
        """Return where numbers are equal up to rounding; NaN equals NaN."""
        if a.shape != b.shape:
            return np.zeros(a.shape, dtype=bool)
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= self.absolute + self.relative * np.abs(b)
        return (near & np.isfinite(b)) | (a == b) | (np.isnan(a) & np.isnan(b))


def _equal(a: Any, b: Any) -> Any:
    """Return where words, counts and flags are equal, of the same type."""
    if a.shape != b.shape:
        return np.zeros(a.shape, dtype=bool)
    return np.asarray(a == b, dtype=bool)


def _plain(value: Any) -> Any:
    """Return a NumPy number as one of Python."""
    return value.item() if isinstance(value, np.generic) else value
