"""A column: its name, type, meaning, unit, allowed values, and the stage that fills it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnsvm.config.fields import OneOf, Range

NAN = float("nan")
STAGES = {
    "draw": "draws the instances",
    "train": "trains the weights",
    "select": "reads off the selected tokens and excludes instances",
    "svm": "solves and certifies the SVMs",
    "published": "solves them again as the published scripts do (svm.published=true)",
    "compare": "compares the trained weights with the SVMs",
    "probe": "measures what the config names in probe=[...]",
    "record": "writes the run to disk",
    "aggregate": "reads the runs of a folder",
}
"""What fills columns."""

Allowed = Range | OneOf | None


@dataclass(frozen=True)
class Column:
    """A column of a table, or a quantity of the history.

    Attributes
    ----------
    name, dtype : str
        Its name and pandas dtype.
    meaning, unit : str
        What it says, and in what: `steps`, `seconds`, `word`, `1` for a pure number, ...
    allowed : Range, OneOf or None
        The values that it may have besides missing ones (NaN, an empty word); None for all of its
        type.
    stage : str
        One of `STAGES`.
    default : Any
        The value of an instance without a result.
    """

    name: str
    dtype: str
    meaning: str
    unit: str
    allowed: Allowed
    stage: str
    default: Any = NAN

    @property
    def range(self) -> str:
        """The allowed values as text."""
        kinds = {"str": "any text", "bool": "true | false", "boolean": "true | false"}
        if self.allowed is None:
            return kinds.get(self.dtype, "any number")
        return str(self.allowed).removeprefix("a finite number ")


COUNT = Range(low=0)
SHARE = Range(0, 1)
DISTANCE = Range(0, 2 + 1e-12)  # 2 up to rounding


def number(name: str, stage: str, meaning: str, unit: str, allowed: Allowed = None) -> Column:
    """Return a column of floats, NaN where missing."""
    return Column(name, "float64", meaning, unit, allowed, stage)


def whole(name: str, stage: str, meaning: str, unit: str = "count") -> Column:
    """Return a column of whole numbers >= 0 that every row has."""
    return Column(name, "int64", meaning, unit, COUNT, stage, 0)


def count(name: str, stage: str, meaning: str) -> Column:
    """Return a column of whole numbers >= 0 that may be missing."""
    return Column(name, "Int64", meaning, "count", COUNT, stage, None)


def word(name: str, stage: str, meaning: str, allowed: Allowed = None, default: str = "") -> Column:
    """Return a column of words, empty where missing."""
    return Column(name, "str", meaning, "word", allowed, stage, default)


def text(name: str, stage: str, meaning: str) -> Column:
    """Return a column of texts, empty where missing."""
    return Column(name, "str", meaning, "text", None, stage, "")


def flag(name: str, stage: str, meaning: str) -> Column:
    """Return a column of true and false that may be missing."""
    return Column(name, "boolean", meaning, "flag", None, stage, None)


def decided(name: str, stage: str, meaning: str) -> Column:
    """Return a column of true and false that every row has."""
    return Column(name, "bool", meaning, "flag", None, stage, False)


# --- allowed words --------------------------------------------------------------------------------

STATUS = OneOf(
    ("ok", "rejected", "tie", "unsaturated", "diverged", "stalled", "infeasible", "undecided",
     "unconstrained")
)  # fmt: skip
SVM_STATUS = OneOf(("solved", "infeasible", "undecided", "unconstrained"))
TRAINING = OneOf(("saturated", "unsaturated", "finite_optimum", "stalled", "diverged"))
CONVERGENCE = OneOf(
    ("global", "local", "not_local", "unsettled", "unknown", "unsaturated", "infeasible",
     "undecided")
)  # fmt: skip
STATES = {
    "done": "a complete record whose checksums match",
    "running": "locked by a running process",
    "failed": "ended by an error, which is recorded",
    "interrupted": "ended by a signal, which is recorded",
    "lost": "its process ended without a record: it was killed, or its machine failed",
    "missing": "no record and no lock: never started",
    "corrupt": "its record differs from what was written",
}
"""States of a run."""
