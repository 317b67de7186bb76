"""What a stored value may be: numbers within rounding error, or one of several values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Interval:
    """The numbers from `low` to `high`, whole ones if both are; NaN allows NaN only."""

    low: float
    high: float

    def allows(self, stated: Any) -> bool:
        """Whether `stated` is a number of the interval, of its type."""
        if type(stated) is not type(self.low):
            return False
        if math.isnan(self.low) or math.isnan(self.high):
            return math.isnan(stated)
        return bool(self.low <= stated <= self.high)

    def __str__(self) -> str:
        if isinstance(self.low, int):
            return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"
        return f"{self.low if self.low == self.high else (self.low + self.high) / 2:.17g}"


@dataclass(frozen=True)
class Expected:
    """One of several intervals or other values; None stands for a missing one."""

    choices: tuple[Any, ...]

    def allows(self, stated: Any) -> bool:
        """Whether `stated` is in an interval, or one of the values and of its type."""
        return any(
            one.allows(stated)
            if isinstance(one, Interval)
            else type(stated) is type(one) and stated == one
            for one in self.choices
        )

    def __str__(self) -> str:
        return " or ".join(str(choice) for choice in self.choices)


MISSING = Expected((None,))


def number(value: float, error: float = 0.0) -> Expected:
    """Return the numbers within `error` of `value`; an infinite value allows itself only.

    With an infinite error rounding decides even whether the number is defined.
    """
    value, error = float(value), float(error)
    if math.isinf(value):
        error = 0.0
    near = Interval(value - error, value + error)
    return Expected((near, Interval(math.nan, math.nan)) if math.isinf(error) else (near,))


def whole(low: int, high: int) -> Expected:
    """Return the whole numbers from `low` to `high`."""
    return Expected((Interval(int(low), int(high)),))
