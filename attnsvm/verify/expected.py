"""What a stated value may be: one value, an interval of rounding error, or one of several."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Interval:
    """The numbers from `low` to `high`; NaN allows NaN only."""

    low: float
    high: float

    def allows(self, stated: Any) -> bool:
        """Whether `stated` is a number of the interval."""
        if isinstance(stated, bool) or not isinstance(stated, int | float):
            return False
        if math.isnan(self.low) or math.isnan(self.high):
            return math.isnan(stated)
        return self.low <= stated <= self.high

    def __str__(self) -> str:
        middle = self.low if self.low == self.high else (self.low + self.high) / 2
        return f"{middle:.17g}"


@dataclass(frozen=True)
class Whole:
    """The whole numbers from `low` to `high`."""

    low: int
    high: int

    def allows(self, stated: Any) -> bool:
        """Whether `stated` is one of them."""
        return type(stated) is int and self.low <= stated <= self.high

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


@dataclass(frozen=True)
class Words:
    """One of several values of any type; None stands for a missing one."""

    values: tuple[Any, ...]

    def allows(self, stated: Any) -> bool:
        """Whether `stated` is one of the values, of the same type."""
        return any(type(stated) is type(value) and stated == value for value in self.values)

    def __str__(self) -> str:
        return " or ".join(str(value) for value in self.values)


@dataclass(frozen=True)
class Either:
    """What one of several allows."""

    choices: tuple[Expected, ...]

    def allows(self, stated: Any) -> bool:
        """Whether one of the choices allows `stated`."""
        return any(choice.allows(stated) for choice in self.choices)

    def __str__(self) -> str:
        return " or ".join(str(choice) for choice in self.choices)


Expected = Interval | Whole | Words | Either

NAN = Interval(math.nan, math.nan)
MISSING = Words((None,))


def number(value: float, error: float = 0.0) -> Interval:
    """Return the numbers within `error` of `value`; an infinite value allows itself only."""
    value = float(value)
    return Interval(value, value) if math.isinf(value) else Interval(value - error, value + error)


def truth(value: bool | None) -> Words:
    """Return the truth value, or both if it is not decided."""
    return Words((True, False) if value is None else (bool(value),))


def whole(low: int, high: int) -> Whole:
    """Return the whole numbers from `low` to `high`."""
    return Whole(int(low), int(high))


def difference(name: str, stated: Any, expected: Expected) -> str:
    """Return why `stated` is refused; empty if it is allowed."""
    return "" if expected.allows(stated) else f"{name} is {expected}, stated is {stated}"
