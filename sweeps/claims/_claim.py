"""What a claim is: hypotheses and a prediction, each decided for every recorded instance."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

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

Words = pd.Series
"""One word for each instance: `holds`, `fails`, or why it is undecided."""


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

    def truths(self, values: Any, known: Any = True) -> Truths:
        """Return values as `boolean`, missing where they are not `known`."""
        found = pd.Series(np.asarray(values), index=self.trials.index).astype("boolean")
        return found.where(pd.Series(known, index=self.trials.index), pd.NA)

    def one_minus_corr(self, norm: str = "frobenius") -> pd.Series:
        """Return 1 - correlation of the trained W with the SVM of a norm."""
        return self.trials[f"one_minus_corr_{norm}"]

    def one_minus_corr_curve(self, norm: str = "frobenius") -> pd.DataFrame:
        """Return the same for every step."""
        return self.curve(f"one_minus_corr_{norm}")

    def curve(self, quantity: str) -> pd.DataFrame:
        """Return a quantity of the history: a row for every instance, a column for every step."""
        history = self.frames.history
        rows, key = history[history["quantity"] == quantity], row_key(self.trials)
        table = rows.assign(run=rows["run"].astype(str)).pivot(
            index=key, columns="step", values="value"
        )
        keys = pd.MultiIndex.from_frame(self.trials[key].astype({"run": str}))
        return table.reindex(keys).set_axis(self.trials.index)

    def from_arrays(self, measure: Callable[[Mapping[str, np.ndarray]], np.ndarray]) -> pd.Series:
        """Return a number for every instance, measured of the arrays of its run; NaN without them.

        Parameters
        ----------
        measure : callable
            Takes the arrays of a run, instance axis first; returns a number for each instance.
        """
        found = pd.Series(np.nan, index=self.trials.index)
        for run, rows in self.trials.groupby(self.trials["run"].astype(str)):
            arrays = read_solutions(self.frames.folders[str(run)])
            if arrays:
                _, *key = row_key(rows)
                of_arrays = [arrays["seeds" if name == "seed" else name] for name in key]
                values = pd.Series(measure(arrays), index=pd.MultiIndex.from_arrays(of_arrays))
                found[rows.index] = values.reindex(pd.MultiIndex.from_frame(rows[key])).to_numpy()
        return found


Hypotheses = dict[str, Callable[[Evidence], Truths]]
"""What must hold for an instance, in words, and whether it does."""


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
    hypotheses : mapping of str to callable
        What must hold for an instance, in words -> whether it does, for each instance of the
        evidence.
    prediction : callable
        Returns for each instance of the evidence `holds`, `fails`, or why it is undecided.
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
    hypotheses: Mapping[str, Callable[[Evidence], Truths]]
    prediction: Callable[[Evidence], Words]
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
        rule = rule_digest([self.prediction, *self.hypotheses.values()])
        parts = [self.statement, [*self.hypotheses], runs, self.tolerance, rule]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def ruled(evidence: Evidence, rules: Iterable[tuple[Any, str]], otherwise: str) -> Words:
    """Return for each instance the word of the first rule that applies.

    Parameters
    ----------
    evidence : Evidence
        The instances.
    rules : iterable of (mask, word)
        A mask says for each instance whether the rule applies; where it is missing it does not.
    otherwise : str
        The word where none applies.
    """
    words = pd.Series(otherwise, index=evidence.trials.index, dtype=object)
    open_ = pd.Series(True, index=words.index)
    for mask, word in rules:
        applies = pd.Series(mask, index=words.index).astype("boolean").fillna(False).astype(bool)
        words[open_ & applies] = word
        open_ &= ~applies
    return words
