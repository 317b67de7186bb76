"""The records of some runs as columns: in these are the expressions that decide a claim."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.record.stored import StoredRun

from ..cells import row_key, word
from ..loaded import LoadedSweep
from . import arrays

Truths = pd.Series
"""One of true, false or missing (undecided) for each instance: pandas' `boolean`, whose `&` and `|`
are those of three-valued logic."""

Rule = tuple[str, str]
"""A word, and the condition of the instances that it is said of if none before it is: `holds`,
`fails`, or why an instance is undecided. Where a condition is missing, it is not met."""

OTHERWISE = "otherwise"
"""The condition that every instance meets."""

OF_HISTORY = ("at", "swing", "change", "lowest", "of_norm")
"""Methods of `Evidence` that are functions in expressions, like those of `arrays`."""


class Evidence:
    """What is on record of some runs, and what follows from it for a claim.

    An expression is one of `pandas.eval`. Its names are columns of the trials, last words of the
    fields of the config, columns of the claim (`columns`, name -> expression), and functions of the
    history or of the arrays.
    """

    def __init__(self, sweep: LoadedSweep, columns: Mapping[str, str] | None = None) -> None:
        self.sweep, self.trials = sweep, _sized(sweep)
        self.names = _Names(self, columns or {})
        self.recorded = dict(self.trials.items())

    def value(self, expression: str) -> Any:
        """Return the value of an expression: a series, or one value for all instances."""
        # DataFrame.eval would parse the names of all columns again
        resolvers: list[Mapping[Any, Any]] = [self.names, self.recorded]
        return pd.eval(expression, engine="python", resolvers=resolvers)

    def truths(self, condition: str, known: str = OTHERWISE) -> Truths:
        """Return whether a condition holds, missing where it is not `known`."""
        return self._truths(condition).where(self._truths(known).fillna(False), pd.NA)

    def _truths(self, condition: str) -> Truths:
        value = condition == OTHERWISE or self.value(condition)
        return pd.Series(value, index=self.trials.index).astype("boolean")

    def words(self, rules: Sequence[Rule]) -> pd.Series:
        """Return for each instance the word of the first rule whose condition it meets."""
        words = pd.Series("no rule applies", index=self.trials.index, dtype=object)
        for outcome, condition in reversed(rules):
            words[self.truths(condition).fillna(False).astype(bool)] = outcome
        return words

    def curve(self, quantity: str) -> pd.DataFrame:
        """Return a quantity of the history: a row for every instance, a column for every step."""
        history = self.sweep.curves
        rows, key = history[history["quantity"] == quantity], row_key(self.trials)
        table = rows.assign(run=rows["run"].astype(str)).pivot(
            index=key, columns="step", values="value"
        )
        keys = pd.MultiIndex.from_frame(self.trials[key].astype({"run": str}))
        return table.reindex(keys).set_axis(self.trials.index)

    def at(self, quantity: str, part: float) -> pd.Series:
        """Return a quantity of the history after a part of the steps: 0 is the start, 1 the end."""
        curve = self.curve(quantity)
        return curve[round(part * float(curve.columns.max()))]

    def swing(self, quantity: str) -> pd.Series:
        """Return the largest less the smallest value of a quantity since half-way of the steps.

        Two snapshots alone may agree by chance where a number swings. Missing where the last one
        is.
        """
        curve = self.curve(quantity)
        last = float(curve.columns.max())
        late = curve[[step for step in curve.columns if float(step) >= last / 2]]
        return (late.max(axis=1) - late.min(axis=1)).where(curve[last].notna())

    def change(self, quantity: str) -> pd.Series:
        """Return the largest difference of a quantity from its start; missing if a step is."""
        curve = self.curve(quantity)
        return curve.sub(curve.iloc[:, 0], axis=0).abs().max(axis=1, skipna=False)

    def lowest(self, quantity: str) -> pd.Series:
        """Return the least recorded value of a quantity of the history."""
        return self.curve(quantity).min(axis=1)

    def of_norm(self, norms: pd.Series, name: str, part: float | None = None) -> pd.Series:
        """Return a column, or with `part` a quantity as in `at`, of a norm of each instance's own.

        `norms` are names, or the p of l_p; missing: no value. `name` has {} for the norm.
        """
        numbers = pd.Series(np.nan, index=norms.index)
        for norm in norms.dropna().unique():
            number = not isinstance(norm, str)
            full = name.format(("frobenius" if norm == 2 else f"l{norm:g}") if number else norm)
            values = self.trials[full] if part is None else self.at(full, part)
            numbers = numbers.mask(norms == norm, values)
        return numbers

    def from_arrays(self, measure: Callable[..., np.ndarray], *parts: Any) -> pd.Series:
        """Return a number for every instance, measured of the arrays of its run; NaN without them.

        `measure` takes these arrays, instance axis B first, and `parts`, and returns (B,).
        """
        numbers = pd.Series(np.nan, index=self.trials.index)
        for run, rows in self.trials.groupby(self.trials["run"].astype(str)):
            if stored := StoredRun(self.sweep.folders[str(run)]).arrays():
                _, *key = row_key(rows)
                of_arrays = [stored["seeds" if name == "seed" else name] for name in key]
                values = pd.Series(
                    measure(stored, *parts), index=pd.MultiIndex.from_arrays(of_arrays)
                )
                numbers[rows.index] = values.reindex(pd.MultiIndex.from_frame(rows[key])).to_numpy()
        return numbers


SIZES = ("data.n", "data.T", "data.d")
"""The fields that set the shape of instances, the number of samples first."""


def _sized(sweep: LoadedSweep) -> pd.DataFrame:
    """Return the rows of a sweep with their n, T and d.

    The config of instances from a file says nothing of their shape, but their arrays do.
    """
    rows = sweep.rows
    unknown = rows.reindex(columns=SIZES).isna().any(axis=1)
    if not unknown.any():
        return rows
    sized = rows.assign(**{name: rows.get(name, np.nan) for name in SIZES})
    for run, part in rows[unknown].groupby(rows["run"].astype(str)):
        if stored := StoredRun(sweep.folders[str(run)]).arrays():
            sized.loc[part.index, list(SIZES)] = stored["X"].shape[1:]
    return sized


class _Names(dict[str, Any]):
    """What the names in expressions stand for besides columns of the trials; each found once."""

    def __init__(self, evidence: Evidence, columns: Mapping[str, str]) -> None:
        super().__init__()
        self.evidence, self.columns = evidence, columns
        names = {word(name): name for name in reversed((*SIZES, *evidence.sweep.fields))}
        self.fields = {w: name for w, name in names.items() if w not in evidence.trials}

    def __missing__(self, name: str) -> Any:
        if name in self.columns:
            self[name] = self.evidence.value(self.columns[name])
        elif name in self.fields:
            self[name] = self.evidence.trials[self.fields[name]]
        elif name in OF_HISTORY:
            self[name] = getattr(self.evidence, name)
        elif name in arrays.MEASURES:
            self[name] = partial(self.evidence.from_arrays, arrays.MEASURES[name])
        else:
            raise KeyError(name)
        return self[name]
