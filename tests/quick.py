"""Tables of cases: which rows `make test` runs (`make test-all` runs all), and those in a file."""

import csv
from pathlib import Path
from typing import Any

import pytest


def quick(*values: Any, count: int = 1) -> list[Any]:
    """Return values, of which all but the first ones are marked `full`."""
    rest = (pytest.param(value, marks=pytest.mark.full) for value in values[count:])
    return [*values[:count], *rest]


def quick_rows(*rows: tuple[Any, ...], count: int = 1) -> list[Any]:
    """Return rows of values, one for each name, of which all but the first are marked `full`."""
    return [*rows[:count], *(pytest.param(*row, marks=pytest.mark.full) for row in rows[count:])]


def refusals(of: str) -> list[tuple[str, str]]:
    """Return what is typed and what it is told in return, the rows of a test in `refusals.csv`."""
    with Path(__file__).with_name("refusals.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["of"] == of]
    return [(row["typed"], row["told"]) for row in rows]
