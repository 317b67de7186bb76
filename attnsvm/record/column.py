"""A column: its name, type, meaning, unit, allowed values, and the stage that fills it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
    default: Any

    def renamed(self, name: str) -> Column:
        """Return the same column with another name."""
        return replace(self, name=name)

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


def _kind(dtype: str, default: Any, unit: str, allowed: Allowed = None) -> Callable[..., Column]:
    """Return what declares a column of a type; its unit and allowed values may be given."""

    def column(
        name: str,
        stage: str,
        meaning: str,
        unit: str = unit,
        allowed: Allowed = allowed,
        default: Any = default,
    ) -> Column:
        return Column(name, dtype, meaning, unit, allowed, stage, default)

    return column


number = _kind("float64", NAN, "1")
"""A float, NaN where missing."""
whole = _kind("int64", 0, "count", COUNT)
"""A whole number >= 0 that every row has."""
count = _kind("Int64", None, "count", COUNT)
"""A whole number >= 0 that may be missing."""
word = _kind("str", "", "word")
"""A word, empty where missing."""
text = _kind("str", "", "text")
"""A text, empty where missing."""
flag = _kind("boolean", None, "flag")
"""True or false, may be missing."""
decided = _kind("bool", False, "flag")
"""True or false in every row."""


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
RUN_STATE = OneOf(tuple(STATES))
