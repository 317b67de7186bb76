"""The numbers of a record against those computed again: one comparison for all columns."""

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
Name = tuple[str, str]
"""The part of a record, `table`, `history` or `arrays`, and a name in it."""

Sheet = Mapping[Name, NDArray[Any]]
"""Everything that is stored of some instances: columns (N,), whose `status` includes the reason; of
the R recorded rows quantities (R, S), with their `step`, and arrays (R, ...)."""

RELATIVE = 1e-10
"""Relative difference of numbers from the same weights, unless rounding is larger."""

SPREAD = 8
"""What rounding may change, in units of the largest change by a perturbation of last bits."""

DECIDED = 1e-3
"""Relative change by rounding above which a number counts as not compared."""


def sheet(
    trials: pd.DataFrame, history: pd.DataFrame, arrays: Mapping[str, Any], key: Sequence[str]
) -> Sheet:
    """Return the sheet of tables and arrays.

    The history must have each quantity at each step for the rows that have arrays.
    """
    table = plain_columns(trials)
    pairs = zip(table["status"], table.pop("reason"), strict=True)
    words = [f"{status} ({reason})" if reason else status for status, reason in pairs]
    table["status"] = np.array(words, dtype=object)
    rows = keys_of(arrays, key) if arrays else []
    of, names = pd.factorize(history["quantity"], sort=True)
    steps, at = np.unique(history["step"], return_inverse=True)
    values = np.empty((len(rows), len(names), len(steps)))
    place = {row: k for k, row in enumerate(rows)}
    keys = zip(*(history[one].tolist() for one in key), strict=True)
    found = [place[one] for one in keys if one in place]
    seen = np.zeros(values.shape, dtype=bool)
    if len(history) == len(found) == values.size:
        values[found, of, at], seen[found, of, at] = history["value"], True
    if len(history) != values.size or not seen.all():
        must = f"each of {len(names)} quantities at {len(steps)} steps for {len(rows)} rows, once"
        raise CorruptRecordError(f"history: it has {len(history)} rows, must have {must}")
    curves = {name: values[:, k] for k, name in enumerate(names)}
    curves["step"] = np.broadcast_to(steps, (len(rows), len(steps)))
    parts = {"table": table, "history": curves, "arrays": arrays}
    return {(part, name): one for part, given in parts.items() for name, one in given.items()}


RESIDUALS = {"fin_gradient": 1e-15}
"""Rounding errors of numbers that would be zero in exact arithmetic."""


@dataclass
class Comparison:
    """Compares a record's sheet with the sheets of the variants of a replay.

    A number that differs between the variants is trusted, within the range that is `allowed` for
    its column or quantity. `noisy` returns sheets of perturbed weights, made only if something
    differs by more than `relative` and `absolute` allow. `undecided` are the quantities of which
    rounding decides more than their first digits.
    """

    variants: Sequence[Sheet]
    allowed: Mapping[str, Any] = field(default_factory=dict)
    noisy: Callable[[], Sequence[Sheet]] = tuple
    relative: float = RELATIVE
    absolute: float = 0.0
    undecided: set[str] = field(default_factory=set)

    def form_refusal(self, stated: Sheet, free: Container[str] = ()) -> str:
        """Return what a record has more or less than it must have; empty if nothing.

        `free` are names that need not be there.
        """
        again = self.variants[0]
        apart = {"missing": again.keys() - stated, "too many": stated.keys() - again}
        for what, names in apart.items():
            if found := sorted(f"{name} ({part})" for part, name in names if name not in free):
                return f"{what}: {', '.join(found)}"
        for (part, name), array in again.items():
            given = stated.get((part, name), array)
            same = given.dtype == array.dtype or given.dtype.kind == array.dtype.kind == "U"
            if given.shape != array.shape or not (same or part == "table"):
                must = f"{array.shape} {array.dtype}"
                return f"{name} ({part}): {given.shape} {given.dtype}, must be {must}"
        return ""

    def differences(
        self, stated: Sheet, free: Callable[[str, str], Any] = lambda part, name: False
    ) -> Iterator[tuple[str, str, int, str]]:
        """Yield (part, name, row, reason) of what does not follow, but of rows that are `free`.

        Of a curve it is the first value that does not; of an array there is no reason.
        """
        for (part, name), values in stated.items():
            found: list[Any] = [one.get((part, name)) for one in self.variants]
            if found[0] is None or np.all(unchecked := free(part, name)):
                continue
            wrong = self._wrong((part, name), values, found, unchecked)
            for k in np.flatnonzero(wrong.any(axis=tuple(range(1, wrong.ndim)))):
                reason = ""
                if part == "table":
                    words = dict.fromkeys(str(one[k]) for one in found)
                    reason = f"{name} is {' or '.join(words)}, stated is {values[k]}"
                elif part == "history":
                    s = int(wrong[k].argmax())
                    step = stated["history", "step"][k, s]
                    reason = f"{name} at {step:g} is not {values[k, s]:.17g}"
                yield part, name, int(k), reason

    def derived(self, stated: Sheet) -> Iterator[tuple[str, str, Mask]]:
        """Yield (part, name, where) of columns and curves: where all variants give one value."""
        for (part, name), values in stated.items():
            found = [one.get((part, name)) for one in self.variants]
            if part != "arrays" and found[0] is not None and name not in self.undecided:
                yield part, name, self._known(found, values.dtype.kind == "f")

    def _known(self, found: list[Any], numbers: bool) -> Mask:
        """Return where all variants give one value, (N, ...)."""
        same = self._close if numbers else _equal
        return np.asarray(np.logical_and.reduce([same(one, found[0]) for one in found]))

    @cached_property
    def _perturbed(self) -> Sequence[Sheet]:
        return self.noisy()

    def _wrong(self, of: Name, stated: Any, found: list[Any], unchecked: Any) -> Mask:
        """Return where a value is none that follows, (N, ...)."""
        (part, name), numbers = of, stated.dtype.kind == "f"
        if numbers:
            known = self._known(found, numbers)
            close = self._close(stated, found[0], RESIDUALS.get(name, self.absolute))
            right = np.where(known, close, self._possible(name, stated))
        else:
            right = np.logical_or.reduce([_equal(stated, one) for one in found])
        right |= np.reshape(unchecked, (-1, *[1] * (stated.ndim - 1)))
        if right.all():
            return np.asarray(~right)
        if not numbers and part == "table":
            right |= _between(stated, found)
        others = [one[of] for one in self._perturbed if of in one and one[of].shape == stated.shape]
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

    def _close(self, a: Any, b: Any, absolute: float | None = None) -> Any:
        """Return where numbers are equal up to rounding; NaN equals NaN."""
        absolute = self.absolute if absolute is None else absolute
        if a.shape != b.shape:
            return np.zeros(a.shape, dtype=bool)
        with np.errstate(all="ignore"):
            return np.isclose(a, b, self.relative, absolute, equal_nan=True)


def _equal(a: Any, b: Any) -> Any:
    """Return where words, counts and flags are equal."""
    return np.asarray(a == b, dtype=bool) if a.shape == b.shape else np.zeros(a.shape, dtype=bool)


def _between(stated: Any, found: list[Any]) -> Any:
    """Return where counts are between the least and the largest of those found."""
    count, *counts = (pd.to_numeric(pd.Series(x), errors="coerce") for x in (stated, *found))
    return ((count >= np.min(counts, axis=0)) & (count <= np.max(counts, axis=0))).to_numpy(bool)
