"""Declaration of a schema field: its default, its allowed values, its meaning."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from attnsvm.config.names import did_you_mean


class ConfigError(ValueError):
    """A value that is not allowed; the message names field, value and what it must be."""


@dataclass(frozen=True)
class Range:
    """The allowed numbers of a field: low <= value <= high.

    `open` excludes low itself, `below` excludes high.
    """

    low: float = -math.inf
    high: float = math.inf
    open: bool = False
    below: bool = False

    def holds(self, value: Any) -> bool:
        """Whether `value` is a finite number in the range."""
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            return False
        above = value > self.low if self.open else value >= self.low
        return above and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        lower = f"{'>' if self.open else '>='} {_number(self.low)}" if self.low > -math.inf else ""
        upper = (
            f"{'<' if self.below else '<='} {_number(self.high)}" if self.high < math.inf else ""
        )
        return f"a finite number {' and '.join(part for part in (lower, upper) if part)}".rstrip()


def _number(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:g}"


@dataclass(frozen=True)
class OneOf:
    """The allowed words of a field."""

    words: tuple[str, ...]

    def holds(self, value: Any) -> bool:
        """Whether `value` is one of the words."""
        return value in self.words

    def __str__(self) -> str:
        return " | ".join(self.words)


@dataclass(frozen=True)
class ListOf:
    """A field that holds a list without repetition, each item allowed by `item`.

    It is not empty, unless that is allowed.
    """

    item: Allowed
    empty: bool = False

    def holds(self, value: Any) -> bool:
        """Whether `value` is a list of allowed items without repetition."""
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and (self.empty or len(value) > 0)
            and all(self.item.holds(v) for v in value)
            and len(set(value)) == len(value)
        )

    def __str__(self) -> str:
        return f"a list without repetition of {self.item}" + ("" if self.empty else ", not empty")


class Allowed(Protocol):
    """The allowed values of a field, with their description as its text."""

    def holds(self, value: Any) -> bool:
        """Whether `value` is allowed."""


def option(default: Any, allowed: Allowed | None, doc: str) -> Any:
    """Return a dataclass field with its default, its allowed values and its meaning."""
    metadata = {"allowed": allowed, "doc": doc}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def check_fields(node: Any, prefix: str = "") -> None:
    """Raise ConfigError for the first field of the dataclass `node` of wrong type or range."""
    for f in dataclasses.fields(node):
        value, allowed = getattr(node, f.name), f.metadata.get("allowed")
        kind, _, optional = str(getattr(f.type, "__name__", f.type)).partition(" | ")
        if value is None and optional:
            continue
        if kind in KINDS and not _is_a(value, kind):
            raise ConfigError(f"{prefix}{f.name}={value}: must be {KINDS[kind]}{_and(allowed)}")
        if allowed is not None and not allowed.holds(value):
            meant = did_you_mean(str(value), allowed.words) if isinstance(allowed, OneOf) else ""
            raise ConfigError(f"{prefix}{f.name}={value}: {meant}must be {allowed}")
        floats = [one for one in _listed(value) if isinstance(one, float)]
        if not all(map(math.isfinite, floats)):  # no record can hold it
            raise ConfigError(f"{prefix}{f.name}={value}: must be finite")


KINDS = {"int": "a whole number", "float": "a number", "bool": "true | false", "str": "a word"}


def _is_a(value: Any, kind: str) -> bool:
    if kind in ("bool", "str"):
        return isinstance(value, {"bool": bool, "str": str}[kind])
    number = numbers.Integral if kind == "int" else numbers.Real
    return isinstance(value, number) and not isinstance(value, bool)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _and(allowed: Allowed | None) -> str:
    return "" if allowed is None else f", {allowed}"


class Group:
    """Base of the options of all groups: checks its fields when it is created."""

    GROUP = ""

    def __post_init__(self) -> None:
        check_fields(self, prefix=f"{self.GROUP}.")


MOST = 10**12
"""Largest whole number of a size or a count: products with 8 bytes and more stay exact."""

POSITIVE_COUNT = Range(1, MOST)
COUNT = Range(0, MOST)
POSITIVE = Range(low=0, open=True)
NON_NEGATIVE = Range(low=0)
SEEDS = Range(0, 2**31)
