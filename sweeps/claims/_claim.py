"""What a claim is: hypotheses and a prediction, each decided for every recorded instance."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from attnsvm.record import read_solutions

from ..aggregate import SweepFrames
from ..cells import row_key
from ._digest import rule_digest

HOLDS, FAILS = "holds", "fails"

OURS = "ours"
"""In the place of a paper: the claim is of this project, and no paper states it."""

STATED, STRONGER, CARRIED_OVER = "stated", "stronger", "carried over"
"""How a claim follows a paper: as it is stated there; without one of the paper's assumptions, or
with more than it promises; or said there of another model or method."""

READINGS = (STATED, STRONGER, CARRIED_OVER, OURS)

Truths = pd.Series
"""One of true, false or missing (undecided) for each instance: pandas' `boolean`, whose `&` and `|`
are those of three-valued logic."""

Condition = str | bool | pd.Series
"""An expression in the columns of the trials, as of `DataFrame.eval`, or its values."""

Rule = tuple[Condition, str]
"""A condition, and the word for the instances that meet it and none before it: `holds`, `fails`,
or why an instance is undecided. Where a condition is missing, it is not met."""


@dataclass(frozen=True)
class Runs:
    """The runs that test a claim: an ordinary sweep in a folder of its own, `name`.

    Claims with the same runs share the folder.
    """

    name: str
    overrides: tuple[str, ...]

    @classmethod
    def of(cls, name: str, overrides: str) -> Runs:
        """Return the runs of overrides that spaces separate."""
        return cls(name, tuple(overrides.split()))


DECLARED: Any = OmegaConf.load(Path(__file__).with_name("runs.yaml"))
"""Name -> overrides of the runs of all claims."""


def runs(*names: str) -> tuple[Runs, ...]:
    """Return declared runs by their names."""
    return tuple(Runs.of(name, DECLARED[name]) for name in names)


@dataclass(frozen=True)
class Evidence:
    """What is on record of some runs.

    Attributes
    ----------
    frames : SweepFrames
        Their tables.
    """

    frames: SweepFrames

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row for every instance, with the fields of its run's config, and its n, T and d.

        The config of instances from a file says nothing of their shape, but their arrays do.
        """
        trials = self.frames.trials
        unknown = trials.reindex(columns=["n", "T", "d"]).isna().any(axis=1)
        if not unknown.any():
            return trials
        sized = trials.assign(**{key: trials.get(key, np.nan) for key in "nTd"})
        for run, rows in trials[unknown].groupby(trials["run"].astype(str)):
            if arrays := read_solutions(self.frames.folders[str(run)]):
                sized.loc[rows.index, ["n", "T", "d"]] = arrays["X"].shape[1:]
        return sized

    def __getitem__(self, column: str) -> pd.Series:
        return self.trials[column]

    def truths(self, condition: Condition, known: Condition = True) -> Truths:
        """Return whether a condition holds, missing where it is not `known`."""
        return self._values(condition).where(self._values(known).fillna(False), pd.NA)

    def _values(self, condition: Condition) -> Truths:
        values = self.trials.eval(condition) if isinstance(condition, str) else condition
        return pd.Series(values, index=self.trials.index).astype("boolean")

    def words(self, rules: Sequence[Rule]) -> pd.Series:
        """Return for each instance the word of the first rule whose condition it meets."""
        words = pd.Series("no rule applies", index=self.trials.index, dtype=object)
        for condition, word in reversed(rules):
            words[self.truths(condition).fillna(False).astype(bool)] = word
        return words

    def curve(self, quantity: str) -> pd.DataFrame:
        """Return a quantity of the history: a row for every instance, a column for every step."""
        history = self.frames.history
        rows, key = history[history["quantity"] == quantity], row_key(self.trials)
        table = rows.assign(run=rows["run"].astype(str)).pivot(
            index=key, columns="step", values="value"
        )
        keys = pd.MultiIndex.from_frame(self.trials[key].astype({"run": str}))
        return table.reindex(keys).set_axis(self.trials.index)

    def at(self, quantity: str, *parts: int) -> list[pd.Series]:
        """Return a quantity at parts of the steps: for 1 at the last one, for 2 half-way, ..."""
        curve = self.curve(quantity)
        return [curve[float(curve.columns.max()) / part] for part in parts]

    def from_arrays(self, measure: Callable[[Mapping[str, np.ndarray]], np.ndarray]) -> pd.Series:
        """Return a number for every instance, measured of the arrays of its run; NaN without them.

        Parameters
        ----------
        measure : callable
            Takes the arrays of a run, instance axis first; returns a number for each instance.
        """
        found = pd.Series(np.nan, index=self.trials.index)
        for run, rows in self.trials.groupby(self.trials["run"].astype(str)):
            if arrays := read_solutions(self.frames.folders[str(run)]):
                _, *key = row_key(rows)
                of_arrays = [arrays["seeds" if name == "seed" else name] for name in key]
                values = pd.Series(measure(arrays), index=pd.MultiIndex.from_arrays(of_arrays))
                found[rows.index] = values.reindex(pd.MultiIndex.from_frame(rows[key])).to_numpy()
        return found


Hypothesis = str | tuple[str, str] | Callable[[Evidence], Truths]
"""Whether an instance meets it: an expression, with another one for where it is known; or a
function of the evidence."""

Prediction = Sequence[Rule] | Callable[[Evidence], Sequence[Rule]]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and how records decide it.

    Attributes
    ----------
    name : str
        What the command calls it.
    paper, number : str
        arXiv number, or `OURS`, and what the paper calls it.
    title, statement : str
        In a few words; as a formula.
    hypotheses : mapping of str to Hypothesis
        What must hold for an instance, in words -> whether it does.
    prediction : Prediction
        The rules that say of an instance `holds`, `fails`, or why it is undecided.
    runs : tuple of Runs
        What is run to test it.
    tolerance : str
        How near is near enough, and why.
    reading : str
        One of READINGS.
    """

    name: str
    paper: str
    number: str
    title: str
    statement: str
    hypotheses: Mapping[str, Hypothesis]
    prediction: Prediction
    runs: tuple[Runs, ...]
    tolerance: str
    reading: str = STATED

    @property
    def source(self) -> str:
        """Who states it."""
        return OURS if self.paper == OURS else f"arXiv {self.paper}"

    @property
    def digest(self) -> str:
        """What a verdict depends on besides attnsvm: it changes when claim, runs or rule do."""
        runs = [[one.name, *one.overrides] for one in self.runs]
        rule = rule_digest(self.hypotheses, self.prediction)
        parts = [self.statement, runs, self.tolerance, rule]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

    def met(self, hypothesis: str, evidence: Evidence) -> Truths:
        """Return for each instance whether it meets a hypothesis."""
        found: Any = self.hypotheses[hypothesis]
        if callable(found):
            return evidence.truths(found(evidence))
        return evidence.truths(*((found,) if isinstance(found, str) else found))

    def words(self, evidence: Evidence) -> pd.Series:
        """Return for each instance `holds`, `fails` or why it is undecided, by the prediction."""
        rules = self.prediction(evidence) if callable(self.prediction) else self.prediction
        return evidence.words(rules)
